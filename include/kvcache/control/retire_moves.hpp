// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/decode_moves.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file How a step ends: committed, failed, or dropped before it was submitted.
///
/// Steps of a stream retire in the order of their submission. When one fails, everything of later steps that
/// reads its rows dies with it: later chunks of its sequences, and whoever attached to its pending pages.
/// Those sequences are cut back to rows that are there, and reported.

namespace kvcache::inline v0_1::detail {

/// What the caller says of a step's chunks, in the order of the adds: an outcome for each, a number for each, or nothing, which
/// is all of all.
struct Outcomes {
  std::span<Outcome const> each;
  std::span<Index const> accepted;

  [[nodiscard]] Index accepted_of(std::size_t i, ChunkState const& c) const noexcept
  {
    return !accepted.empty() ? accepted[i] : !each.empty() ? each[i].accepted : c.tokens;
  }
  [[nodiscard]] Outcome of(std::size_t i, ChunkState const& c) const noexcept
  {
    return !each.empty() ? each[i] : Outcome{.accepted = accepted_of(i, c)};
  }
};

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
struct RetireMoves : DecodeMoves<Allocator, Prefix, Replacement> {
  using Base = DecodeMoves<Allocator, Prefix, Replacement>;
  using Base::Base;
  using Base::book;
  using Base::options;
  using Base::pages_of;
  using Stage = StepState::Stage;

  /// Retires a step that ran.
  void commit(StepState& t, Outcomes const& outcomes)
  {
    bool publishes = false;
    for (std::size_t i = 0; i < t.chunks.size(); ++i) {
      ChunkState& c = t.chunks[i];
      if (c.in_place && c.planned && c.counts()) {
        accept_in_place(t, c, outcomes, i);
      } else {
        accept_anywhere(t, c, c.planned ? outcomes.of(i, c) : Outcome{});
      }
      publishes = publishes || c.completes;
    }
    for (std::size_t k = t.pending.empty() ? 0 : t.chunks.size(); k-- > 0;) {
      ChunkState const& c = t.chunks[k];
      for (PageCount i = c.pending; i-- > 0;) {
        book.release_of_step(t.pending[c.pending_at + i]);
      }
    }
    for (std::size_t k = 0; publishes && k < t.chunks.size(); ++k) {
      if (t.chunks[k].completes) {
        (void)memory_sufficed_for(
          [&] { this->publish(this->sequences[t.chunks[k].sequence.slot]); });
      }
    }
    retire(t);
  }

  /// Retires a submitted step that did not run to its end, and what depends on it.
  void fail(StepState& t) noexcept
  {
    StepState* order[Base::steps_per_stream];
    std::size_t const n = later(this->steps_of(t.stream), t, order);
    for (std::size_t k = 0; k < n; ++k) {
      for (ChunkState& c : order[k]->chunks) {
        c.dead = c.dead || order[k] == &t || c.orphan || depends(c, order, k);
      }
    }
    for (std::uint32_t const slot : this->open_slots) {
      if (SequenceState& s = this->sequences[slot]; !s.suspended) {
        cut_back(s);
      }
    }
    for (ChunkState const& c : t.chunks) {
      if (SequenceState* const s = this->find(c.sequence)) {
        s->synced = 0;  // perhaps no pool has applied the step's plan
      }
    }
    for (std::size_t k = n; k-- > 0;) {
      for (std::size_t i = order[k]->chunks.size(); i-- > 0;) {
        ChunkState& c = order[k]->chunks[i];
        if (c.dead) {
          this->give_back_source(*order[k], c);
          this->retract(*order[k], c);
        }
      }
    }
    retire(t);
  }

  /// Takes an open step back.
  void drop(StepState& t) noexcept
  {
    for (std::size_t i = t.chunks.size(); i-- > 0;) {
      this->undo(t, t.chunks[i]);
    }
    StepState* const last = this->oldest_submitted(t.stream);
    StepId const before = last != nullptr ? last->id : StepId{};
    for (std::size_t k = t.chunks.empty() ? 0 : this->open_slots.size(); k-- > 0;) {
      SequenceState& s = this->sequences[this->open_slots[k]];
      if (s.bound_until ==
          t.id) {  // cut or forked while the step was built: what it holds may be of steps before
        s.bound_until = before;
      }
    }
    free_orphans(t, before);
    if (last != nullptr) {        // its kernels may read the table rows
      last->rows.append(t.rows);  // within the reserve of all rows
      t.rows.clear();
    }
    retire(t);
  }

