// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/named_span.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file What control keeps of one sequence.

namespace kvcache::inline v0_1 {

/// What a caller may read of a sequence.
struct SequenceInfo {
  Index length = 0;   ///< committed rows
  Index planned = 0;  ///< rows if all that is in flight is accepted
  Index cached = 0;   ///< rows that came from the tree when it was opened, or resumed last
  PageCount pages = 0;
  RowId row{};  ///< of the page table
  bool suspended = false;
  Miss miss = Miss::none;
  std::uint32_t suspensions = 0;  ///< how often it was preempted
  Index lost = 0;                 ///< rows that were gone when it came back, over all times
};

/// A sequence that a failed step cut back: what lies beyond `length` must be computed again.
struct Cut {
  SequenceId sequence;
  Index length;
  friend bool operator==(Cut const&, Cut const&) = default;
};

namespace detail {

struct StepState;

/// A chunk of a step that has not retired.
struct Flight {
  StepState* step = nullptr;
  std::uint32_t chunk = 0;
};

/// Pages, tokens and stage of one sequence; lives in a slot that is used again.
struct alignas(64) SequenceState {
  static constexpr std::uint32_t max_flights =
    3;  // two steps in flight and one that is being built

  // One cache line of what each step touches ...
  std::uint32_t generation = 0;  // even: the slot is empty
  bool suspended = false;        // tokens are kept, pages and row are not
  std::uint8_t num_flights = 0;
  RowId row{};
  StreamId stream{};      // the steps that it depends on are of this stream ...
  StepId bound_until{};   // ... until this one retires
  StepId last_added{};    // the step of the stream that took its last chunk
  PageCount indexed = 0;  // leading pages that are in the tree, as whole pages of this sequence
  PageCount synced = 0;   // leading table entries that the pools hold
  List<Token> tokens;     // committed or attached: their number is the length
  // ... and a second one.
  List<PageId> table;
  Flight flights[max_flights]{};  // oldest first
  List<Index> strays;  // of the last rows: the rows where their bytes lie until a plan moves them
  List<NamedSpan> media;  // declared, in order; the rows may be yet to come
  DomainId domain{};
  std::uint32_t domain_generation = 0;  // of the domain when it was opened or resumed
  Index cached = 0;
  Index attach_limit = 0;  // rows beyond this are always computed
  Miss miss = Miss::none;
  Index max_tokens = 0;  // that it may grow to; 0: nobody knows
  std::uint32_t suspensions = 0;
  Index lost = 0;                         // rows that were gone when it came back
  StepId added_elsewhere[max_streams]{};  // as `last_added`, of the other streams

  /// From now on its steps are of stream `next`.
  void follow(StreamId next) noexcept
  {
    if (next != stream) {
      added_elsewhere[stream.value] = last_added;
      stream = next;
      last_added = added_elsewhere[next.value];
    }
  }
  /// The newest step of stream `of` that took a chunk.
  [[nodiscard]] StepId added_to(StreamId of) const noexcept
  {
    return of == stream ? last_added : added_elsewhere[of.value];
  }
  void forget_steps() noexcept
  {
    last_added = {};
    for (StepId& step : added_elsewhere) {
      step = {};
    }
  }
  [[nodiscard]] bool live() const noexcept { return generation % 2 != 0; }
  [[nodiscard]] Index length() const noexcept { return static_cast<Index>(tokens.size()); }
  /// Leading rows whose bytes are where they belong.
  [[nodiscard]] Index in_place() const noexcept
  {
    return length() - static_cast<Index>(strays.size());
  }
  [[nodiscard]] std::span<Flight const> in_flight() const noexcept
  {
    return {flights, num_flights};
  }
};

}  // namespace detail
}  // namespace kvcache::inline v0_1
