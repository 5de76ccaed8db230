// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/fragment.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/device/launch_lists.hpp>
#include <kvcache/device/list_shares.hpp>

#include <cstddef>
#include <cstdint>

/// \file Three of the launches of a plan as kernels; `move_rows_kernel.hpp` has the one that keeps an order.
///
/// Each is told the cell of its slot and nothing else, and runs on any grid, so a graph that captured a launch may run it
/// again for any plan. What they read and write is what `HostDevice` does, byte for byte.
/// **Shape** blocks of whole warps; no shared memory. **Pre** the cell holds a block of `LaunchLists`.

namespace kvcache::inline v0_1 {

namespace detail {

/// The records of one list of the block.
template <class Record>
KVCACHE_HOST_DEVICE Record const* records_of(std::byte const* block, LaunchList const& list)
{
  return reinterpret_cast<Record const*>(block + list.at);
}
[[nodiscard]] KVCACHE_HOST_DEVICE inline LaunchLists const& lists_of(std::byte const* block)
{
  return *reinterpret_cast<LaunchLists const*>(block);
}

/// A strided copy in shares of at most 4 KiB: parts of a large piece, or several whole small ones.
struct CopyShares {
  static constexpr std::uint32_t fragments = 256;  // of a share: eight for each lane

  std::uint32_t in_piece;   // fragments
  std::uint32_t per_piece;  // shares of a large piece
  std::uint32_t pieces;     // of a share of small ones
  std::uint32_t num_shares;

  KVCACHE_HOST_DEVICE explicit CopyShares(StridedCopy const& copy)
      : in_piece(static_cast<std::uint32_t>(copy.bytes / sizeof(Fragment))),
        per_piece((in_piece + fragments - 1) / fragments),
        pieces(per_piece == 1 ? fragments / in_piece : 1),
        num_shares((copy.blocks + pieces - 1) / pieces * per_piece)
  {
  }
};

}  // namespace detail

/// Runs `LaunchLists::words`: each word is one store, coalesced. Shares of 256 words.
struct WriteWordsKernel {
  static constexpr std::int32_t max_threads = 256;

  LaunchCell cell;

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    constexpr std::uint64_t share_words = 256;
    std::byte const* const bytes = *cell;
    LaunchList const& list = detail::lists_of(bytes).words;
    auto const lane = static_cast<std::uint64_t>(block.warp().lane());
    detail::for_each_share(
      block,
      detail::records_of<WordRun>(bytes, list),
      list.count,
      [](WordRun const& run) { return (run.words + share_words - 1) / share_words; },
      [=](WordRun const& run, std::uint64_t share) {
        auto const* const source = reinterpret_cast<std::int32_t const*>(bytes + run.source_at);
        std::uint64_t const end =
          run.words < (share + 1) * share_words ? run.words : (share + 1) * share_words;
        for (std::uint64_t i = share * share_words + lane; i < end; i += warp_lanes) {
          run.target[i] = source[i];
        }
      });
  }
};

/// Runs `LaunchLists::copies` in loads and stores of 16 bytes, four of each in flight a lane: the pages of all layers and
/// heads in one launch.
struct CopyPagesKernel {
  static constexpr std::int32_t max_threads = 256;

  LaunchCell cell;

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    std::byte const* const bytes = *cell;
    LaunchList const& list = detail::lists_of(bytes).copies;
    auto const lane = static_cast<std::uint32_t>(block.warp().lane());
    detail::for_each_share(
      block,
      detail::records_of<StridedCopy>(bytes, list),
      list.count,
      [](StridedCopy const& copy) { return std::uint64_t{detail::CopyShares(copy).num_shares}; },
      [=](StridedCopy const& copy, std::uint64_t share) { copy_share(copy, share, lane); });
  }

 private:
  KVCACHE_HOST_DEVICE static void copy_share(StridedCopy const& copy,
                                             std::uint64_t share,
                                             std::uint32_t lane)
  {
    using detail::CopyShares;
    using detail::Fragment;
    CopyShares const cut(copy);
    bool const large = cut.per_piece > 1;
    auto const number = static_cast<std::uint32_t>(share);
    std::uint32_t const piece = large ? number / cut.per_piece : number * cut.pieces;  // the first
    std::uint32_t const inside = large ? number % cut.per_piece * CopyShares::fragments : 0;
    std::uint32_t const left = copy.blocks - piece < cut.pieces ? copy.blocks - piece : cut.pieces;
    std::uint32_t const of_piece = cut.in_piece - inside;
    std::uint32_t const width = of_piece < CopyShares::fragments ? of_piece : CopyShares::fragments;
    std::uint32_t const count = left * width;
    std::uint64_t const at = piece * copy.stride + std::uint64_t{inside} * sizeof(Fragment);
    std::byte const* const source = copy.source + at;
    std::byte* const target = copy.target + at;
    std::uint64_t const stride = copy.stride;
    constexpr std::uint32_t in_flight = 4;
    for (std::uint32_t first = lane; first < count; first += in_flight * warp_lanes) {
      Fragment held[in_flight];
      std::uint64_t place[in_flight];
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        std::uint32_t const f = first + i * warp_lanes;
        place[i] = f / width * stride + std::uint64_t{f % width} * sizeof(Fragment);
        if (f < count) {
          held[i] = *reinterpret_cast<Fragment const*>(source + place[i]);
        }
      }
      for (std::uint32_t i = 0; i < in_flight; ++i) {
        if (first + i * warp_lanes < count) {
          *reinterpret_cast<Fragment*>(target + place[i]) = held[i];
        }
      }
    }
  }
};

/// Runs `LaunchLists::runs`, one warp a run.
struct CountUpKernel {
  static constexpr std::int32_t max_threads = 256;

  LaunchCell cell;

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    std::byte const* const bytes = *cell;
    LaunchList const& list = detail::lists_of(bytes).runs;
    auto& warp = block.warp();
    detail::for_each_share(
      block,
      detail::records_of<IndexRun>(bytes, list),
      list.count,
      [](IndexRun const&) { return std::uint64_t{1}; },
      [&warp](IndexRun const& run, std::uint64_t) {
        std::int32_t const least = run.first - run.slack;
        // One lane reads and writes it: the others do not see it change under them.
        std::int32_t const length = warp.shuffle(warp.lane() == 0 ? *run.length : 0, 0, all_lanes);
        std::int32_t const start = length < least ? least : length > run.first ? run.first : length;
        for (std::int32_t k = warp.lane(); k < run.count; k += warp_lanes) {
          run.target[k] = start + k;
        }
        if (warp.lane() == 0) {
          *run.length = start + run.count;
        }
      });
  }
};

}  // namespace kvcache::inline v0_1
