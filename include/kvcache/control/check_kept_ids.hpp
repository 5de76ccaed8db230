// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Page ids that steps keep beside their holds, each of which must mean the page that it meant: what a copy fills, the table
/// of an orphan that will be computed, what left the index to be written in place. (Evicted pages in a journal are compared
/// with the top of the free list before they are used; `pending`, `orphans` and sources of copies are holds.)
template <class State>
[[nodiscard]] Report check_kept_ids(State const& state)
{
  auto const& book = state.book;
  auto const held = [&](PageId page) {
    return page != zero_page && page.value <= state.options.pages &&
           book.allocator().count(page) != 0;
  };
  struct Copy {
    StepId step{};
    PageCount at = 0;
  };
  List<Copy> copies(std::size_t{state.options.pages} + 1);  // by target
  List<StepId> kept(std::size_t{state.options.pages} + 1);  // by page: the step that holds it
  for (StepState const& t : state.steps) {
    auto const step = static_cast<std::uint32_t>(t.id.value);
    for (PageId const page : t.orphans) {
      kept[page.value] = t.id;
    }
    for (std::size_t k = 0; k < t.chunks.size(); ++k) {
      ChunkState const& c = t.chunks[k];
      if (c.copies() && (!held(c.copy_source) || c.copy_target == zero_page ||
                         c.copy_target.value > state.options.pages)) {
        return {"I2: what a step copies is held by nobody", step};
      }
      if (c.copies() && book.uses(c.copy_target) == c.target_use) {
        if (copies[c.copy_target.value].step.value != 0) {
          return {"two copies fill one page", c.copy_target.value};
        }
        copies[c.copy_target.value] = {t.id, c.copy_at};
      }
      if (t.stage != StepState::Stage::open || c.dead) {
        continue;
      }
      std::size_t next = k + 1;
      while (next < t.chunks.size() && t.chunks[next].in_place) {
        ++next;  // it evicted nothing, and does not say so
      }
      std::size_t const entries =
        next < t.chunks.size() ? t.chunks[next].reclaimed : t.reclaimed.size();
      if (c.unpublished && !held(t.reclaimed.last_page(entries))) {
        return {"I2: a page that left the index to be written in place is held by nobody", step};
      }
      auto const& own = state.sequences[c.sequence.slot];
      bool const lives = own.generation == c.sequence.generation;
      auto const table = t.orphan_table_of(c);
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (kept[table[i].value] != t.id &&
            !(lives && i < own.table.size() && own.table[i] == table[i])) {
          return {"I2: a step will write a page that nobody holds for it", table[i].value};
        }
      }
    }
  }
  for (std::uint32_t slot = 0; slot < state.sequences.size(); ++slot) {
    SequenceState const& s = state.sequences[slot];
    for (std::size_t i = 0; i < s.table.size(); ++i) {
      Copy const& copy = copies[s.table[i].value];
      if (copy.step.value != 0 && (copy.at != i || s.bound_until < copy.step)) {
        return {"who has a copy in flight does not belong to its step", slot};
      }
    }
    for (Flight const& flight : s.in_flight()) {
      if (flight.chunk >= flight.step->chunks.size() ||
          state.sequences[state.chunk_of(flight).sequence.slot].generation != s.generation ||
          state.chunk_of(flight).sequence.slot != slot || !state.chunk_of(flight).counts()) {
        return {"a sequence has a chunk in flight that is not its own, or does not count", slot};
      }
    }
  }
  return {};
}

}  // namespace kvcache::inline v0_1::detail
