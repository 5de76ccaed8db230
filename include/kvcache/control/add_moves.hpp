// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/copy_moves.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/first_room.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// \file What adding a chunk does to a sequence, and how dropping the step takes it back.
///
/// In a step that attaches, a chunk first takes whole pages that others hold or will write (so that a burst of equal
/// prompts is computed once); it plans rows for the rest. Where those begin in a page that others may read, the page is
/// copied: the table's hold on the old page becomes the step's, the plan copies the rows, the new page takes
/// its place. Where no page can be had and nobody but the tree shares it, the page leaves the index instead.
/// Whole pages that the chunk will write become pending, if it must be accepted whole.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
struct AddMoves : CopyMoves<Allocator, Prefix, Replacement> {
  using Base = CopyMoves<Allocator, Prefix, Replacement>;
  using Base::Base;
  using Base::book;
  using Base::options;
  using Base::pages_of;
  using Base::text;
  using Base::twins;

  /// What the chunk needs and finds, into the new `c`. **Post** `twins` are the pages that it attaches to.
  void draft(
    StepState const& t, SequenceId id, SequenceState const& s, Chunk const& chunk, ChunkState& c)
  {
    c.sequence = id;
    c.named = !chunk.tokens.empty();
    c.draft = chunk.draft || !chunk.parents.empty();
    c.tree = !chunk.parents.empty();
    c.parents_at = static_cast<std::uint32_t>(t.parents.size());
    c.first_token = t.tokens.size();
    c.pages_before = static_cast<PageCount>(s.table.size());
    c.reclaimed = t.reclaimed.size();
    c.bound_before = s.bound_until;
    for (Flight const& flight : s.in_flight()) {
      c.slack += this->chunk_of(flight).draft ? this->chunk_of(flight).tokens : 0;
    }
    find_twins(t, s, c, chunk);
    auto const attached = static_cast<Index>(twins.size()) * options.page_tokens;
    c.attached = attached;
    c.first_index = this->planned_end(s) + attached;
    c.tokens = (c.named ? static_cast<Index>(chunk.tokens.size()) : chunk.count) - attached;
    if (c.tokens > 0) {
      PageCount const has = c.pages_before + static_cast<PageCount>(twins.size());
      PageCount const needs = pages_of(c.end());
      c.taken = needs > has ? needs - has : 0;  // pages of strays may serve
      this->find_copy(t, s, c);
    }
  }

  /// Memory for the chunk, so that the moves after it cannot fail. **Errors** `std::bad_alloc`.
  void reserve(StepState& t, SequenceState& s, ChunkState const& c)
  {
    auto const rows = static_cast<std::size_t>(c.attached) + static_cast<std::size_t>(c.tokens);
    if (t.chunks.capacity() == 0) {
      make_first_room(t);
    }
    t.orphan_room += s.table.size() + twins.size() + c.taken + 1;
    t.orphans.reserve_grown(t.orphan_room);
    t.tokens.reserve_grown(t.tokens.size() + rows);
    t.chunks.reserve_grown(t.chunks.size() + 1);
    if (c.tree) {
      t.parents.reserve_grown(t.parents.size() + rows);
      s.strays.reserve(static_cast<std::size_t>(Plan::max_tree_tokens));
    }
    t.pending.reserve_grown(t.pending.size() + pages_of(c.tokens) + 1);
    s.table.reserve_grown(s.table.size() + twins.size() + c.taken + 1);
    s.tokens.reserve_grown(static_cast<std::size_t>(c.end()));
    book.prepare_take(c.taken, c.copies(), t.reclaimed);
    if (c.copies() && c.copy_at > 0 && book.tree().contains(s.table[c.copy_at - 1])) {
      book.end_span_at(s.table[c.copy_at - 1],
                       static_cast<Index>(c.copy_at - 1));  // the page is let go alone
    }
    if (!twins.empty()) {
      book.end_span_at(twins.back(), static_cast<Index>(c.pages_before + twins.size() - 1));
    }
  }

  /// Attaches and takes pages; false where there are not enough, and then nothing changed.
  [[nodiscard]] bool grow(StepState& t, SequenceState& s, ChunkState& c) noexcept
  {
    for (PageId const twin : twins) {
      book.share_unheard(twin);
      s.table.push_back(twin);
    }
    if (!take(t, s, c) && !take_unpublished(t, s, c)) {
      while (s.table.size() > c.pages_before) {
        book.release(s.table.back());
        s.table.pop_back();
      }
      return false;
    }
    if (c.copies()) {
      PageId const before = s.table[c.copy_at];
      c.copy_target = s.table.back();
      c.target_use = book.uses(c.copy_target);
      s.table.pop_back();
      s.table[c.copy_at] = c.copy_target;
      if (c.copy_source != before) {  // a copy of it by this step, which others hold
        book.share(c.copy_source);
        book.release(before);
      } else if (this->touching(s) != nullptr) {
        // Chunks that were cut off may read more of it than is copied.
        this->fence_before(t, before);
      }
      book.keep_for_step(c.copy_source);
      book.step_uses().set_writer({&c.copy_target, 1}, this->next_chunk_of(t));
    }
    return true;
  }

