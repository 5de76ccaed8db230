// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

/// \file From the chunks of a step to the plan that the pools apply.

namespace kvcache::inline v0_1::detail {

/// Writes the step's plan. Chunks that only attach are left out, and orphans to whose
/// pages nobody attached.
/// **Errors** `std::bad_alloc`; the plan is then in part.
template <class State>
void make_plan(State const& state, StepState& t)
{
  Plan& plan = t.plan;
  plan.clear();
  plan.step = t.id;
  plan.stream = t.stream;
  plan.slot = static_cast<std::uint32_t>(&t - state.steps.data());
  reserve_to(plan.chunks, t.chunks.size());
  auto const write_row = [&plan](RowId row, std::vector<PageId> const& table, PageCount first) {
    if (first < table.size()) {
      auto const count = static_cast<std::uint32_t>(table.size()) - first;
      plan.tables.push_back({row, first, count, static_cast<std::uint32_t>(plan.ids.size())});
      plan.ids.insert(plan.ids.end(), table.begin() + first, table.end());
    }
  };
  for (ChunkState const& c : t.chunks) {
    if (c.copies() &&
        c.copy_rows > 0) {  // an orphan's too: its sequence, or a fork, may have kept the copy
      plan.copies.push_back({c.copy_source, c.copy_target, c.copy_rows});
    }
    if (c.dead || c.unwanted || (c.orphan && c.orphan_table.empty())) {
      continue;
    }
    SequenceState const& s = state.sequences[c.sequence.slot];
    if (c.orphan) {
      write_row(c.orphan_row, c.orphan_table, 0);
    } else {
      write_row(s.row, s.table, c.copies() ? smaller(s.synced, c.copy_at) : s.synced);
    }
    if (c.tokens > 0) {
      plan.chunks.push_back(
        {c.sequence, c.orphan ? c.orphan_row : s.row, c.first_index, c.tokens, c.slack});
    }
  }
}

/// Notes that the pools will hold what the plan says.
template <class State>
void mark_planned(State& state, StepState& t) noexcept
{
  for (ChunkState& c : t.chunks) {
    if (c.dead || (c.orphan && c.orphan_table.empty())) {
      continue;
    }
    c.planned = c.tokens > 0;
    if (c.orphan) {
      continue;
    }
    SequenceState& s = state.sequences[c.sequence.slot];
    s.synced = static_cast<PageCount>(s.table.size());
    state.stats.planned_rows += static_cast<std::uint64_t>(c.tokens);
    state.stats.attached_rows += static_cast<std::uint64_t>(c.attached);
  }
  state.stats.copied_pages += t.plan.copies.size();
}

}  // namespace kvcache::inline v0_1::detail
