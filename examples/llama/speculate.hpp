// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine.hpp"
#include "sampler.hpp"

namespace llama {

/// A text that was continued, and what its drafts did.
struct Continuation {
  std::vector<std::int32_t> tokens;
  std::size_t steps = 0;  // behind the prefill
  std::size_t drafted = 0;
  std::size_t accepted = 0;  // of the drafted ones; the rows of the others were rolled back
};

struct ContinueOptions {
  std::size_t tokens = 0;     // to generate
  std::size_t drafts = 0;     // at most so many a step; 0: one token a step
  std::size_t chunk = 64;     // tokens of a step, at least `drafts` + 1
  SamplerOptions sampling{};  // drafts change nothing in what is picked
};

/// Continues `prompt`. Each step computes the token that was picked last and a draft behind it; of the draft, what the
/// sampler picks too becomes real. The sampler is asked once a token in either case, so the text is the one without
/// drafts. **Pre** `sequence` was opened with `prompt`.
[[nodiscard]] Continuation continue_text(Engine& engine,
                                         kvcache::Sequence const& sequence,
                                         std::span<std::int32_t const> prompt,
                                         ContinueOptions const& options);

}  // namespace llama
