// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/page_book.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

/// \file How a sequence's table grows, shrinks and is published: the moves that `Control`'s calls are made of.
///
///   table  [ page | page | part page ]        length = committed rows
///            ^^^^^^^^^^^ indexed: whole pages that the tree holds too
///
/// A chunk that starts inside a part page which others may read gets a copy of that page (copy-on-write):
/// the table's hold on the old page becomes the step's, the plan copies the rows, the new page takes its
/// place. Where no page can be had and nobody but the tree shares it, the page leaves the index instead.

namespace kvcache::inline v0_1::detail {

/// Room for `size` elements, grown geometrically so that many small steps reallocate seldom.
template <class T>
void reserve_to(std::vector<T>& v, std::size_t size)
{
  if (size > v.capacity()) {
    v.reserve(size > 2 * v.capacity() ? size : 2 * v.capacity());
  }
}

[[nodiscard]] constexpr PageCount smaller(PageCount a, PageCount b) noexcept
{
  return a < b ? a : b;
}

/// See the file comment. No call here checks its caller: `Control` does.
template <class Allocator, class Prefix, class Replacement>
struct ControlState {
  using Book = PageBook<Allocator, Prefix, Replacement>;

  ControlState(ControlOptions const& o,
               typename Prefix::Options const& prefix,
               typename Replacement::Options const& replacement)
      : options(o), book(o.page_tokens, o.pages, prefix, replacement), sequences(o.max_sequences)
  {
    free_slots.reserve(o.max_sequences);
    for (std::uint32_t slot = o.max_sequences; slot-- > 0;) {
      free_slots.push_back(slot);
    }
  }

  ControlOptions options;
  Book book;
  std::vector<SequenceState> sequences;
  std::vector<std::uint32_t> free_slots;  // the next one last
  StepState step;
  Stats stats;  // the counters; the rest is filled in on demand
  std::uint64_t next_step = 1;
  std::vector<PageId> twins;  // of `publish`, kept to allocate nothing

  [[nodiscard]] PageCount pages_of(std::size_t tokens) const noexcept
  {
    auto const p = static_cast<std::size_t>(options.page_tokens);
    return static_cast<PageCount>((tokens + p - 1) / p);
  }
  [[nodiscard]] SequenceState* find(SequenceId id) noexcept
  {
    bool const known = id.slot < sequences.size() && id.generation % 2 != 0;
    return known && sequences[id.slot].generation == id.generation ? &sequences[id.slot] : nullptr;
  }
  [[nodiscard]] SequenceState const* find(SequenceId id) const noexcept
  {
    return const_cast<ControlState*>(this)->find(id);
  }

  /// Makes the sequence that `s` was filled for the user of its slot and a holder of its pages.
  /// **Pre** `s` is the slot that `free_slots` names next.
  SequenceId enter(SequenceState& s, PageCount indexed, Miss miss) noexcept
  {
    std::uint32_t const slot = free_slots.back();
    free_slots.pop_back();
    for (PageId const page : s.table) {
      book.share(page);
    }
    s.generation += 1;
    s.step_chunk = nil;
    s.indexed = indexed;
    s.synced = 0;
    s.cached = s.length();
    s.miss = miss;
    return {slot, s.generation};
  }
  void give_slot(SequenceState& s, std::uint32_t slot) noexcept
  {
    constexpr std::size_t worth_keeping = std::size_t{1} << 16;
    s.tokens.clear();
    if (s.tokens.capacity() > worth_keeping) {
      s.tokens.shrink_to_fit();
    }
    s.generation += 1;
    free_slots.push_back(slot);  // within its reserve: a slot is listed once
  }

  /// Lets go of the pages from `keep` on, deepest first.
  void shrink(std::vector<PageId>& table, PageCount keep) noexcept
  {
    while (table.size() > keep) {
      PageId const page = table.back();
      table.pop_back();
      book.release(page);
    }
  }

  /// Cuts an idle sequence to `length` rows, fewer than it has. **Errors** `std::bad_alloc`, nothing changed.
  void cut(SequenceState& s, Index length)
  {
    PageCount const keep = pages_of(static_cast<std::size_t>(length));
    if (keep > 0 && keep < s.table.size() && book.tree().contains(s.table[keep - 1])) {
      book.end_span_at(s.table[keep - 1], static_cast<Index>(keep - 1));
    }
    shrink(s.table, keep);
    s.tokens.resize(static_cast<std::size_t>(length));
    s.indexed = smaller(s.indexed, static_cast<PageCount>(length / options.page_tokens));
    s.synced = smaller(s.synced, keep);
  }