  /// Makes the whole pages of the chunk pending, where it must be accepted whole and its tokens are known.
  /// **Errors** `std::bad_alloc`, nothing is pending.
  void pend(StepState& t, SequenceState const& s, ChunkState& c, std::span<Token const> tokens)
  {
    if (c.tokens < 2 || c.tokens < options.page_tokens) {
      return;
    }
    auto const p = static_cast<std::size_t>(options.page_tokens);
    std::size_t const first = static_cast<std::size_t>(c.first_index) / p;
    std::size_t const end = static_cast<std::size_t>(c.end()) / p;
    if (first >= end || !this->exact(s, c)) {
      return;
    }
    if (static_cast<std::size_t>(c.first_index) > first * p &&
        book.allocator().count(s.table[first]) != 1) {
      return;  // a step copies from the part page, and gives it back if it fails
    }
    PageId const parent = first == 0 ? zero_page : s.table[first - 1];
    if (parent != zero_page && !book.tree().contains(parent)) {
      return;
    }
    text.clear();
    for (std::size_t row = first * p; row < static_cast<std::size_t>(c.first_index); ++row) {
      text.push_back(this->token_at(s, row));
    }
    auto const rest = tokens.subspan(static_cast<std::size_t>(c.attached));
    text.append(rest.first((end - first) * p - text.size()));
    if (book.tree().find_child(s.domain, parent, std::span<Token const>(text).first(p)) !=
        zero_page) {
      return;
    }
    std::span<PageId const> const pages =
      std::span<PageId const>(s.table).subspan(first, end - first);
    t.orphan_tables.reserve_grown(t.orphan_table_room + s.table.size());
    book.publish_pending(
      s.domain, parent, text, pages, {t.id, t.stream, static_cast<std::uint32_t>(t.chunks.size())});
    t.orphan_table_room += s.table.size();
    c.pending_at = static_cast<PageCount>(t.pending.size());
    c.pending_index = static_cast<PageCount>(first);
    c.pending = static_cast<PageCount>(pages.size());
    t.pending.append(pages);
    book.step_uses().set_writer(pages, this->next_chunk_of(t));
  }

  /// Takes a chunk of an open step back, the newest first; exact if nothing came in between.
  void undo(StepState& t, ChunkState& c) noexcept
  {
    retract(t, c);
    if (!untouched(c)) {
      undo_loosely(t, c);
    } else {
      SequenceState& s = this->sequences[c.sequence.slot];
      if (c.copies()) {
        s.table.push_back(c.copy_target);    // within the reserve of the add
        s.table[c.copy_at] = c.copy_source;  // the step's hold is the table's
        book.take_from_step(c.copy_source);
      }
      book.untake(std::span<PageId const>(s.table).last(c.taken), c.from_waiting);
      s.table.resize(s.table.size() - c.taken);
      leave(s, c);
    }
    if (c.unpublished) {
      book.republish(t.reclaimed);
    }
    if (!c.in_place) {
      book.restore(t.reclaimed, c.reclaimed);
    }
  }

  /// Takes the chunk's pending pages out of the index.
  void retract(StepState& t, ChunkState& c) noexcept
  {
    for (PageCount i = c.pending; i-- > 0;) {
      book.retract(t.pending[c.pending_at + i]);
    }
    c.pending = 0;
  }

 private:
  /// Pages right behind the sequence's end that hold the chunk's first tokens, and that somebody holds already.
  void find_twins(StepState const& t,
                  SequenceState const& s,
                  ChunkState const& c,
                  Chunk const& chunk)
  {
    twins.clear();
    auto const p = static_cast<std::size_t>(options.page_tokens);
    auto const start = static_cast<std::size_t>(this->planned_end(s));
    auto const limit = static_cast<std::size_t>(s.attach_limit);
    if (!t.attach || chunk.tokens.size() < p || start % p != 0 || start + p > limit ||
        !this->exact(s, c)) {
      return;
    }
    PageId parent = start == 0 ? zero_page : s.table[start / p - 1];
    if (parent != zero_page && !book.tree().contains(parent)) {
      return;
    }
    for (std::size_t at = 0; at + p <= chunk.tokens.size() && start + at + p <= limit; at += p) {
      PageId const twin = book.tree().find_child(s.domain, parent, chunk.tokens.subspan(at, p));
      if (twin == zero_page || book.allocator().count(twin) < 2 ||
          !this->visible(book.tag(twin), t.stream, &t)) {
        break;
      }
      twins.push_back(twin);
      parent = twin;
    }
    drop_torn(twins, chunk.media.empty() ? s.media : this->declared, start, p);
  }

