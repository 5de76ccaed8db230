// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// \file What control says about itself: figures, a digest, and a recount from scratch.

namespace kvcache::inline v0_1::detail {

/// Whether only the step in flight holds `page`, the `index`-th of its tables, and `chunk` is the first of its
/// chunks that does. Pages are shared at one index only, so the other chunks are asked for that one.
template <class State>
[[nodiscard]] bool is_fenced_by(State const& state,
                                ChunkState const& chunk,
                                PageId page,
                                std::size_t index) noexcept
{
  std::uint32_t holders = state.book.tree().contains(page) ? 1U : 0U;
  bool before = true;
  for (ChunkState const& c : state.step.chunks) {
    before = before && &c != &chunk;
    bool const holds =
      c.copy_source == page || (index < c.orphan_table.size() && c.orphan_table[index] == page);
    if (holds && before) {
      return false;
    }
    holders += holds ? 1U : 0U;
  }
  return state.book.allocator().count(page) == holders;
}

/// Pages that only the step in flight holds, in tables of closed sequences or as sources of copies: they come
/// back when it retires. **Cost** O(their number x chunks).
template <class State>
[[nodiscard]] PageCount fenced_pages(State const& state) noexcept
{
  PageCount fenced = 0;
  for (ChunkState const& c : state.step.chunks) {
    for (std::size_t i = 0; i < c.orphan_table.size(); ++i) {
      fenced += is_fenced_by(state, c, c.orphan_table[i], i) ? 1U : 0U;
    }
    if (c.copies()) {
      auto const part = static_cast<std::size_t>(c.first_index / state.options.page_tokens);
      fenced += is_fenced_by(state, c, c.copy_source, part) ? 1U : 0U;
    }
  }
  return fenced;
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
      h = mix(h, std::uint64_t{s.domain.value} << 32 | s.domain_generation);
      h = mix(h, std::uint64_t{s.indexed} << 32 | s.step_chunk);
      h = hash_words(h, s.tokens.data(), s.tokens.size());
      for (PageId const page : s.table) {
        h = mix(h, page.value);
      }
    }
  }
  for (std::uint32_t const slot : state.free_slots) {
    h = mix(h, slot);
  }
  h = mix(h, static_cast<std::uint64_t>(state.step.stage));
  for (ChunkState const& c : state.step.chunks) {
    h = mix(h, std::uint64_t{c.sequence.slot} << 32 | static_cast<std::uint32_t>(c.tokens));
    h = mix(h, std::uint64_t{c.copy_source.value} << 32 | c.taken);
  }
  return h;
}

/// Invariants I1 to I7: conservation, holders, tables, evictable pages, the tree.
template <class State>
[[nodiscard]] Report check_state(State const& state)
{
  if (char const* const broken = state.book.broken(); broken != nullptr) {
    return {broken, 0};
  }
  auto const& tree = state.book.tree();
  std::vector<std::uint32_t> holders(std::size_t{state.options.pages} + 1, 0);
  auto const hold = [&](std::vector<PageId> const& table) {
    for (PageId const page : table) {
      if (page == zero_page || page.value > state.options.pages) {
        return false;
      }
      holders[page.value] += 1;
    }
    return true;
  };
  std::uint32_t live = 0;
  for (std::uint32_t slot = 0; slot < state.sequences.size(); ++slot) {
    SequenceState const& s = state.sequences[slot];
    if (!s.live()) {
      if (!s.table.empty()) {
        return {"a closed sequence holds pages", slot};
      }
      continue;
    }
    ++live;
    if (!hold(s.table)) {
      return {"I5: a table entry is no page of the pool", slot};
    }
    std::size_t rows = s.tokens.size();
    if (s.step_chunk != nil) {
      rows += static_cast<std::size_t>(state.step.chunks[s.step_chunk].tokens);
    }
    if (s.table.size() != state.pages_of(rows)) {
      return {"I5: pages of a sequence differ from ceil(rows / page_tokens)", slot};
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
  if (live + state.free_slots.size() != state.sequences.size()) {
    return {"slots were lost or listed twice", live};
  }
  for (ChunkState const& c : state.step.chunks) {
    if (!hold(c.orphan_table)) {
      return {"I5: a table entry is no page of the pool", c.sequence.slot};
    }
    holders[c.copy_source.value] += c.copies() ? 1U : 0U;
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
