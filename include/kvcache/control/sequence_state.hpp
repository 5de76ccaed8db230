// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// \file What control keeps of one sequence.

namespace kvcache::inline v0_1 {

/// What a caller may read of a sequence.
struct SequenceInfo {
  Index length = 0;  ///< committed rows
  Index cached = 0;  ///< rows that came from the tree when it was opened
  PageCount pages = 0;
  RowId row{};  ///< of the page table
  Miss miss = Miss::none;
};

namespace detail {

/// Pages, tokens and stage of one sequence; lives in a slot that is used again.
struct SequenceState {
  std::uint32_t generation = 0;    // even: the slot is empty
  std::uint32_t step_chunk = nil;  // its chunk in the step in flight, nil: in none
  DomainId domain{};
  std::uint32_t domain_generation = 0;  // of the domain when it was opened
  RowId row{};
  Index cached = 0;
  Miss miss = Miss::none;
  PageCount indexed = 0;      // leading pages that are in the tree, as whole pages of this sequence
  PageCount synced = 0;       // leading table entries that the pools hold
  std::vector<Token> tokens;  // committed: their number is the length
  std::vector<PageId> table;

  [[nodiscard]] bool live() const noexcept { return generation % 2 != 0; }
  [[nodiscard]] Index length() const noexcept { return static_cast<Index>(tokens.size()); }
};

}  // namespace detail
}  // namespace kvcache::inline v0_1
