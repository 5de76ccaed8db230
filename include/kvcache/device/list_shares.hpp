// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/bits.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cstdint>

/// \file A list of records of any sizes, dealt out to a grid whose size does not depend on it.
///
/// A record is so many shares of about equal work. The shares of all records, in the order of the list, go to the warps of
/// the grid in turn: no warp has two more than another, whether one record holds all the work or a thousand do.
///
/// Method: every warp reads the whole list, 32 records at a time, and finds its own shares by a prefix sum over the lanes.
/// Nothing is communicated between warps. **Cost** O(records / 32 + shares / warps) a warp.

namespace kvcache::inline v0_1::detail {

/// The warps of a grid, numbered through.
struct GridWarps {
  std::uint64_t rank;
  std::uint64_t size;

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE static GridWarps of(B& block)
  {
    auto const in_block = static_cast<std::uint64_t>(block.threads() / warp_lanes);
    return {static_cast<std::uint64_t>(block.index()) * in_block +
              static_cast<std::uint64_t>(block.warp().index()),
            static_cast<std::uint64_t>(block.blocks()) * in_block};
  }
};

/// Calls `work(record, share)` for this warp's shares; `shares(record)` says how many a record has. All lanes of the warp
/// call this together, and are together in `work`.
template <ThreadBlock B, class Record, class Shares, class Work>
KVCACHE_HOST_DEVICE void for_each_share(
  B& block, Record const* records, std::uint64_t count, Shares const& shares, Work const& work)
{
  auto& warp = block.warp();
  GridWarps const warps = GridWarps::of(block);
  auto const lane = static_cast<std::uint64_t>(warp.lane());
  std::uint64_t mine = warps.rank;  // the share that this warp does next
  std::uint64_t before = 0;         // shares of the records that were passed
  for (std::uint64_t first = 0; first < count; first += warp_lanes) {
    std::uint64_t const own = first + lane < count ? shares(records[first + lane]) : 0;
    std::uint64_t end = own;  // of this lane's record, counted from the first of the 32
    for (std::int32_t by = 1; by < warp_lanes; by *= 2) {
      std::uint64_t const left = warp.shuffle_up(end, by, all_lanes);
      end += warp.lane() >= by ? left : 0;
    }
    std::uint64_t const all = warp.shuffle(end, warp_lanes - 1, all_lanes);
    for (; mine < before + all; mine += warps.size) {
      std::int32_t const owner = count_bits(warp.ballot(before + end <= mine, all_lanes));
      std::uint64_t const begin = before + warp.shuffle(end - own, owner, all_lanes);
      work(records[first + static_cast<std::uint64_t>(owner)], mine - begin);
    }
    before += all;
  }
}

}  // namespace kvcache::inline v0_1::detail
