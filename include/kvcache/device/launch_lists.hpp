// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// \file What the launches of a device read: lists in device memory, all in one block that one upload brought.
///
///   cell  ->  block [ head | word runs | moves | copies | index runs | words ... ]
///                      \______ where each list lies, and how long it is
///
/// A launch takes the address of the cell and nothing else. The cell stays where it is while blocks grow and lists
/// change, so a graph that captured the launches may run again for any plan.

namespace kvcache::inline v0_1 {

/// Words of the block, from byte `source_at` of it, go to `target`: table entries, and the arrays of a step.
struct WordRun {
  std::int32_t* target;
  std::uint64_t source_at;
  std::uint64_t words;
};

/// `blocks` pieces of `bytes`: piece i goes from `source + i * stride` to `target + i * stride`.
/// **Pre** addresses, `bytes` and `stride` are multiples of 16, as rows are; a piece has less than 2 GiB, a record less than 16 TiB.
struct StridedCopy {
  std::byte const* source;
  std::byte* target;
  std::uint64_t bytes;
  std::uint64_t stride;
  std::uint32_t blocks;
};

/// The places of a chunk's tokens, of which only the device may know where they begin: `count` numbers go to `target`,
/// from `*length` on, but from no less than `first - slack` and no more than `first`. The number behind them goes to
/// `*length`.
struct IndexRun {
  std::int32_t* length;
  std::int32_t* target;
  std::int32_t first;
  std::int32_t slack;
  std::int32_t count;
};

/// A list of a block: `count` records, from byte `at` of it.
struct LaunchList {
  std::uint64_t at = 0;
  std::uint64_t count = 0;
};

/// The first bytes of a block.
struct LaunchLists {
  LaunchList words;   ///< of `WordRun`
  LaunchList moves;   ///< of `StridedCopy`
  LaunchList copies;  ///< of `StridedCopy`
  LaunchList runs;    ///< of `IndexRun`
};

/// A place in device memory that holds the address of a block.
using LaunchCell = std::byte* const*;

}  // namespace kvcache::inline v0_1
