// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

/// \file From the chunks of a step to the plan that the pools apply.

namespace kvcache::inline v0_1::detail {

/// Writes the step's plan. Chunks whose sequence was closed are left out. **Errors** `std::bad_alloc`; the
/// plan is then in part.
template <class State>
void make_plan(State& state)
{
  Plan& plan = state.step.plan;
  plan.step = state.step.id;
  reserve_to(plan.chunks, state.step.chunks.size());
  for (ChunkState const& c : state.step.chunks) {
    if (c.orphan) {
      continue;
    }
    SequenceState const& s = state.sequences[c.sequence.slot];
    RowId const row{c.sequence.slot};
    auto const part = static_cast<PageCount>(c.first_index / state.options.page_tokens);
    PageCount const first = c.copies() ? smaller(s.synced, part) : s.synced;
    if (first < s.table.size()) {
      auto const count = static_cast<std::uint32_t>(s.table.size()) - first;
      plan.tables.push_back({row, first, count, static_cast<std::uint32_t>(plan.ids.size())});
      plan.ids.insert(plan.ids.end(), s.table.begin() + first, s.table.end());
    }
    if (c.copies()) {
      plan.copies.push_back(
        {c.copy_source, s.table[part], c.first_index % state.options.page_tokens});
    }
    plan.chunks.push_back({c.sequence, row, c.first_index, c.tokens});
  }
}

/// Notes that the pools will hold what the plan says.
template <class State>
void mark_planned(State& state) noexcept
{
  for (ChunkState& c : state.step.chunks) {
    if (c.orphan) {
      continue;
    }
    c.planned = true;
    SequenceState& s = state.sequences[c.sequence.slot];
    s.synced = static_cast<PageCount>(s.table.size());
    state.stats.planned_rows += static_cast<std::uint64_t>(c.tokens);
  }
  state.stats.copied_pages += state.step.plan.copies.size();
}

}  // namespace kvcache::inline v0_1::detail
