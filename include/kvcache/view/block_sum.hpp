// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cstddef>
#include <cstdint>

/// \file The running sum over the threads of a block.

namespace kvcache::inline v0_1 {

/// What a thread knows after a sum over its block.
struct BlockSum {
  std::int32_t before;  ///< of the threads before this one
  std::int32_t total;   ///< of all

  /// Words of shared memory that a sum needs: one a warp.
  static constexpr std::size_t scratch_words = 32;
};

/// Sums `mine` over the block. All threads call it; `scratch` is free again when it returns. Scan by doubling steps inside
/// warps (Hillis and Steele, 1986), then over the sums of warps. **Cost** five shuffles, a load a warp, two barriers.
template <ThreadBlock B>
[[nodiscard]] KVCACHE_HOST_DEVICE BlockSum block_sum(B& block,
                                                     std::int32_t mine,
                                                     std::int32_t* scratch)
{
  auto& warp = block.warp();
  std::int32_t up_to_mine = mine;
  for (std::int32_t by = 1; by < warp_lanes; by *= 2) {
    std::int32_t const lower = warp.shuffle_up(up_to_mine, by, all_lanes);
    up_to_mine += warp.lane() >= by ? lower : 0;
  }
  if (warp.lane() == warp_lanes - 1) {
    scratch[warp.index()] = up_to_mine;
  }
  block.sync();
  BlockSum sum{up_to_mine - mine, 0};
  for (std::int32_t w = 0; w < block.threads() / warp_lanes; ++w) {
    sum.before += w < warp.index() ? scratch[w] : 0;
    sum.total += scratch[w];
  }
  block.sync();
  return sum;
}

}  // namespace kvcache::inline v0_1