  /// Fills the table and the tokens of a new sequence from a match; the counts are the caller's.
  /// **Errors** `std::bad_alloc`; the table may be filled in part.
  void attach(SequenceState& s, std::span<Token const> tokens, Match const& match)
  {
    auto const full = static_cast<std::size_t>(match.full_pages);
    reserve_to(s.table, pages_of(tokens.size()) + 1);
    reserve_to(s.tokens, tokens.size() + static_cast<std::size_t>(options.page_tokens));
    s.table.resize(full);
    book.tree().copy_pages(match, s.table.data());
    if (match.partial_rows > 0) {
      s.table.push_back(match.partial_page);
    }
    if (!s.table.empty()) {
      book.end_span_at(s.table.back(), static_cast<Index>(s.table.size() - 1));
    }
    auto const rows = static_cast<std::size_t>(match.rows(options.page_tokens));
    s.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(rows));
  }

  /// What a chunk of `tokens` needs: `taken` pages, one of them for a copy where `copy_source` is set.
  [[nodiscard]] ChunkState draft(SequenceId id,
                                 SequenceState const& s,
                                 std::size_t tokens) const noexcept
  {
    ChunkState c{};
    c.sequence = id;
    c.first_token = step.tokens.size();
    c.tokens = static_cast<Index>(tokens);
    c.first_index = s.length();
    c.pages_before = static_cast<PageCount>(s.table.size());
    c.reclaimed = step.reclaimed.size();
    c.taken = pages_of(s.tokens.size() + tokens) - c.pages_before;
    Index const offset = c.first_index % options.page_tokens;
    if (offset != 0 && !writable(part_page(s), offset)) {
      c.copy_source = part_page(s);
      c.taken += 1;
    }
    return c;
  }
  [[nodiscard]] PageId part_page(SequenceState const& s) const noexcept
  {
    return s.table[static_cast<std::size_t>(s.length() / options.page_tokens)];
  }
  /// The one table that holds `page` may write its rows from `offset` on.
  [[nodiscard]] bool writable(PageId page, Index offset) const noexcept
  {
    std::uint32_t const holders = book.allocator().count(page);
    if (book.tree().contains(page)) {
      return false;
    }
    if (holders == 1) {
      return true;
    }
    auto const readers =
      step.readers(page, options.page_tokens);  // copies of this step run before its writes
    return holders == 1 + readers.copies && readers.rows <= offset;
  }
  /// Nobody but the tree shares the page that `c` would copy. What hangs below it in the tree is unused then, and
  /// leaves with all that is cached when `c` takes the last page that can be had.
  [[nodiscard]] bool may_unpublish(ChunkState const& c) const noexcept
  {
    PageId const page = c.copy_source;
    if (!c.copies() || !book.tree().contains(page) || book.allocator().count(page) != 2) {
      return false;
    }
    return book.tree().last_page(book.tree().span_of(page)) == page;
  }

  /// Memory for the chunk, so that the moves after it cannot fail. **Errors** `std::bad_alloc`.
  void reserve(SequenceState& s, ChunkState const& c)
  {
    std::size_t const end = s.tokens.size() + static_cast<std::size_t>(c.tokens);
    reserve_to(s.table, s.table.size() + c.taken + 1);
    reserve_to(s.tokens, end);
    reserve_to(step.tokens, step.tokens.size() + static_cast<std::size_t>(c.tokens));
    reserve_to(step.chunks, step.chunks.size() + 1);
    book.prepare_take(c.taken, c.unpublished, step.reclaimed);
    auto const part = static_cast<PageCount>(c.first_index / options.page_tokens);
    if ((c.copies() || c.unpublished) && part > 0 && book.tree().contains(s.table[part - 1])) {
      book.end_span_at(s.table[part - 1],
                       static_cast<Index>(part - 1));  // the part page is let go alone
    }
  }

  void grow(SequenceState& s, ChunkState const& c) noexcept
  {
    std::size_t const part = static_cast<std::size_t>(c.first_index / options.page_tokens);
    s.table.resize(c.pages_before + c.taken);
    book.take(std::span(s.table).last(c.taken), step.reclaimed);
    if (c.unpublished) {  // the take left nothing below it
      book.unpublish(s.table[part], step.reclaimed);
    }
    if (c.copies()) {
      s.table[part] = s.table.back();
      s.table.pop_back();
    }
  }

  [[nodiscard]] std::vector<PageId>& table_of(ChunkState& c) noexcept
  {
    return c.orphan ? c.orphan_table : sequences[c.sequence.slot].table;
  }

