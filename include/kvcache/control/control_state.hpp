// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/evictable.hpp>
#include <kvcache/control/media_table.hpp>
#include <kvcache/control/named_span.hpp>
#include <kvcache/control/open_slots.hpp>
#include <kvcache/control/options.hpp>
#include <kvcache/control/page_book.hpp>
#include <kvcache/control/pins.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/spare_arrays.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/first_room.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/keyed_hash.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// \file The state of the control plane: sequences, steps in flight, pages.

namespace kvcache::inline v0_1::detail {

[[nodiscard]] constexpr PageCount smaller(PageCount a, PageCount b) noexcept
{
  return a < b ? a : b;
}

/// See the file comment. No call here checks its caller: `Control` does.
template <class Allocator, class Prefix, class Replacement>
struct ControlState {
  using Book = PageBook<Allocator, Prefix, Replacement>;
  using Stage = StepState::Stage;
  static constexpr std::uint32_t steps_per_stream = SequenceState::max_flights;

  ControlState(ControlOptions const& o,
               typename Prefix::Options prefix,
               typename Replacement::Options replacement)
      : options(o),
        book(o.page_tokens, o.pages, seeded(prefix, o), replacement, o.event_capacity),
        sequences(o.max_sequences),
        steps(std::size_t{max_streams} * steps_per_stream),
        open_slots(o.max_sequences),
        spares(o.max_sequences),
        media(MediaTable::most_names, MediaTable::fewest_items, secret_of(o.seed))
  {
    free_slots.reserve(o.max_sequences);
    free_rows.reserve(o.max_sequences);
    cuts.reserve(o.max_sequences);
    twins.reserve(first_room(o.pages));
    text.reserve(8 * first_room(static_cast<std::size_t>(o.max_step_tokens)));
    stuck.reserve(first_room(o.pages));
    for (StepState& step : steps) {
      step.rows.reserve(o.max_sequences);
    }
    for (std::uint32_t i = o.max_sequences; i-- > 0;) {
      free_slots.push_back(i);
      free_rows.push_back(RowId{i});
    }
  }

  /// The index's options with the secret of control, if it takes one and has none.
  [[nodiscard]] static typename Prefix::Options seeded(typename Prefix::Options prefix,
                                                       ControlOptions const& o)
  {
    if constexpr (requires { prefix.seed = prefix.seed ? prefix.seed : o.seed; }) {
      prefix.seed = prefix.seed ? prefix.seed : o.seed;
    }
    return prefix;
  }

  ControlOptions options;
  Book book;
  List<SequenceState> sequences;
  List<std::uint32_t> free_slots;  // the next one last
  List<RowId> free_rows;           // likewise
  List<StepState> steps;           // of stream s: [s * steps_per_stream, ...), oldest first
  Stats stats;                     // the counters; the rest is filled in on demand
  std::uint64_t next_step = 1;
  StepState* latest = nullptr;  // that was begun last: most calls ask for it
  List<Cut> cuts;  // sequences that a failed step cut back, until the next call that fails one
  List<PinState> pins;
  List<std::uint32_t> free_pins;  // places of `pins` without one, the next one last
  OpenSlots open_slots;
  SpareArrays spares;
  List<PageId> twins;  // of `publish` and `add`, kept to allocate nothing
  List<Token> text;    // of `add`, likewise
  MediaTable media;
  List<Token> named;         // of `open` and `add`, likewise: a text with names
  Chunk renamed;             // of `add`, likewise
  List<NamedSpan> declared;  // of `add`, likewise: what its sequence will have
  List<bool> stuck;          // of `evictable`, likewise

  [[nodiscard]] PageCount pages_of(std::size_t tokens) const noexcept
  {
    auto const p = static_cast<std::size_t>(options.page_tokens);
    return static_cast<PageCount>((tokens + p - 1) / p);
  }
  [[nodiscard]] PageCount pages_of(Index rows) const noexcept
  {
    auto const p = static_cast<std::uint32_t>(options.page_tokens);  // 32 bits divide faster
    return (static_cast<std::uint32_t>(rows) + p - 1) / p;
  }

