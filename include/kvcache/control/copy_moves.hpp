// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/control/table_moves.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>

/// \file Pages that a step copies before it writes, and who goes back to what when the copy is never made.
///
///   P  source: what the table held; the step holds it from `add` on, until it retires or the chunk dies
///   Q  target: held by tables only. When these leave, the page may be given out again, and `is_copy` says no
///
/// Whoever holds Q has committed rows in it that came from P, as nothing behind the copying step is committed. So P can stand
/// in for it whatever became of the tables meanwhile.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
struct CopyMoves : TableMoves<Allocator, Prefix, Replacement> {
  using Base = TableMoves<Allocator, Prefix, Replacement>;
  using Base::Base;
  using Base::book;
  using Base::options;
  using Stage = StepState::Stage;

  /// `page` holds what chunk `c` copied: the target's id, unless it was let go and given out again.
  [[nodiscard]] bool is_copy(ChunkState const& c, PageId page) const noexcept
  {
    return c.copies() && c.copy_target == page && book.uses(page) == c.target_use;
  }
  /// The one table that holds `page` may write its rows from `offset` on.
  [[nodiscard]] bool writable(PageId page, Index offset, StreamId stream) const noexcept
  {
    std::uint32_t others = book.allocator().count(page) - 1;
    if (others == 0) {  // nor does the tree hold it
      return !book.fences().blocks(page, stream);
    }
    if (book.tree().contains(page) || book.fences().blocks(page, stream)) {
      return false;
    }
    if (others > book.step_uses().of(page)) {
      return false;  // one of them at least is no copy in flight
    }
    for (StepState const& step : this->steps) {
      for (ChunkState const& c : step.chunks) {
        if (c.copy_source == page) {
          if (c.copy_rows > offset) {
            return false;
          }
          others -= 1;
        }
      }
    }
    return others == 0;
  }
  /// The page that the chunk must copy before it writes.
  void find_copy(StepState const& t, SequenceState const& s, ChunkState& c) const noexcept
  {
    Index const low = c.first_index - c.slack;
    for (auto i = static_cast<PageCount>(low / options.page_tokens); i < s.table.size(); ++i) {
      Index const begin = static_cast<Index>(i) * options.page_tokens;
      if (writable(s.table[i], low > begin ? low - begin : 0, t.stream)) {
        continue;
      }
      c.copy_source = s.table[i];
      auto const filler = book.step_uses().writer(c.copy_source);
      if (&this->steps[filler.step] == &t && filler.chunk < t.chunks.size() &&
          is_copy(t.chunks[filler.chunk], c.copy_source)) {
        c.copy_source =
          t.chunks[filler.chunk].copy_source;  // a copy never reads what the same plan fills
      }
      c.copy_at = i;
      c.copy_rows =
        c.first_index - begin < options.page_tokens ? c.first_index - begin : options.page_tokens;
      c.taken += 1;
      return;  // pages behind it hold nothing but this sequence's drafts
    }
  }
  /// Rows of the sequence lie in the copy that `c` makes, or were copied from there by a chunk in flight.
  [[nodiscard]] bool rests_on(SequenceState const& s, ChunkState const& c) const noexcept
  {
    bool found = c.copy_at < s.table.size() && this->is_copy(c, s.table[c.copy_at]);
    for (Flight const& flight : s.in_flight()) {
      ChunkState const& own = this->chunk_of(flight);
      found = found || (own.copies() && this->is_copy(c, own.copy_source));
    }
    return found;
  }

  /// A sequence of step `t` lets go of `page`, which `t` holds: one that was submitted may read it, and so may those before one that
  /// is being built.
  void fence_before(StepState const& t, PageId page) noexcept
  {
    if (StepState const* const reader =
          t.stage == Stage::submitted ? &t : this->oldest_submitted(t.stream)) {
      book.fence(page, t.stream, reader->id);
    }
  }
  /// Gives the copied page back to every holder of the copy. They get the source itself, which chunk `c` of step `t`
  /// holds until here: what stood in the table may have been a copy too, and gone since.
  void give_back_source(StepState const& t, ChunkState& c) noexcept
  {
    if (!c.copies()) {
      return;
    }
    if (is_copy(c, c.copy_target)) {
      this->replace(c.copy_target, c.copy_source, c.copy_at, this->sequences[c.sequence.slot]);
    }
    fence_before(t, c.copy_source);
    book.release_of_step(c.copy_source);
    c.copy_source = zero_page;
  }
};

}  // namespace kvcache::inline v0_1::detail