  /// Takes back what `grow` did; exact if nothing came in between.
  void undo(ChunkState& c) noexcept
  {
    std::vector<PageId>& table = table_of(c);
    std::size_t const part = static_cast<std::size_t>(c.first_index / options.page_tokens);
    if (c.copies()) {
      table.push_back(table[part]);  // within the reserve of the add
      table[part] = c.copy_source;
    }
    book.untake(std::span<PageId const>(table).last(c.taken));
    table.resize(c.pages_before);
    if (c.unpublished) {
      book.republish(step.reclaimed);
    }
    book.restore(step.reclaimed, c.reclaimed);
    leave(c);
  }

  /// The step ran; of the chunk's tokens the first `real` count.
  void settle(ChunkState& c, Index real) noexcept
  {
    if (c.copies()) {
      book.release(c.copy_source);
    }
    if (!c.orphan) {
      SequenceState& s = sequences[c.sequence.slot];
      auto const first = step.tokens.begin() + static_cast<std::ptrdiff_t>(c.first_token);
      s.tokens.insert(s.tokens.end(), first, first + real);
      shrink(s.table, pages_of(s.tokens.size()));
      s.synced = smaller(s.synced, static_cast<PageCount>(s.table.size()));
      stats.committed_rows += static_cast<std::uint64_t>(real);
    }
    leave(c);
  }

  /// The step did not run: the sequence has the pages and rows of before, the copy's source included.
  void revert(ChunkState& c) noexcept
  {
    std::vector<PageId>& table = table_of(c);
    std::size_t const part = static_cast<std::size_t>(c.first_index / options.page_tokens);
    shrink(table, c.pages_before);
    if (c.copies()) {
      book.release(table[part]);
      table[part] = c.copy_source;
    }
    if (!c.orphan) {
      SequenceState& s = sequences[c.sequence.slot];
      s.synced = smaller(s.synced, static_cast<PageCount>(part));
    }
    leave(c);
  }

  void leave(ChunkState& c) noexcept
  {
    if (c.orphan) {
      shrink(c.orphan_table, 0);
    } else {
      sequences[c.sequence.slot].step_chunk = nil;
    }
  }

  /// Puts the sequence's whole pages into the tree. A page whose tokens are there already is replaced by the
  /// indexed one in every table, and its own goes back. **Errors** `std::bad_alloc`; what was done stays.
  void publish(SequenceState& s)
  {
    auto const whole = static_cast<PageCount>(s.length() / options.page_tokens);
    auto const p = static_cast<std::size_t>(options.page_tokens);
    if (s.domain_generation != book.tree().generation(s.domain)) {
      return;
    }
    auto const tokens_at = [&](std::size_t page) {
      return std::span<Token const>(s.tokens).subspan(page * p, (whole - page) * p);
    };
    twins.clear();
    while (s.indexed + twins.size() < whole) {
      std::size_t const i = s.indexed + twins.size();
      PageId const parent = !twins.empty() ? twins.back() : i == 0 ? zero_page : s.table[i - 1];
      PageId const twin = book.tree().find_child(s.domain, parent, tokens_at(i).first(p));
      if (twin == zero_page) {
        break;
      }
      twins.push_back(twin);
    }
    if (!twins.empty()) {
      book.end_span_at(twins.back(), static_cast<Index>(s.indexed + twins.size() - 1));
      for (PageId const twin : twins) {
        if (twin != s.table[s.indexed]) {
          merge(s.table[s.indexed], twin, s.indexed);
        }
        s.indexed += 1;
      }
    }
    if (s.indexed < whole) {
      std::size_t const i = s.indexed;
      PageId const parent = i == 0 ? zero_page : s.table[i - 1];
      bool const alone = parent != zero_page && book.allocator().count(parent) == 2;
      book.publish(s.domain,
                   parent,
                   tokens_at(i),
                   std::span<PageId const>(s.table).subspan(i, whole - i),
                   alone);
      s.indexed = whole;
    }
  }

  /// `twin` replaces `page` as the `i`-th page of every sequence.
  void merge(PageId page, PageId twin, std::size_t i) noexcept
  {
    for (SequenceState& s : sequences) {
      if (s.live() && s.table.size() > i && s.table[i] == page) {
        book.share(twin);
        s.table[i] = twin;
        s.synced = smaller(s.synced, static_cast<PageCount>(i));
        book.release(page);
      }
    }
    stats.merged_pages += 1;
  }
};

}  // namespace kvcache::inline v0_1::detail
