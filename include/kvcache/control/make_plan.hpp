// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/control/tree.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file From the chunks of a step to the plan that the pools apply.

namespace kvcache::inline v0_1::detail {

/// Takes back what `make_plan` did.
inline void unmake_plan(StepState& t) noexcept
{
  t.plan.clear();
  for (ChunkState& c : t.chunks) {
    c.planned = false;
  }
}

/// Takes it back unless all went well, also where somebody throws.
class PlanGuard {
 public:
  explicit PlanGuard(StepState& t) noexcept : step_(&t) {}
  PlanGuard(PlanGuard const&) = delete;
  PlanGuard& operator=(PlanGuard const&) = delete;
  ~PlanGuard()
  {
    if (step_ != nullptr) {
      unmake_plan(*step_);
    }
  }
  void keep() noexcept { step_ = nullptr; }

 private:
  StepState* step_;
};

/// Writes the step's plan. Chunks that only attach are left out, and orphans to whose
/// pages nobody attached. Of a chunk in a page that the pools know, nothing is left to note but that it is planned.
/// **Errors** `std::bad_alloc`; the plan is then in part.
template <class State>
void make_plan(State const& state, StepState& t)
{
  Plan& plan = t.plan;
  plan.clear();
  plan.step = t.id;
  plan.stream = t.stream;
  plan.slot = static_cast<std::uint32_t>(&t - state.steps.data());
  plan.chunks.resize(t.chunks.size());
  std::size_t planned = 0;
  auto const write_row = [&plan](RowId row, std::span<PageId const> table, PageCount first) {
    if (first < table.size()) {
      auto const count = static_cast<std::uint32_t>(table.size()) - first;
      plan.tables.push_back({row, first, count, static_cast<std::uint32_t>(plan.ids.size())});
      plan.ids.append(table.data() + first, table.size() - first);
    }
  };
  for (ChunkState& c : t.chunks) {
    if (SequenceState const& s = state.sequences[c.sequence.slot];
        c.in_place && c.counts() && s.synced == s.table.size()) {
      c.planned = true;
      plan.chunks[planned++] = {c.sequence, s.row, c.first_index, c.tokens, c.slack};
      continue;
    }
    if (c.copies() &&
        c.copy_rows > 0) {  // an orphan's too: its sequence, or a fork, may have kept the copy
      plan.copies.push_back({c.copy_source, c.copy_target, c.copy_rows});
    }
    if (c.dead || c.unwanted || (c.orphan && c.orphan_pages == 0)) {
      continue;
    }
    SequenceState const& s = state.sequences[c.sequence.slot];
    std::uint32_t parents_at = nil;
    if (!c.orphan && !s.strays.empty()) {
      plan_moves(s, c, state.options.page_tokens, plan);
    }
    if (c.tree) {
      std::span<Index const> const parents = t.parents_of(c);
      parents_at = static_cast<std::uint32_t>(plan.parents.size());
      plan.parents.append(parents);
    }
    if (c.orphan) {
      write_row(c.orphan_row, t.orphan_table_of(c), 0);
    } else {
      write_row(s.row, s.table, c.copies() ? smaller(s.synced, c.copy_at) : s.synced);
    }
    if (c.tokens > 0) {
      plan.chunks[planned++] = {
        c.sequence, c.orphan ? c.orphan_row : s.row, c.first_index, c.tokens, c.slack, parents_at};
    }
  }
  plan.chunks.resize(planned);
}

/// Notes that the pools will hold what the plan says.
template <class State>
void mark_planned(State& state, StepState& t) noexcept
{
  std::uint64_t rows = 0;
  for (ChunkState& c : t.chunks) {
    if (c.planned) {
      rows += static_cast<std::uint64_t>(c.tokens);
      continue;
    }
    if (c.dead || (c.orphan && c.orphan_pages == 0)) {
      continue;
    }
    c.planned = c.tokens > 0;
    if (c.orphan) {
      continue;
    }
    SequenceState& s = state.sequences[c.sequence.slot];
    s.synced = static_cast<PageCount>(s.table.size());
    if (!s.strays.empty()) {
      c.first_moved = s.in_place();
      c.moved_until = s.strays.back() + 1;
      state.stats.moved_rows += s.strays.size();
      s.strays.clear();
    }
    rows += static_cast<std::uint64_t>(c.tokens);
    state.stats.attached_rows += static_cast<std::uint64_t>(c.attached);
  }
  state.stats.planned_rows += rows;
  state.stats.copied_pages += t.plan.copies.size();
}

}  // namespace kvcache::inline v0_1::detail
