// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/fenced_spans.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/zero_array.hpp>
#include <kvcache/prefix/match.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// \file Pages that the sequences which run may yet take for copies of part pages, and what a request takes from those that could
/// be evicted.
///
/// n sequences that go on in one page may make n copies, and while the last step of these is in flight all n and the page
/// are in use. Only where nobody reads the page for good - the index, a sequence that has it whole or has grown to its
/// end, a pin - and each of them begins behind the rows that the others copy, the last one writes in place.

namespace kvcache::inline v0_1::detail {

/// Where the next rows of a sequence begin: `rows` of `page` come before them, or more, up to `planned`, if drafts are accepted.
struct NextRows {
  PageId page = zero_page;  // zero_page: it has none yet, or must not grow
  Index rows = 0;
  Index planned = 0;
};

template <class State>
[[nodiscard]] NextRows next_rows(State const& state, SequenceState const& s) noexcept
{
  Index const end = state.planned_end(s);
  Index low = end;
  for (Flight const& flight : s.in_flight()) {
    ChunkState const& c = state.chunk_of(flight);
    low -= c.draft ? c.tokens : 0;
  }
  Index const p = state.options.page_tokens;
  auto const at = static_cast<std::size_t>(low / p);
  if (s.suspended || low >= s.max_tokens || at >= s.table.size()) {
    return {};
  }
  Index const first = static_cast<Index>(at) * p;
  Index planned = std::min(end - first, p);
  if (end >= s.max_tokens) {  // it goes on only where drafts are refused
    planned = std::min(planned, std::min(p, s.max_tokens - first) - 1);
  }
  return {.page = s.table[at], .rows = low - first, .planned = planned};
}

/// See the file comment; they are made by steps of `stream`. Without memory it counts a copy for each that goes on in a page with
/// another holder. **Cost** O(sequences + chunks in flight).
template <class State>
[[nodiscard]] std::uint64_t copies_of_growth(State const& state, StreamId stream) noexcept
{
  auto const& book = state.book;
  std::uint64_t copies = 0;
  auto const for_each_writer = [&](auto&& visit) {
    for (std::uint32_t const slot : state.open_slots) {
      SequenceState const& s = state.sequences[slot];
      if (NextRows const next = next_rows(state, s); next.page != zero_page) {
        visit(next,
              book.fences().blocks(next.page, stream) ||
                (state.in_flight(s.bound_until) && book.fences().blocks(next.page, s.stream)));
      }
    }
  };
  bool shared = false;  // by what may leave it; mostly nobody shares a part page
  for_each_writer([&](NextRows const& next, bool blocked) {
    bool const others = book.allocator().count(next.page) > 1;
    copies += blocked || others ? 1U : 0U;
    shared = shared || (others && !blocked && !book.tree().contains(next.page));
  });
  if (!shared) {
    return copies;
  }
  struct Readers {
    std::uint32_t writers, copying;
    Index copied;   // the most rows that are
    Index planned;  // the most that a writer may have
    Index fewest;   // the fewest that one has
  };
  (void)memory_sufficed_for([&] {
    ZeroArray<Readers> readers(std::size_t{state.options.pages} + 1);
    for_each_writer([&](NextRows const& next, bool) {
      Readers& r = readers[next.page.value];
      r.fewest = r.writers == 0 ? next.rows : std::min(r.fewest, next.rows);
      r.planned = std::max(r.planned, next.planned);
      r.writers += 1;
    });
    for (StepState const& step : state.steps) {
      for (ChunkState const& c : step.chunks) {
        Readers& r = readers[c.copy_source.value];
        r.copying += 1;
        r.copied = std::max(r.copied, c.copy_rows);
      }
    }
    for_each_writer([&](NextRows const& next, bool blocked) {
      Readers& r = readers[next.page.value];
      bool const last = r.writers + r.copying == book.allocator().count(next.page) &&
                        r.writers + r.copying > 1 && r.copied <= r.fewest &&
                        (r.writers == 1 || r.planned <= r.fewest) && !blocked;
      copies -= last ? 1U : 0U;
      r.writers = last ? 0 : r.writers;  // of all that write it, one
    });
  });
  return copies;
}

/// Pages of a match that nobody uses and a step of `stream` could have evicted: whoever takes the match makes these fewer.
struct Claim {
  PageCount whole = 0;
  PageCount part = 0;  ///< 1 if the part page is one
};

/// `stuck` is what `evictable` of the stream noted. **Cost** O(spans).
template <class State>
[[nodiscard]] Claim claim_of(State const& state,
                             Match const& match,
                             StreamId stream,
                             List<bool> const& stuck) noexcept
{
  auto const& book = state.book;
  auto const& tree = book.tree();
  FencedSpans const& fenced = book.fenced();
  auto const leaves = [&](SpanId span) {
    bool const stays = fenced.contains(span) && (fenced.list_of(span) != stream.value ||
                                                 (span.value < stuck.size() && stuck[span.value]));
    return !stays && book.allocator().count(tree.last_page(span)) == 1;
  };
  Claim claim;
  PageCount pages = match.span_pages;
  for (SpanId span = match.span; span.value != nil;) {
    claim.whole += leaves(span) ? pages : 0;
    span = tree.parent(span);
    pages = span.value != nil ? tree.size(span) : 0;
  }
  claim.part = match.partial_rows > 0 && leaves(tree.span_of(match.partial_page)) ? 1 : 0;
  return claim;
}

}  // namespace kvcache::inline v0_1::detail