  /// Made for the first step that an object is used for; where a step needs more, arrays double.
  void make_first_room(StepState& t) const
  {
    std::size_t const chunks = first_room(options.max_sequences);
    std::size_t const pages = first_room(options.pages);
    t.tokens.reserve(8 * first_room(static_cast<std::size_t>(options.max_step_tokens)));
    t.pending.reserve(pages);
    t.orphans.reserve(2 * pages);
    t.orphan_tables.reserve(pages);
    t.plan.tables.reserve(chunks);
    t.plan.ids.reserve(2 * pages);
    t.plan.copies.reserve(chunks);
    t.plan.chunks.reserve(chunks);
    t.chunks.reserve(chunks);  // last: what fails before is tried again
  }

  [[nodiscard]] bool take(StepState& t, SequenceState& s, ChunkState& c) noexcept
  {
    if (c.taken == 0) {
      return true;
    }
    if (!this->suffices(c.taken, t.stream)) {
      return false;  // and the policy was not asked
    }
    s.table.resize(s.table.size() + c.taken);
    std::uint32_t const waited = book.take(std::span(s.table).last(c.taken), t.stream, t.reclaimed);
    if (waited == nil) {
      s.table.resize(s.table.size() - c.taken);
      return false;
    }
    c.from_waiting = waited;
    return true;
  }
  /// As `take`, with the page that would be copied written in place: it leaves the index, which nobody else
  /// has a use for. What hangs below it there is unused, and is evicted by the take.
  [[nodiscard]] bool take_unpublished(StepState& t, SequenceState& s, ChunkState& c) noexcept
  {
    PageId const page = c.copy_source;
    if (!this->may_unpublish(s, c, t.stream)) {
      return false;
    }
    c.taken -= 1;
    if (take(t, s, c)) {
      SpanId const span = book.tree().span_of(page);
      if (book.tree().last_page(span) == page && book.tree().children(span) == 0) {
        book.unpublish(page, t.reclaimed);
        c.copy_source = zero_page;
        c.unpublished = true;
        s.indexed = smaller(s.indexed, c.copy_at);
        return true;
      }
      book.untake(std::span<PageId const>(s.table).last(c.taken), c.from_waiting);
      s.table.resize(s.table.size() - c.taken);
      book.restore(t.reclaimed, c.reclaimed);
    }
    c.taken += 1;
    return false;
  }

  /// Nobody else holds pages of the chunk, and its sequence is as the add left it.
  [[nodiscard]] bool untouched(ChunkState const& c) const noexcept
  {
    if (!c.counts()) {
      return false;
    }
    std::size_t const pages = std::size_t{c.pages_before} +
                              static_cast<std::size_t>(c.attached / options.page_tokens) + c.taken;
    SequenceState const& s = this->sequences[c.sequence.slot];
    if (s.table.size() + (c.copies() ? 1 : 0) != pages ||
        (c.copies() && book.allocator().count(c.copy_target) != 1)) {
      return false;
    }
    bool alone = true;
    for (PageId const page : std::span(s.table).last(c.taken - (c.copies() ? 1U : 0U))) {
      alone = alone && book.allocator().count(page) == 1;
    }
    return alone;
  }
  /// The sequence of a chunk that is taken back lets go of what it attached to.
  void leave(SequenceState& s, ChunkState const& c) noexcept
  {
    s.num_flights -= 1;
    drop_declared(s);
    s.bound_until = c.bound_before;
    while (s.table.size() > this->pages_kept(s)) {
      book.release(s.table.back());
      s.table.pop_back();
    }
    s.synced = smaller(s.synced, static_cast<PageCount>(s.table.size()));
  }
  /// Others hold pages of the chunk, or its sequence went on without it: pages go back in any order.
  void undo_loosely(StepState const& t, ChunkState& c) noexcept
  {
    this->give_back_source(t, c);
    if (c.counts()) {
      leave(this->sequences[c.sequence.slot], c);
    }
  }
};

}  // namespace kvcache::inline v0_1::detail
