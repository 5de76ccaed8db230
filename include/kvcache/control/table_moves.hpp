// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/media_moves.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/span_ends.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/control/tree.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// \file How a sequence's table grows from a match, shrinks, and is published.
///
///   table  [ page | page | part page ]        length = committed rows
///            ^^^^^^^^^^^ indexed: whole pages that the tree holds too
///
/// Whoever lets go of a page says which step may still touch it: a step that is being built keeps the page until
/// it is submitted, one in flight fences it.

namespace kvcache::inline v0_1::detail {

/// See the file comment. No call here checks its caller: `Control` does.
template <class Allocator, class Prefix, class Replacement>
struct TableMoves : ControlState<Allocator, Prefix, Replacement> {
  using Base = ControlState<Allocator, Prefix, Replacement>;
  using Base::Base;
  using Base::book;
  using Base::chunk_of;
  using Base::free_rows;
  using Base::free_slots;
  using Base::options;
  using Base::pages_of;
  using Base::sequences;
  using Base::stats;
  using Base::steps;
  using Base::twins;
  using Base::visible;
  using Stage = StepState::Stage;

  /// The newest step that may touch pages of `s`, or null.
  [[nodiscard]] StepState* touching(SequenceState const& s) noexcept
  {
    return this->step_of(s.bound_until);
  }
  /// Lets go of one page of a sequence that `step` may touch: a step that is being built keeps it until it is
  /// submitted, then the page is fenced.
  void let_go(PageId page, StepState* step) noexcept
  {
    if (step != nullptr && step->stage == Stage::open) {
      step->orphans.push_back(page);  // within what add and fork reserved
      book.keep_for_step(page);
      return;
    }
    if (step != nullptr) {
      book.fence(page, step->stream, step->id);
    }
    book.release(page);
  }
  /// Lets go of the pages from `keep` on, deepest first.
  void shrink(SequenceState& s, PageCount keep) noexcept
  {
    StepState* const step = s.table.size() > keep ? touching(s) : nullptr;
    while (s.table.size() > keep) {
      PageId const page = s.table.back();
      s.table.pop_back();
      let_go(page, step);
    }
    s.synced = smaller(s.synced, keep);
  }
  /// Its steps in flight go on without it. Where others may attach to what its open chunk writes, that chunk is
  /// computed all the same, and keeps the table for it.
  void leave_flights(SequenceState& s) noexcept
  {
    for (Flight const& flight : s.in_flight()) {
      ChunkState& c = chunk_of(flight);
      c.orphan = true;
      flight.step->orphaned = true;
      if (c.copies()) {
        s.synced = smaller(s.synced, c.copy_at);  // perhaps no plan says so
      }
      if (flight.step->stage == Stage::open && c.pending > 0) {
        List<PageId>& tables = flight.step->orphan_tables;
        c.orphan_at = static_cast<PageCount>(tables.size());
        c.orphan_pages = static_cast<PageCount>(s.table.size());
        tables.append(s.table);  // within the reserve of `pend`
        c.orphan_row = s.row;
        s.synced = 0;
      }
    }
    s.num_flights = 0;
    drop_declared(s);
  }

  /// The matched part of a prompt that a sequence may really take: what pending steps of other streams
  /// write, and part pages that are not written yet, are left out.
  void settle_match(Match& match, StreamId stream) const noexcept
  {
    if (match.partial_rows > 0 && book.pending(match.partial_page)) {
      match.partial_rows = 0;
      match.partial_page = zero_page;
    }
    while (match.span.value != nil && !visible(book.tag(match.span), stream, nullptr)) {
      match.full_pages = book.tree().first_token(match.span) / options.page_tokens;
      match.span = book.tree().parent(match.span);
      match.span_pages = match.span.value == nil ? 0 : book.tree().size(match.span);
      match.partial_rows = 0;
      match.partial_page = zero_page;
    }
  }

  /// Fills the table of a sequence of `tokens` tokens from a match; the counts are the caller's.
  /// **Errors** `std::bad_alloc`; the table may be filled in part.
  void attach(SequenceState& s, std::size_t tokens, Match const& match)
  {
    s.table.reserve_grown(pages_of(tokens) + 1);
    s.tokens.reserve_grown(tokens + static_cast<std::size_t>(options.page_tokens));
    s.table.resize(static_cast<std::size_t>(match.full_pages));
    book.tree().copy_pages(match, s.table.data());
    if (match.partial_rows > 0) {
      s.table.push_back(match.partial_page);
    }
    if (!s.table.empty()) {
      book.end_span_at(s.table.back(), static_cast<Index>(s.table.size() - 1));
    }
  }