  /// Before the plan is made: an orphan is computed only where others attached to what it writes.
  void find_unwanted(StepState& t) const noexcept
  {
    if (!t.orphaned) {
      return;
    }
    for (ChunkState& c : t.chunks) {
      if (!c.orphan) {
        continue;
      }
      c.unwanted = !c.dead && !(c.pending > 0 && attached_to(t, c));
    }
  }
  /// When the plan is certain: what the others would have written is pending for nobody.
  void settle_orphans(StepState& t) noexcept
  {
    for (std::size_t k = t.orphaned ? t.chunks.size() : 0; k-- > 0;) {
      ChunkState& c = t.chunks[k];
      if (c.unwanted) {
        this->retract(t, c);
        c.orphan_pages = 0;
      }
    }
  }

  /// Pages that were let go while the step was built: from now on later steps of the stream may have them.
  void free_orphans(StepState& t, StepId fence) noexcept
  {
    for (PageId const page : t.orphans) {
      if (fence.value != 0) {
        book.fence(page, t.stream, fence);
      }
      book.release_of_step(page);
    }
    t.orphans.clear();
  }

  /// The fences of `stream` begin at its oldest submitted step.
  void update_fences(StreamId stream) noexcept
  {
    StepState const* const oldest = this->oldest_submitted(stream);
    book.fences().set_oldest(stream, oldest != nullptr ? oldest->id : StepId{~std::uint64_t{0}});
  }

 private:
  /// A sequence attached to what chunk `c` will write: it has the first page of it, and rows there behind those of before
  /// the chunk. (Who was forked or cut may keep these alone.)
  [[nodiscard]] bool attached_to(StepState const& t, ChunkState const& c) const noexcept
  {
    if (book.num_users(t.pending[c.pending_at]) == 0) {
      return false;
    }
    for (std::uint32_t const slot : this->open_slots) {
      SequenceState const& s = this->sequences[slot];
      if (c.pending_index < s.table.size() && this->planned_end(s) > c.first_index &&
          t.will_write(c, s.table[c.pending_index], c.pending_index)) {
        return true;
      }
    }
    return false;
  }
  void retire(StepState& t) noexcept
  {
    for (RowId const row : t.rows) {
      this->free_rows.push_back(row);
    }
    book.let_go(t.reclaimed);
    t.clear();
    update_fences(t.stream);
    book.collect(t.stream);
  }

  /// The accepted tokens of the sequence's oldest chunk in flight are real.
  void accept_anywhere(StepState& t, ChunkState& c, Outcome const& outcome) noexcept
  {
    if (c.copies()) {
      book.release_of_step(c.copy_source);
      c.copy_source = zero_page;
    }
    for (PageCount i = 0; i < c.pending; ++i) {
      book.settle(t.pending[c.pending_at + i], c.pending_index + i);
    }
    if (!c.counts()) {
      return;
    }
    SequenceState& s = this->sequences[c.sequence.slot];
    Token const* const first = t.tokens.data() + c.first_token;
    for (auto i = c.attached / options.page_tokens; i > 0; --i) {  // used for good
      book.hit(s.table[c.pages_before + static_cast<PageCount>(i) - 1]);
    }
    if (c.tree) {
      for (Index const place : outcome.path) {
        s.tokens.push_back(first[place]);  // within the reserve of the add
      }
      find_strays(s, outcome.path, c.first_index);
    } else if (c.named) {
      s.tokens.append(
        first, static_cast<std::size_t>(c.attached) + static_cast<std::size_t>(outcome.accepted));
    } else {
      s.tokens.append(outcome.tokens);
    }
    keep_declared(s, t.id);
    leave_flight(s, c.tokens - outcome.accepted);
    if (outcome.accepted < c.tokens || c.tree || c.first_moved >= 0) {
      this->shrink(s, this->pages_kept(s));
    }
    this->stats.committed_rows += static_cast<std::uint64_t>(outcome.accepted);
    c.completes = this->has_whole_page(s);
  }
  /// As above, of a chunk in place, whose sequence has neither strays nor media.
  [[gnu::always_inline]] void accept_in_place(StepState& t,
                                              ChunkState& c,
                                              Outcomes const& outcomes,
                                              std::size_t i) noexcept
  {
    SequenceState& s = this->sequences[c.sequence.slot];
    Index const accepted = outcomes.accepted_of(i, c);
    Token const* const names =
      c.named ? t.tokens.data() + c.first_token : outcomes.each[i].tokens.data();
    for (Index k = 0; k < accepted; ++k) {
      s.tokens.push_reserved(names[k]);
    }
    if (s.num_flights == 1) {
      s.num_flights = 0;
    } else {
      leave_flight(s, c.tokens - accepted);
    }
    if (accepted < c.tokens) {
      this->shrink(s, this->pages_kept(s));
    }
    this->stats.committed_rows += static_cast<std::uint64_t>(accepted);
    c.completes = s.length() >= static_cast<Index>(s.indexed + 1) * options.page_tokens;
  }
  /// The sequence's oldest chunk is over, and `lost` of its rows never existed.
  void leave_flight(SequenceState& s, Index lost) noexcept
  {
    Index slack = 0;
    s.num_flights -= 1;
    for (std::uint32_t i = 0; i < s.num_flights; ++i) {
      s.flights[i] = s.flights[i + 1];
      ChunkState& next = this->chunk_of(s.flights[i]);
      next.first_index -= lost;
      next.slack = slack;
      slack += next.draft ? next.tokens : 0;
    }
  }

