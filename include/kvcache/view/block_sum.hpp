// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cstddef>
#include <cstdint>

/// \file The running sum over the threads of a block.

namespace kvcache::inline v0_1 {

/// What a thread knows after a sum over its block. `T` is an integer of 4 or 8 bytes.
template <class T>
struct BlockSum {
  T before;  ///< of the threads before this one
  T total;   ///< of all
};

/// Places of shared memory that a sum needs in a block of so many threads: one a warp.
KVCACHE_HOST_DEVICE constexpr std::size_t block_sum_places(std::int32_t threads)
{
  return static_cast<std::size_t>(threads / warp_lanes);
}

/// Sums `mine` over the block. All threads call it; `scratch` is free again when it returns. Scan by doubling steps inside
/// warps (Hillis and Steele, 1986), then over the sums of warps. **Cost** five shuffles, a load a warp, two barriers.
template <ThreadBlock B, class T>
[[nodiscard]] KVCACHE_HOST_DEVICE BlockSum<T> block_sum(B& block, T mine, T* scratch)
{
  auto& warp = block.warp();
  T up_to_mine = mine;
  for (std::int32_t by = 1; by < warp_lanes; by *= 2) {
    T const lower = warp.shuffle_up(up_to_mine, by, all_lanes);
    up_to_mine += warp.lane() >= by ? lower : 0;
  }
  if (warp.lane() == warp_lanes - 1) {
    scratch[warp.index()] = up_to_mine;
  }
  block.sync();
  BlockSum<T> sum{up_to_mine - mine, 0};
  for (std::int32_t w = 0; w < block.threads() / warp_lanes; ++w) {
    sum.before += w < warp.index() ? scratch[w] : 0;
    sum.total += scratch[w];
  }
  block.sync();
  return sum;
}

}  // namespace kvcache::inline v0_1
