// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstddef>
#include <cstdint>

/// \file Figures for operators, and the verdict of a self-check.

namespace kvcache::inline v0_1 {

/// How many values `Miss` has.
inline constexpr std::size_t num_misses = static_cast<std::size_t>(Miss::partial) + 1;

/// The state of the pages now, and counters since the start.
struct Stats {
  // pages: free + held + cached == capacity
  PageCount capacity = 0;
  PageCount free = 0;
  PageCount held = 0;  ///< in the table of a sequence, or used by a step
  PageCount cached =
    0;  ///< only the prefix tree holds them: evictable, once no step in flight needs them
  PageCount fenced = 0;  ///< of the held ones: no sequence uses them, they wait for steps in flight

  std::uint32_t sequences = 0;
  std::uint32_t tree_spans = 0;
  std::uint64_t index_bytes = 0;

  std::uint64_t prompt_tokens = 0;     ///< tokens of all prompts opened
  std::uint64_t hit_tokens = 0;        ///< of these, rows that came from the tree
  std::uint64_t promised_tokens = 0;   ///< rows that prompts came with a promise for
  std::uint64_t promised_hits = 0;     ///< of these, rows that were still there
  std::uint64_t suspensions = 0;       ///< sequences that were preempted, each time counted
  std::uint64_t lost_tokens = 0;       ///< rows of theirs that were gone when they came back
  std::uint64_t misses[num_misses]{};  ///< opens by `Miss`
  std::uint64_t planned_rows = 0;      ///< rows of submitted steps
  std::uint64_t committed_rows = 0;
  std::uint64_t attached_rows =
    0;  ///< rows that `add` found in the tree, of this step's or an earlier one's
  std::uint64_t evicted_pages = 0;
  std::uint64_t moved_rows = 0;    // rows of accepted tree paths that submitted plans move
  std::uint64_t copied_pages = 0;  ///< copies in submitted plans
  std::uint64_t merged_pages = 0;  ///< duplicates replaced by a cached page at commit
  std::uint64_t shortages = 0;

  friend bool operator==(Stats const&, Stats const&) = default;
};

/// What the steps of one stream keep from others.
struct StreamUse {
  std::uint32_t steps = 0;  ///< open or submitted
  StepId oldest{};          ///< of these; 0 where there is none
  std::uint64_t age = 0;    ///< steps that were begun, on any stream, since the oldest was
  PageCount waiting = 0;    ///< pages without a holder that wait for these steps
  PageCount held =
    0;  ///< holds that the steps have: pending pages, sources of copies, pages let go
};

/// What one domain has of the pool.
struct DomainUse {
  PageCount indexed = 0;  ///< pages in the tree
  PageCount tables = 0;  ///< entries in tables of its sequences; a page that two share counts twice
  PageCount pinned = 0;  ///< pages that pins of it hold
  std::uint32_t sequences = 0;
};

/// The verdict of `check_invariants`.
struct Report {
  char const* broken = nullptr;  ///< string literal: the invariant that does not hold
  std::uint32_t where = 0;       ///< page, sequence slot or span, as the sentence says
  [[nodiscard]] explicit operator bool() const noexcept { return broken == nullptr; }
};

}  // namespace kvcache::inline v0_1
