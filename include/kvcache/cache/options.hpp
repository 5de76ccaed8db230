// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/device/device.hpp>
#include <kvcache/pool/storage.hpp>

#include <cstdint>
#include <optional>

/// \file What a cache is made with, besides the model's geometry.

namespace kvcache::inline v0_1 {

/// Every field has a default but `pages`.
template <class Policy>
struct Options {
  PageCount pages = 0;                ///< usable pages; the page of zeros comes on top
  std::uint32_t max_sequences = 256;  ///< open at the same time
  Index max_sequence_tokens = 0;      ///< 0, or more than the pool holds: as many as that
  Index max_step_tokens =
    8192;                   ///< of one step, over all its chunks; each slot has arrays for as many
  Token vocabulary = 0;     ///< tokens are below this; 0: any that is not negative
  PageCount watermark = 0;  ///< pages that `admit` leaves to the sequences that run already
  std::uint32_t event_capacity =
    0;  ///< events kept for followers, 20 + 4 * page_tokens bytes each; 0: none
  std::optional<std::uint64_t>
    seed{};                  ///< secret of the look-ups' hashes; drawn where it is not given
  Storage storage{};         ///< the caller's memory for the pages; empty: the cache's own
  Device* device = nullptr;  ///< null: the host; else it outlives the cache
  typename Policy::prefix::Options prefix{};
  typename Policy::replacement::Options replacement{};
};

}  // namespace kvcache::inline v0_1