  // ---- who is who

  [[nodiscard]] SequenceState* find(SequenceId id) noexcept
  {
    bool const known = id.slot < sequences.size() && id.generation % 2 != 0;
    return known && sequences[id.slot].generation == id.generation ? &sequences[id.slot] : nullptr;
  }
  [[nodiscard]] SequenceState const* find(SequenceId id) const noexcept
  {
    return const_cast<ControlState*>(this)->find(id);
  }
  [[nodiscard]] std::span<StepState> steps_of(StreamId stream) noexcept
  {
    return std::span(steps).subspan(std::size_t{stream.value} * steps_per_stream, steps_per_stream);
  }
  /// The oldest submitted step of `stream`, or null: beside one that is being built there is no other.
  [[nodiscard]] StepState* oldest_submitted(StreamId stream) noexcept
  {
    StepState* found = nullptr;
    for (StepState& t : steps_of(stream)) {
      found = t.stage == Stage::submitted && (found == nullptr || t.id < found->id) ? &t : found;
    }
    return found;
  }
  /// The step that is open or in flight under this id, or null.
  [[nodiscard]] StepState const* step_of(StepId id) const noexcept
  {
    if (latest != nullptr && latest->id == id && latest->stage != Stage::none) {
      return latest;
    }
    for (StepState const& step : steps) {
      if (step.stage != Stage::none && step.id == id) {
        return &step;
      }
    }
    return nullptr;
  }
  [[nodiscard]] StepState* step_of(StepId id) noexcept
  {
    return const_cast<StepState*>(std::as_const(*this).step_of(id));
  }
  [[nodiscard]] StepState* find(StepId id, Stage stage) noexcept
  {
    StepState* const step = step_of(id);
    return step != nullptr && step->stage == stage ? step : nullptr;
  }
  [[nodiscard]] bool in_flight(StepId id) const noexcept { return step_of(id) != nullptr; }
  [[nodiscard]] ChunkState& chunk_of(Flight const& flight) noexcept
  {
    return flight.step->chunks[flight.chunk];
  }
  [[nodiscard]] ChunkState const& chunk_of(Flight const& flight) const noexcept
  {
    return flight.step->chunks[flight.chunk];
  }

  /// Rows that the sequence will have if everything in flight is accepted.
  [[nodiscard]] Index planned_end(SequenceState const& s) const noexcept
  {
    return s.num_flights == 0 ? s.length() : chunk_of(s.flights[s.num_flights - 1]).end();
  }
  /// Pages that a step of `stream` can have without evicting: free ones, and those that wait for its own steps.
  [[nodiscard]] PageCount ready(StreamId stream) const noexcept
  {
    return book.num_free() + book.fences().num_waiting(stream);
  }
  /// Cached pages that a step of `stream` could have evicted now: all but what steps of other streams may still read, and what
  /// hangs above a page that a step holds. **Cost** O(1), and O(pages that steps hold) while cached pages are fenced for them.
  [[nodiscard]] PageCount evictable(StreamId stream) noexcept { return evictable(stream, stuck); }
  /// As above, with notes in `use`, as const calls may run beside each other: which spans of the stream's stay.
  [[nodiscard]] PageCount evictable(StreamId stream, List<bool>& use) const noexcept
  {
    FencedSpans const& fenced = book.fenced();
    PageCount const own = fenced.pages(stream.value);
    PageCount stays = fenced.pages() - own;
    if (own != 0) {
      (void)memory_sufficed_for(
        [&] { stays += count_stuck(book.tree(), fenced, std::span(steps), stream, use); });
    }
    return book.num_cached() - stays;
  }
  /// There are so many pages for a step of `stream`, if cached ones are evicted.
  [[nodiscard]] bool suffices(PageCount wanted, StreamId stream) noexcept
  {
    PageCount const had = ready(stream);
    return wanted <= had || wanted - had <= book.num_cached() - book.fenced().pages() ||
           wanted - had <= evictable(stream);
  }
  /// The page that the chunk copies is the tree's and its sequence's alone, and may leave the index instead.
  [[nodiscard]] bool may_unpublish(SequenceState const& s,
                                   ChunkState const& c,
                                   StreamId stream) const noexcept
  {
    PageId const page = c.copy_source;
    return c.copies() && page == s.table[c.copy_at] && book.tree().contains(page) &&
           book.allocator().count(page) == 2 && !book.pending(page) &&
           !book.fences().blocks(page, stream);
  }
  /// There are pages for the chunk. What is refused here has split no span, and asked no policy.
  [[nodiscard]] bool may_fit(SequenceState const& s, ChunkState const& c, StreamId stream) noexcept
  {
    return suffices(c.taken, stream) ||
           (may_unpublish(s, c, stream) && suffices(c.taken - 1, stream));
  }