  /// `t` and the steps of its stream after it, oldest first.
  static std::size_t later(std::span<StepState> all, StepState const& t, StepState** order) noexcept
  {
    std::size_t n = 0;
    for (StepState& step : all) {
      if (step.stage == Stage::none || step.id < t.id) {
        continue;
      }
      std::size_t at = n++;
      for (; at > 0 && step.id < order[at - 1]->id; --at) {
        order[at] = order[at - 1];
      }
      order[at] = &step;
    }
    return n;
  }

  /// The chunk of step `order[k]` reads rows of a chunk that is dead, or of a page that a dead one was to fill with copies.
  [[nodiscard]] bool depends(ChunkState const& c,
                             StepState* const* order,
                             std::size_t k) const noexcept
  {
    SequenceState const& s = this->sequences[c.sequence.slot];
    for (Flight const& flight : s.in_flight()) {
      if (this->chunk_of(flight).dead) {
        return true;
      }
    }
    for (std::size_t j = 0; j <= k; ++j) {
      for (ChunkState const& other : order[j]->chunks) {
        if (other.dead && other.copies() && this->rests_on(s, other)) {
          return true;
        }
      }
    }
    return first_dead_row(s) < room(s);
  }
  [[nodiscard]] Index room(SequenceState const& s) const noexcept
  {
    return static_cast<Index>(s.table.size()) * options.page_tokens;
  }
  /// Where the rows begin that a dead chunk was to write as pending pages; `room` if there are none. Who attached
  /// loses its first page too; the writer keeps the rows there that it had before. Pending pages are the last of a table that
  /// was attached to them: its own chunks commit after the chunks that write these. **Cost** O(pages in flight).
  [[nodiscard]] Index first_dead_row(SequenceState const& s) const noexcept
  {
    Index found = room(s);
    auto const committed = static_cast<std::size_t>(s.length() / options.page_tokens);
    for (std::size_t i = s.table.size(); i-- > 0;) {
      if (i < committed && book.step_uses().of(s.table[i]) == 0) {
        break;
      }
      ChunkState const* const c = this->writer_of(s.table[i], i);
      if (c != nullptr && c->dead) {
        Index const row = s.length() <= c->first_index
                            ? c->first_index
                            : static_cast<Index>(c->pending_index) * options.page_tokens;
        found = row < found ? row : found;
      }
    }
    return found;
  }

  /// The longest length up to `length` that tears no atomic span, and where the table may end.
  [[nodiscard]] Index untorn(SequenceState const& s, Index length) noexcept
  {
    while (torn_at(s.media, length) != nullptr) {
      length = this->settled(s, length);
      PageCount const keep = pages_of(length);
      if (keep == 0 || !book.tree().contains(s.table[keep - 1]) || memory_sufficed_for([&] {
            book.end_span_at(s.table[keep - 1], static_cast<Index>(keep - 1));
          })) {
        return length;
      }
      length = book.tree().first_token(book.tree().span_of(s.table[keep - 1]));
    }
    return length;
  }
  /// Cuts a sequence to what does not depend on dead chunks.
  void cut_back(SequenceState& s) noexcept
  {
    std::uint8_t alive = 0;
    while (alive < s.num_flights && !this->chunk_of(s.flights[alive]).dead) {
      ++alive;
    }
    Index length = first_dead_row(s);
    length = length < s.length() ? length : s.length();
    for (std::uint8_t i = alive; i < s.num_flights; ++i) {  // perhaps its moves were not made
      Index const moved = this->chunk_of(s.flights[i]).first_moved;
      length = moved >= 0 && moved < length ? moved : length;
    }
    if (alive == s.num_flights && length == s.length()) {
      return;
    }
    length = untorn(s, length);
    alive = length < s.length() ? 0 : alive;
    s.num_flights = alive;
    drop_declared(s);
    cut_strays(s, length);
    s.tokens.resize(static_cast<std::size_t>(length));
    this->shrink(s, this->pages_kept(s));
    s.indexed = smaller(s.indexed, static_cast<PageCount>(length / options.page_tokens));
    auto const slot = static_cast<std::uint32_t>(&s - this->sequences.data());
    this->cuts.push_back({{slot, s.generation}, length});  // within its reserve: one a sequence
  }
};

}  // namespace kvcache::inline v0_1::detail
