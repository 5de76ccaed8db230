// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/zero_array.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstddef>
#include <cstdint>

/// \file Pages that the sequences which run may yet take for copies of part pages.
///
/// n of them that go on in one page make n copies where somebody reads the page for good: a sequence that has it whole, or
/// that has grown to its end, a pin, a step. Else the last one writes in place: nobody but the tree has the page then,
/// and it leaves the index where there is none for a copy. A page that only copies in flight read is written behind the rows
/// that they copy.

namespace kvcache::inline v0_1::detail {

/// The page that the sequence's next rows begin in, if it has it and may grow.
template <class State>
[[nodiscard]] PageId page_to_write(State const& state, SequenceState const& s) noexcept
{
  Index low = state.planned_end(s);
  for (Flight const& flight : s.in_flight()) {
    ChunkState const& c = state.chunk_of(flight);
    low -= c.draft ? c.tokens : 0;
  }
  auto const at = static_cast<std::size_t>(low / state.options.page_tokens);
  return !s.suspended && low < s.max_tokens && at < s.table.size() ? s.table[at] : zero_page;
}

/// See the file comment; `match` is what a request would hold beside them. Without memory it counts a copy for each that goes on
/// in a page with another holder. **Cost** O(sequences + chunks in flight + pages of the match).
template <class State>
[[nodiscard]] std::uint64_t copies_of_growth(State const& state, Match const& match) noexcept
{
  auto const& book = state.book;
  std::uint64_t copies = 0;
  auto const for_each_writer = [&](auto&& visit) {
    for (std::uint32_t const slot : state.open_slots) {
      SequenceState const& s = state.sequences[slot];
      if (PageId const page = page_to_write(state, s); page != zero_page) {
        visit(s, page);
      }
    }
  };
  bool shared = false;  // mostly nobody shares a part page
  for_each_writer([&](SequenceState const& s, PageId page) {
    bool const others = book.allocator().count(page) > 1 || book.fences().blocks(page, s.stream);
    copies += others ? 1U : 0U;
    shared = shared || others;
  });
  if (!shared) {
    return 0;
  }
  (void)memory_sufficed_for([&] {
    ZeroArray<std::uint32_t> left(std::size_t{state.options.pages} + 1);  // that write the page
    ZeroArray<std::uint32_t> spared(std::size_t{state.options.pages} +
                                    1);                           // holds that do not last
    ZeroArray<bool> taken(std::size_t{state.options.pages} + 1);  // the request has it whole
    List<PageId> pages;
    pages.resize(static_cast<std::size_t>(match.full_pages));
    if (match.full_pages > 0) {
      book.tree().copy_pages(match, pages.data());
    }
    for (PageId const page : pages) {
      taken[page.value] = true;
    }
    for (StepState const& step : state.steps) {
      for (ChunkState const& c : step.chunks) {
        spared[c.copy_source.value] += 1;
      }
    }
    for_each_writer([&](SequenceState const&, PageId page) { left[page.value] += 1; });
    for_each_writer([&](SequenceState const& s, PageId page) {
      bool const indexed = book.tree().contains(page);
      std::uint32_t const passing = left[page.value] + spared[page.value] + (indexed ? 1U : 0U);
      bool const last = book.allocator().count(page) <= passing && !taken[page.value] &&
                        !(indexed && book.pending(page)) && !book.fences().blocks(page, s.stream);
      if (last && !(left[page.value] == 1 && book.allocator().count(page) == 1)) {
        copies -= 1;  // of all that write it, one
        taken[page.value] = true;
      }
    });
  });
  return copies;
}

}  // namespace kvcache::inline v0_1::detail