  /// Pages that the table of the sequence has: those of its rows, and those that strays lie in.
  [[nodiscard]] PageCount pages_kept(SequenceState const& s) const noexcept
  {
    Index end = planned_end(s);
    Index const last = s.strays.empty() ? 0 : s.strays.back() + 1;
    end = last > end ? last : end;
    for (Flight const& flight :
         s.in_flight()) {  // a plan that moves them may not have been applied
      Index const moved = chunk_of(flight).moved_until;
      end = moved > end ? moved : end;
    }
    return pages_of(end);
  }
  /// The place of the chunk that is about to join `t`.
  [[nodiscard]] StepUses::Chunk next_chunk_of(StepState const& t) const noexcept
  {
    return {static_cast<std::uint32_t>(&t - steps.data()),
            static_cast<std::uint32_t>(t.chunks.size())};
  }
  /// The chunk in flight that will write `page`, the `index`-th of a table, as one of its pending pages; or null.
  [[nodiscard]] ChunkState const* writer_of(PageId page, std::size_t index) const noexcept
  {
    auto const writer = book.step_uses().writer(page);
    StepState const& t = steps[writer.step];
    bool const known = writer.chunk < t.chunks.size();
    return known && t.will_write(t.chunks[writer.chunk], page, index) ? &t.chunks[writer.chunk]
                                                                      : nullptr;
  }
  /// A chunk of the sequence in flight is a tree.
  [[nodiscard]] bool has_tree(SequenceState const& s) const noexcept
  {
    return s.num_flights > 0 && chunk_of(s.flights[s.num_flights - 1]).tree;
  }
  /// The chunk is accepted whole, as is everything of its sequence in flight, and its tokens are known. Where it moves rows
  /// it is not: if its sequence leaves before the plan is made, nobody moves them.
  [[nodiscard]] bool exact(SequenceState const& s, ChunkState const& c) const noexcept
  {
    bool all = c.named && !c.draft && s.strays.empty() &&
               s.domain_generation == book.tree().generation(s.domain);
    for (Flight const& flight : s.in_flight()) {
      all = all && chunk_of(flight).named && !chunk_of(flight).draft;
    }
    return all;
  }
  /// The token of a row that is committed, or planned by name.
  [[nodiscard]] Token token_at(SequenceState const& s, std::size_t row) const noexcept
  {
    if (row < s.tokens.size()) {
      return s.tokens[row];
    }
    for (Flight const& flight : s.in_flight()) {
      ChunkState const& c = chunk_of(flight);
      auto const first = static_cast<std::size_t>(c.first_index - c.attached);
      if (row < static_cast<std::size_t>(c.end())) {
        return flight.step->tokens[c.first_token + row - first];
      }
    }
    return 0;  // not reached: `row` lies before the chunk
  }
  /// `stream`'s steps may attach to the span: it is committed, or pending in a step that they run after.
  [[nodiscard]] bool visible(PendingTag const& tag,
                             StreamId stream,
                             StepState const* own) const noexcept
  {
    if (tag.step.value == 0) {
      return true;
    }
    if (tag.stream != stream) {
      return false;
    }
    StepState const* const step = step_of(tag.step);
    return step != nullptr && (step->stage == Stage::submitted || step == own);
  }
};

}  // namespace kvcache::inline v0_1::detail
