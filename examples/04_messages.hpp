// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What the scheduler and the worker of 04_scheduler_and_worker.cpp must agree on.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "llama/decoder.hpp"

using Layout = kvcache::PagedHeads<kvcache::half, kvcache::dynamic, 16>;
using Decoder = llama::Decoder<Layout>;
using Tokens = std::vector<kvcache::Token>;

/// In place of a token of a step: the one that the worker picked last for this table row.
inline constexpr kvcache::Token yours = -1;

/// Of the control plane and of every pool.
[[nodiscard]] inline kvcache::ControlOptions sizes()
{
  kvcache::ControlOptions options{
    .pages = 96, .page_tokens = 16, .max_sequences = 8, .max_step_tokens = 512};
  (void)options.complete();
  return options;
}

/// What stands in front of a step: the bytes of its plan follow, then its tokens. The answer is `Picks`.
struct Header {
  std::uint32_t plan_bytes;
  std::uint32_t tokens;
};

/// Of each chunk of the plan the token that was picked behind it; in front, whether the next plan was there already.
using Picks = Tokens;

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& items)
{
  return std::as_writable_bytes(std::span(items));
}
