// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/bits.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <type_traits>

/// \file The rows between a token of a tree and the chunk's first: which belong to other branches.
///
///   chunk   a           rows   .. prefix .. | a b c d e |      e's mask 1 0 0 1 1 (a, d, e)
///          / \                                ^first           hidden   0 1 1 0 0 (b, c)
///         b   d
///         |   |
///         c   e
///
/// Rows before the chunk are seen by all its tokens, and a chunk has at most 64, so one word says it all.

namespace kvcache::inline v0_1 {

/// The rows before its own that a token must not see. None for a token that is in no tree.
struct HiddenRows {
  Index first = 0;         ///< the row, counted in the sequence, that bit 0 stands for
  std::uint64_t bits = 0;  ///< bit i: row `first + i` is hidden; no bit from the token's own row on

  /// From the mask of a tree token: bit i says that it sees the i-th of its chunk, the highest is itself.
  /// **Pre** `mask != 0`; `index` is the token's own row.
  [[nodiscard]] static KVCACHE_HOST_DEVICE constexpr HiddenRows of(Index index, std::uint64_t mask)
  {
    std::int32_t const own = highest_bit(mask);
    std::uint64_t const up_to_own =
      (std::uint64_t{1} << own << 1) - 1;  // two shifts: 64 is too far for one
    return {index - own, mask ^ up_to_own};
  }

  [[nodiscard]] KVCACHE_HOST_DEVICE constexpr bool any() const { return bits != 0; }
  /// Whether row `row` of the sequence is hidden.
  [[nodiscard]] KVCACHE_HOST_DEVICE constexpr bool at(Index row) const
  {
    Index const i = row - first;
    return i >= 0 && i < 64 && (bits >> i & 1) != 0;
  }
  /// Bit i: row `row + i` is hidden, for the 64 rows from `row` on; what a kernel masks a block with.
  [[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::uint64_t from(Index row) const
  {
    Index const ahead = first - row;
    if (ahead >= 0) {
      return ahead < 64 ? bits << ahead : 0;
    }
    return ahead > -64 ? bits >> -ahead : 0;
  }
};

static_assert(std::is_trivially_copyable_v<HiddenRows> && std::is_standard_layout_v<HiddenRows>);
static_assert(HiddenRows::of(9, 0b11001).bits == 0b00110 && HiddenRows::of(9, 0b11001).first == 5);

}  // namespace kvcache::inline v0_1