  /// Makes the sequence a holder of the pages in its table, in a table row of its own.
  void hold(SequenceState& s, PageCount indexed, StreamId stream) noexcept
  {
    for (PageId const page : s.table) {
      book.share(page);
    }
    if (!s.table.empty() && book.tree().contains(s.table.back()) && book.pending(s.table.back())) {
      bind(s,
           stream,
           book.tag(s.table.back()).step);  // of the pending pages, the last is of the latest step
    }
    s.row = free_rows.back();
    free_rows.pop_back();
    s.indexed = indexed;
    s.synced = 0;
    s.suspended = false;
  }
  /// Until `step` retires, the sequence belongs to its stream.
  void bind(SequenceState& s, StreamId stream, StepId step) noexcept
  {
    s.follow(stream);
    s.bound_until = s.bound_until < step ? step : s.bound_until;
  }
  /// Makes the sequence that `s` was filled for the user of its slot.
  /// **Pre** `s` is the slot that `free_slots` names next.
  SequenceId enter(SequenceState& s, Miss miss) noexcept
  {
    std::uint32_t const slot = free_slots.back();
    free_slots.pop_back();
    this->open_slots.enter(slot);
    s.generation += 1;
    s.num_flights = 0;
    s.forget_steps();
    s.cached = s.length();
    s.miss = miss;
    s.suspensions = 0;
    s.lost = 0;
    return {slot, s.generation};
  }
  /// Pages and row go back; tokens and slot stay.
  void vacate(SequenceState& s) noexcept
  {
    leave_flights(s);
    if (StepState* const step = touching(s)) {
      step->rows.push_back(s.row);  // within the reserve of all rows
    } else {
      free_rows.push_back(s.row);
    }
    shrink(s, 0);
    s.strays.clear();
    s.indexed = 0;
    s.bound_until = {};
  }
  void give_slot(SequenceState& s, std::uint32_t slot) noexcept
  {
    this->spares.keep(s);
    s.generation += 1;
    book.unname(s.domain);
    free_slots.push_back(slot);  // within its reserve: a slot is listed once
    this->open_slots.leave(slot);
  }

  /// The longest length up to `length` that may be kept: part of a page is kept only over rows that are written, rows that
  /// a step in flight moves are not kept, and an atomic span is kept as a whole.
  [[nodiscard]] Index settled(SequenceState const& s, Index length) const noexcept
  {
    Index kept = written(s, length);
    for (NamedSpan const* torn = torn_at(s.media, kept); torn != nullptr;
         torn = torn_at(s.media, kept)) {
      kept = written(s, torn->first);
    }
    return kept;
  }
  /// As above, for atomic spans that may be torn.
  [[nodiscard]] Index written(SequenceState const& s, Index length) const noexcept
  {
    for (Flight const& flight : s.in_flight()) {
      Index const moved =
        flight.step->stage == Stage::open ? s.in_place() : chunk_of(flight).first_moved;
      length = moved >= 0 && moved < length ? moved : length;
    }
    if (length % options.page_tokens == 0) {
      return length;
    }
    auto const part = static_cast<std::size_t>(length / options.page_tokens);
    ChunkState const* const writer = this->writer_of(s.table[part], part);
    // Who had rows there before the chunk keeps those; who attached has more rows than these, and none is written.
    bool const attached = writer != nullptr && s.length() > writer->first_index;
    return attached ? static_cast<Index>(part) * options.page_tokens : length;
  }
  /// Cuts a sequence to `length` settled rows, fewer than are planned. **Errors** `std::bad_alloc`, nothing changed.
  void cut(SequenceState& s, Index length)
  {
    PageCount const keep = pages_of(length);
    if (keep > 0 && keep < s.table.size() && book.tree().contains(s.table[keep - 1])) {
      end_span_for_cut(book, s.table[keep - 1], static_cast<Index>(keep - 1), options.page_tokens);
    }
    leave_flights(s);
    cut_strays(s, length);
    s.tokens.resize(static_cast<std::size_t>(length));
    shrink(s, this->pages_kept(s));
    s.indexed = smaller(s.indexed, static_cast<PageCount>(length / options.page_tokens));
  }

