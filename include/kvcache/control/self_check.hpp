// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/book_check.hpp>
#include <kvcache/control/check_kept_ids.hpp>
#include <kvcache/control/control_state.hpp>
#include <kvcache/control/media_check.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>

/// \file What control says about itself: figures, a digest, and a recount from scratch.

namespace kvcache::inline v0_1::detail {

/// Calls `visit(StepState, PageId)` for every hold of a step in flight: what sequences let go of, copies' sources, pending pages.
template <class State, class Visit>
void for_each_step_hold(State const& state, Visit&& visit)
{
  for (StepState const& t : state.steps) {
    for (PageId const page : t.orphans) {
      visit(t, page);
    }
    for (ChunkState const& c : t.chunks) {
      if (c.copies()) {
        visit(t, c.copy_source);
      }
      for (PageCount i = 0; i < c.pending; ++i) {
        visit(t, t.pending[c.pending_at + i]);
      }
    }
  }
}

/// Pages that no sequence uses and that come back when steps in flight retire.
template <class State>
[[nodiscard]] PageCount fenced_pages(State const& state) noexcept
{
  return state.book.fences().num_waiting() + state.book.num_kept();
}

template <class State>
[[nodiscard]] Stats full_stats(State const& state) noexcept
{
  Stats stats = state.stats;
  stats.capacity = state.options.pages;
  stats.free = state.book.num_free();
  stats.cached = state.book.num_cached();
  stats.held = stats.capacity - stats.free - stats.cached;
  stats.fenced = fenced_pages(state);
  stats.evicted_pages = state.book.evicted_pages();
  stats.sequences =
    state.options.max_sequences - static_cast<std::uint32_t>(state.free_slots.size());
  stats.tree_spans = state.book.tree().num_spans();
  stats.index_bytes = state.book.tree().bytes();
  return stats;
}

/// Everything that decides what later calls answer, and nothing else.
template <class State>
[[nodiscard]] std::uint64_t digest_of(State const& state) noexcept
{
  std::uint64_t h = state.book.digest();
  for (SequenceState const& s : state.sequences) {
    if (s.generation == 0) {
      continue;  // never used
    }
    h = mix(h, s.generation);
    if (s.live()) {
      h =
        mix(mix(h, std::uint64_t{s.domain.slot} << 32 | s.domain.generation), s.domain_generation);
      h = mix(h,
              std::uint64_t{s.indexed} << 32 | std::uint64_t{s.num_flights} << 1 |
                (s.suspended ? 1U : 0U));
      h = mix(h, std::uint64_t{s.row.value} << 32 | static_cast<std::uint32_t>(s.attach_limit));
      h = hash_words(h, s.tokens.data(), s.tokens.size());
      for (PageId const page : s.table) {
        h = mix(h, page.value);
      }
      h = hash_words(h, s.strays.data(), s.strays.size());
      h = mix_spans(h, s.media);
    }
  }
  for (PinState const& pin : state.pins) {
    h = mix(h, pin.generation);
    for (PageId const page : pin.table) {
      h = mix(h, page.value);
    }
  }
  for (std::uint32_t const slot : state.free_pins) {
    h = mix(h, slot);
  }
  for (std::uint32_t const slot : state.free_slots) {
    h = mix(h, slot);
  }
  for (RowId const row : state.free_rows) {
    h = mix(h, row.value);
  }
  for (StepState const& t : state.steps) {
    if (t.stage == StepState::Stage::none) {
      continue;
    }
    h = mix(h, t.id.value << 8 | static_cast<std::uint64_t>(t.stage) << 4 | (t.doomed ? 1U : 0U));
    for (ChunkState const& c : t.chunks) {
      h = mix(h, std::uint64_t{c.sequence.slot} << 32 | static_cast<std::uint32_t>(c.tokens));
      h = mix(h,
              std::uint64_t{c.copy_source.value} << 32 | c.taken << 2 | (c.orphan ? 2U : 0U) |
                (c.dead ? 1U : 0U));
      h = mix(h, std::uint64_t{c.pending} << 32 | static_cast<std::uint32_t>(c.first_index));
      h = mix(h, std::uint64_t{c.tree} << 32 | static_cast<std::uint32_t>(c.first_moved));
    }
  }
  return h;
}

/// The last row of `s` lies inside a page, and a step in flight has yet to write rows of it up to there. Who attaches
/// to pending pages takes whole ones; cutting and forking keep part of one only over rows that are written.
template <class State>
[[nodiscard]] bool stands_on_unwritten(State const& state, SequenceState const& s) noexcept
{
  auto const part = static_cast<std::size_t>(s.length() / state.options.page_tokens);
  if (s.length() % state.options.page_tokens == 0 || part >= s.table.size()) {
    return false;
  }
  for (StepState const& t : state.steps) {
    for (ChunkState const& c : t.chunks) {
      if (c.first_index < s.length() && t.will_write(c, s.table[part], part)) {
        return true;
      }
    }
  }
  return false;
}

/// What steps hold of each page, and the pages that they alone hold.
template <class State>
[[nodiscard]] Report check_step_uses(State const& state)
{
  ZeroArray<std::uint32_t> holds(std::size_t{state.options.pages} + 1);
  for_each_step_hold(state, [&](StepState const&, PageId page) { holds[page.value] += 1; });
  PageCount kept = 0;
  for (std::uint32_t page = 1; page <= state.options.pages; ++page) {
    if (holds[page] != state.book.step_uses().of(PageId{page})) {
      return {"I2: holds of steps were miscounted", page};
    }
    kept += holds[page] != 0 && state.book.num_users(PageId{page}) == 0 ? 1U : 0U;
  }
  if (kept != state.book.num_kept()) {
    return {"pages that steps alone hold were miscounted", kept};
  }
  return {};
}

/// Who names which domain, recounted: a domain is there while somebody does.
template <class State>
[[nodiscard]] bool names_are_right(State const& state)
{
  auto const& tree = state.book.tree();
  DomainNames names = state.book.names().blank();
  for (std::uint32_t value = 1; value <= state.options.pages; ++value) {
    if (tree.contains(PageId{value})) {
      names.add_pages(tree.domain(tree.span_of(PageId{value})), 1);
    }
  }
  if (state.book.keeps_empty()) {
    names.name(*tree.find(Domain{}));
  }
  for (SequenceState const& s : state.sequences) {
    if (s.live()) {
      names.name(s.domain);
    }
  }
  for (PinState const& pin : state.pins) {
    if (pin.live()) {
      names.name(pin.domain);
    }
  }
  for (StepState const& t : state.steps) {
    t.reclaimed.for_each_domain([&](DomainId id) { names.name(id); });
  }
  for (std::uint64_t n = state.book.events().oldest(); n < state.book.events().next(); ++n) {
    names.name(state.book.events().at(n).domain);
  }
  return names == state.book.names();
}

/// Invariants I1 to I7: conservation, holders, tables, evictable pages, the tree.
template <class State>
[[nodiscard]] Report check_state(State const& state)
{
  if (char const* const broken = broken_book(state.book); broken != nullptr) {
    return {broken, 0};
  }
  if (char const* const broken = broken_names(state); broken != nullptr) {
    return {broken, 0};
  }
  auto const& tree = state.book.tree();
  if (!names_are_right(state)) {
    return {"who names a domain was miscounted, or one that nobody names has not ended", 0};
  }
  ZeroArray<std::uint32_t> holders(std::size_t{state.options.pages} + 1);
  auto const hold = [&](std::span<PageId const> table) {
    for (PageId const page : table) {
      if (page == zero_page || page.value > state.options.pages) {
        return false;
      }
      holders[page.value] += 1;
    }
    return true;
  };
  std::uint32_t live = 0;
  std::uint32_t rows = 0;
  for (std::uint32_t slot = 0; slot < state.sequences.size(); ++slot) {
    SequenceState const& s = state.sequences[slot];
    if (!s.live()) {
      if (!s.table.empty()) {
        return {"a closed sequence holds pages", slot};
      }
      continue;
    }
    ++live;
    if (!state.open_slots.contains(slot)) {
      return {"an open sequence is not listed", slot};
    }
    if (!hold(s.table)) {
      return {"I5: a table entry is no page of the pool", slot};
    }
    if (s.suspended) {
      if (!s.table.empty() || s.num_flights != 0) {
        return {"a suspended sequence holds pages", slot};
      }
      continue;
    }
    ++rows;
    if (s.table.size() != state.pages_kept(s)) {
      return {"I5: pages of a sequence differ from ceil(rows / page_tokens)", slot};
    }
    if (stands_on_unwritten(state, s)) {
      return {"I3: a sequence keeps part of a page over rows that are not written", slot};
    }
    Index before = s.in_place() - 1;
    for (Index const stray : s.strays) {
      if (stray <= before) {
        return {"a stray row lies before its place, or before another one", slot};
      }
      before = stray;
    }
    bool const publishes = s.domain_generation == tree.generation(s.domain);
    for (std::size_t i = 0; i < s.table.size(); ++i) {
      if (publishes && i < s.indexed && !tree.contains(s.table[i])) {
        return {"a page that counts as published is not in the tree", slot};
      }
      if (tree.contains(s.table[i]) && i > 0 && tree.previous_page(s.table[i]) != s.table[i - 1]) {
        return {"a holder of a cached page does not hold the page before it", slot};
      }
      if (tree.contains(s.table[i]) && i == 0 && tree.previous_page(s.table[i]) != zero_page) {
        return {"a cached page stands at another index in a table", slot};
      }
    }
  }
  for (std::uint32_t slot = 0; slot < state.pins.size(); ++slot) {
    if (!hold(state.pins[slot].table) ||
        state.pins[slot].live() == state.pins[slot].table.empty()) {
      return {"a pin holds no page, or what is no page of the pool", slot};
    }
  }
  ZeroArray<bool> free_pin(state.pins.size());
  std::size_t live_pins = 0;
  for (PinState const& pin : state.pins) {
    live_pins += pin.live() ? 1U : 0U;
  }
  for (std::uint32_t const slot : state.free_pins) {
    if (state.pins[slot].live() || free_pin[slot]) {
      return {"a place of a pin is listed twice, or though it is taken", slot};
    }
    free_pin[slot] = true;
  }
  if (live_pins + state.free_pins.size() != state.pins.size()) {
    return {"places of pins were lost", static_cast<std::uint32_t>(live_pins)};
  }
  if (live + state.free_slots.size() != state.sequences.size()) {
    return {"slots were lost or listed twice", live};
  }
  if (!state.spares.check_invariants()) {
    return {"arrays of closed sequences were miscounted, or are too many", 0};
  }
  if (live != state.open_slots.size()) {
    return {"open sequences were lost or listed twice", live};
  }
  for (StepState const& t : state.steps) {
    if (!hold(t.orphans)) {
      return {"I5: a page that a step keeps is no page of the pool",
              static_cast<std::uint32_t>(t.id.value)};
    }
    rows += static_cast<std::uint32_t>(t.rows.size());
    for (ChunkState const& c : t.chunks) {
      if (c.copies() && c.copy_source.value > state.options.pages) {
        return {"I5: what a step copies is no page of the pool",
                static_cast<std::uint32_t>(t.id.value)};
      }
      holders[c.copy_source.value] += c.copies() ? 1U : 0U;
      for (PageCount i = 0; i < c.pending; ++i) {
        PageId const page = t.pending[c.pending_at + i];
        holders[page.value] += 1;
        if (tree.contains(page) && state.book.tag(page).step != t.id) {
          return {"I4: a pending page is not tagged with its step", page.value};
        }
      }
    }
  }
  if (Report const report = check_kept_ids(state); !report) {
    return report;
  }
  if (rows + state.free_rows.size() != state.options.max_sequences) {
    return {"table rows were lost or listed twice", rows};
  }
  state.book.fences().for_each([&](PageId page) { holders[page.value] += 1; });
  if (Report const report = check_step_uses(state); !report) {
    return report;
  }
  PageCount free = 0;
  for (std::uint32_t page = 1; page <= state.options.pages; ++page) {
    std::uint32_t const counted = holders[page] + (tree.contains(PageId{page}) ? 1U : 0U);
    if (counted != state.book.allocator().count(PageId{page})) {
      return {"I2: holders of a page were miscounted", page};
    }
    free += counted == 0 ? 1U : 0U;
  }
  if (free != state.book.num_free()) {
    return {"I1: free + held + cached differs from the capacity", free};
  }
  return {};
}

}  // namespace kvcache::inline v0_1::detail
