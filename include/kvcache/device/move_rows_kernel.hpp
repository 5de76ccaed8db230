// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/fragment.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/device/launch_lists.hpp>
#include <kvcache/device/list_shares.hpp>
#include <kvcache/device/plan_kernels.hpp>

#include <cstddef>
#include <cstdint>

/// \file The launch of a plan that keeps an order: rows move inside and between pages, where one move may read what the one
/// before wrote.
///
/// The pieces of one number belong to one warp, which goes through the list 32 records at a time. Most do not meet: of the 32
/// it does as many at once as it can, up to the first that touches what another of them touches, then goes on from there.
///
/// **Cost** of a warp: O(records) for each of its piece numbers, and the bytes. A list in which each record waits for the one
/// before costs a trip to memory a record. No shared memory.

namespace kvcache::inline v0_1 {

/// Runs `LaunchLists::moves`.
struct MoveRowsKernel {
  static constexpr std::int32_t max_threads = 256;

  LaunchCell cell;

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    std::byte const* const bytes = *cell;
    LaunchList const& list = detail::lists_of(bytes).moves;
    auto const* const records = detail::records_of<StridedCopy>(bytes, list);
    auto& warp = block.warp();
    auto const lane = static_cast<std::uint64_t>(warp.lane());
    detail::GridWarps const warps = detail::GridWarps::of(block);
    std::uint64_t piece = warps.rank;
    bool some = false;  // records have a piece of this number
    // One loop, not two: sm_100 spills what keeps track of a warp in one more.
    for (std::uint64_t first = 0; first < list.count;) {
      Move move{nullptr, nullptr, 0};
      if (first + lane < list.count) {
        StridedCopy const& record = records[first + lane];
        if (piece < record.blocks) {
          move = {record.source + piece * record.stride,
                  record.target + piece * record.stride,
                  record.bytes};
        }
      }
      if (warp.any(move.bytes != 0, all_lanes)) {
        some = true;
        run(warp, move);
      }
      first += warp_lanes;
      if (first >= list.count && some) {
        some = false;
        first = 0;
        piece += warps.size;
      }
    }
  }

 private:
  /// One piece of one record.
  struct Move {
    std::byte const* source;
    std::byte* target;
    std::uint64_t bytes;
  };

  KVCACHE_HOST_DEVICE static bool overlap(std::byte const* a,
                                          std::uint64_t a_bytes,
                                          std::byte const* b,
                                          std::uint64_t b_bytes)
  {
    return a_bytes != 0 && b_bytes != 0 && a < b + b_bytes && b < a + a_bytes;
  }

  /// The last lane before this one whose move must be done before this lane's, or -1.
  template <ThreadWarp W>
  KVCACHE_HOST_DEVICE static std::int32_t waits_for(W& warp, Move const& move)
  {
    std::int32_t last = -1;
    for (std::int32_t other = 0; other < warp_lanes - 1; ++other) {
      Move const before{warp.shuffle(move.source, other, all_lanes),
                        warp.shuffle(move.target, other, all_lanes),
                        warp.shuffle(move.bytes, other, all_lanes)};
      bool const meet = overlap(move.source, move.bytes, before.target, before.bytes) ||
                        overlap(move.target, move.bytes, before.target, before.bytes) ||
                        overlap(move.target, move.bytes, before.source, before.bytes);
      last = meet && other < warp.lane() ? other : last;
    }
    return last;
  }

  /// The moves of all lanes, in the order of the lanes.
  template <ThreadWarp W>
  KVCACHE_HOST_DEVICE static void run(W& warp, Move const& move)
  {
    std::int32_t const last = waits_for(warp, move);
    for (std::int32_t begin = 0; begin < warp_lanes;) {
      std::uint32_t const wait = warp.ballot(last >= begin, all_lanes);
      std::int32_t const end = wait == 0 ? warp_lanes : count_bits(~wait & (wait - 1));
      copy(warp, move, begin, end);
      warp.sync();
      begin = end;
    }
  }

  /// The moves of lanes `begin` to `end - 1`, of which none touches what another does.
  template <ThreadWarp W>
  KVCACHE_HOST_DEVICE static void copy(W& warp,
                                       Move const& move,
                                       std::int32_t begin,
                                       std::int32_t end)
  {
    using detail::Fragment;
    bool const in = warp.lane() >= begin && warp.lane() < end;
    auto width =
      in ? static_cast<std::uint32_t>(move.bytes / sizeof(Fragment)) : 0U;  // of the longest
    for (std::int32_t with = 1; with < warp_lanes; with *= 2) {
      std::uint32_t const other = warp.shuffle_xor(width, with, all_lanes);
      width = other > width ? other : width;
    }
    auto const lane = static_cast<std::uint32_t>(warp.lane());
    auto const moves = static_cast<std::uint32_t>(end - begin);
    constexpr std::uint32_t in_flight = 2;  // four spill on sm_100
    for (std::uint32_t first = 0; first < moves * width; first += in_flight * warp_lanes) {
      Fragment held[in_flight];
      std::byte* to[in_flight];
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        std::uint32_t const f = first + i * warp_lanes + lane;
        std::uint32_t const one = f / width;  // of the moves
        std::uint64_t const inside = f % width * sizeof(Fragment);
        std::int32_t const owner = one < moves ? begin + static_cast<std::int32_t>(one) : begin;
        std::byte const* const source = warp.shuffle(move.source, owner, all_lanes) + inside;
        std::byte* const target = warp.shuffle(move.target, owner, all_lanes) + inside;
        std::uint64_t const bytes = warp.shuffle(move.bytes, owner, all_lanes);
        to[i] = one < moves && inside < bytes ? target : nullptr;
        if (to[i] != nullptr) {
          held[i] = *reinterpret_cast<Fragment const*>(source);
        }
      }
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        if (to[i] != nullptr) {
          *reinterpret_cast<Fragment*>(to[i]) = held[i];
        }
      }
    }
  }
};

}  // namespace kvcache::inline v0_1