  /// Sequence i becomes a copy of what sequence `parents[i]` was. **Errors** `std::bad_alloc`, nothing changed.
  void reorder(std::span<SequenceId const> ids, std::span<Index const> parents)
  {
    List<SequenceState> next(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      SequenceState const& parent = sequences[ids[static_cast<std::size_t>(parents[i])].slot];
      next[i] = parent;
      next[i].table.reserve(parent.table.size() + 1);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (PageId const page : next[i].table) {
        book.share(page);
      }
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      SequenceState& s = sequences[ids[i].slot];
      bool const same = static_cast<std::size_t>(parents[i]) == i;
      next[i].row = s.row;
      next[i].generation = s.generation;
      for (std::uint32_t stream = 0; stream < max_streams; ++stream) {
        next[i].added_elsewhere[stream] = s.added_to(StreamId{stream});
      }
      next[i].last_added = s.added_to(next[i].stream);
      next[i].synced = same ? s.synced : 0;
      std::swap(s, next[i]);
    }
    for (SequenceState& old : next) {
      shrink(old, 0);
    }
  }

  /// `twin` replaces `page` as the `i`-th page of every sequence, of `first` before others: most often nobody else has it.
  /// **Cost** O(1) then, else O(open sequences).
  void replace(PageId page, PageId twin, std::size_t i, SequenceState& first) noexcept
  {
    std::uint32_t left = book.num_users(page);
    left -= replace_in(first, page, twin, i) ? 1U : 0U;
    for (std::size_t k = 0; k < this->open_slots.size() && left != 0; ++k) {
      left -= replace_in(sequences[this->open_slots[k]], page, twin, i) ? 1U : 0U;
    }
  }
  [[nodiscard]] bool replace_in(SequenceState& s, PageId page, PageId twin, std::size_t i) noexcept
  {
    if (s.table.size() <= i || s.table[i] != page) {  // of a slot that is empty: no table
      return false;
    }
    book.share(twin);
    s.table[i] = twin;
    s.synced = smaller(s.synced, static_cast<PageCount>(i));
    let_go(page, touching(s));
    return true;
  }

  /// A whole page of the sequence is not in the tree; most steps of decoding complete none.
  [[nodiscard]] bool has_whole_page(SequenceState const& s) const noexcept
  {
    return s.in_place() >= static_cast<Index>(s.indexed + 1) * options.page_tokens;
  }

  /// Puts the sequence's whole committed pages into the tree. A page whose tokens are there already is replaced
  /// by the indexed one in every table, and its own goes back. **Errors** `std::bad_alloc`; what was done stays.
  void publish(SequenceState& s)
  {
    if (!has_whole_page(s)) {
      return;
    }
    auto whole = static_cast<PageCount>(s.in_place() / options.page_tokens);
    auto const p = static_cast<std::size_t>(options.page_tokens);
    if (s.domain_generation != book.tree().generation(s.domain)) {
      return;
    }
    for (Flight const& flight : s.in_flight()) {
      if (chunk_of(flight).copies()) {
        whole = smaller(whole, chunk_of(flight).copy_at);  // its bytes are not there yet
      }
    }
    auto const tokens_at = [&](std::size_t page) {
      return std::span<Token const>(s.tokens).subspan(page * p, (whole - page) * p);
    };
    twins.clear();
    bool waits = false;  // somebody else's pending page stands there: try again at the next commit
    while (s.indexed + twins.size() < whole && !waits) {
      std::size_t const i = s.indexed + twins.size();
      PageId const parent = !twins.empty() ? twins.back() : i == 0 ? zero_page : s.table[i - 1];
      PageId const twin = book.tree().find_child(s.domain, parent, tokens_at(i).first(p));
      if (twin == zero_page) {
        break;
      }
      waits = book.pending(twin) && twin != s.table[i];
      if (!waits) {
        twins.push_back(twin);
      }
    }
    if (!twins.empty()) {
      for (std::size_t k = 0; k < twins.size(); ++k) {  // others may hold fewer of these pages
        std::size_t const i = s.indexed + k;
        if (k + 1 == twins.size() || book.num_users(s.table[i]) != book.num_users(s.table[i + 1])) {
          book.end_span_at(twins[k], static_cast<Index>(i));
        }
      }
      for (PageId const twin : twins) {
        if (twin != s.table[s.indexed]) {
          replace(s.table[s.indexed], twin, s.indexed, s);
          stats.merged_pages += 1;
        }
        s.indexed += 1;
      }
    }
    while (s.indexed < whole && !waits) {
      std::size_t const i = s.indexed;
      PageId const parent = i == 0 ? zero_page : s.table[i - 1];
      std::size_t n = 1;
      while (i + n < whole && book.same_holders(s.table[i], s.table[i + n])) {
        ++n;
      }
      bool const alone =
        parent != zero_page && book.same_holders(parent, s.table[i]) && book.num_users(parent) == 1;
      book.publish(s.domain,
                   parent,
                   tokens_at(i).first(n * p),
                   std::span<PageId const>(s.table).subspan(i, n),
                   alone);
      s.indexed += static_cast<PageCount>(n);
    }
  }
};

}  // namespace kvcache::inline v0_1::detail
