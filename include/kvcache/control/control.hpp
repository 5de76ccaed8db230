// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/make_plan.hpp>
#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/refusals.hpp>
#include <kvcache/control/self_check.hpp>
#include <kvcache/control/sequence_calls.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

/// \file The control plane: sequences, their tables, and steps as transactions. Ids and integers only.
///
///   open --------> length = rows found in the tree
///   begin, add --> rows planned, pages reserved          drop: nothing happened
///   submit ------> the plan goes to the pools            fail: the rows never existed
///   commit ------> accepted rows are real; whole pages are published in the tree
///
/// The same calls give the same ids on every rank: no device, no clock, no memory size is read here.
/// A public call does all that it says or changes nothing.
///
/// One step is in flight at a time. A sequence in that step answers `busy` to fork and truncate; closing it
/// is allowed, the step then keeps its pages until it retires, because a kernel may still write them.
///
/// Cost: open O(prompt); add and commit O(tokens + pages touched); fork and close O(pages). A step in
/// steady state allocates nothing but room in the index for pages that it completes.
/// **Threads** one owner; const calls may run beside each other.

namespace kvcache::inline v0_1 {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
class Control : public SequenceCalls<Allocator, Prefix, Replacement> {
  using Base = SequenceCalls<Allocator, Prefix, Replacement>;

 public:
  using Base::options;
  using typename Base::PolicyOptions;

  /// **Errors** the first field of `options` that cannot work; `no_memory`.
  [[nodiscard]] static Result<Control> create(ControlOptions options,
                                              PolicyOptions const& policies = {})
  {
    if (Error const error = options.complete(); error.why != Why::ok) {
      return error;
    }
    std::optional<Control> made;
    if (!detail::memory_sufficed_for([&] { made.emplace(Control(options, policies)); })) {
      return detail::no_memory_for_pages(options.pages);
    }
    return std::move(*made);
  }

  // ---- steps

  /// Opens a step. **Errors** `busy`: the step before has not retired. **Cost** O(1).
  [[nodiscard]] Result<StepId> begin(StreamId stream = {}) noexcept
  {
    if (state_.step.stage != Stage::none) {
      return detail::busy(state_.step.id);
    }
    state_.step.clear();
    state_.step.id = StepId{state_.next_step++};
    state_.step.stage = Stage::open;
    state_.step.plan.stream = stream;
    return state_.step.id;
  }

  /// Adds the next tokens of a sequence to an open step and reserves pages for their rows, evicting cached
  /// pages where free ones do not suffice. Returns the rows planned. A sequence is in a step at most once.
  /// **Cost** O(tokens + pages taken). **Errors** a `Shortage`, nothing changed.
  [[nodiscard]] Result<Index, Shortage> add(StepId id, SequenceId sequence, Chunk const& chunk)
  {
    if (!at(id, Stage::open)) {
      return refused(detail::stale(id));
    }
    detail::SequenceState* const s = idle(sequence);
    if (s == nullptr) {
      return refused(unusable(sequence));
    }
    if (Error const error =
          detail::check(chunk, s->tokens.size(), state_.step.tokens.size(), options());
        error.why != Why::ok) {
      return refused(error);
    }
    detail::ChunkState c = state_.draft(sequence, *s, chunk.tokens.size());
    PageCount const room = state_.book.num_free() + state_.book.num_cached();
    if (c.taken == room + 1 && state_.may_unpublish(c)) {
      c.unpublished =
        true;  // nobody else reads the page: it leaves the index and is written in place
      c.copy_source = zero_page;
      c.taken -= 1;
    }
    if (c.taken > room) {
      state_.stats.shortages += 1;
      return Shortage{.why = Why::no_pages,
                      .need = c.taken,
                      .free = state_.book.num_free(),
                      .evictable = state_.book.num_cached(),
                      .fenced = detail::fenced_pages(state_)};
    }
    if (!detail::memory_sufficed_for([&] { state_.reserve(*s, c); })) {
      return refused(detail::no_memory(chunk.tokens.size()));
    }
    state_.grow(*s, c);
    s->step_chunk = static_cast<std::uint32_t>(state_.step.chunks.size());
    state_.step.tokens.insert(state_.step.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    state_.step.chunks.push_back(std::move(c));
    return static_cast<Index>(chunk.tokens.size());
  }

  /// Closes the step for adding and makes its plan. **Cost** O(chunks + table entries).
  /// **Errors** `stale_step`, `no_memory`.
  [[nodiscard]] Result<Done> submit(StepId id)
  {
    if (!at(id, Stage::open)) {
      return detail::stale(id);
    }
    if (!detail::memory_sufficed_for([&] { detail::make_plan(state_); })) {
      StreamId const stream = plan().stream;
      state_.step.plan.clear();
      state_.step.plan.stream = stream;  // the step may be submitted again
      return detail::no_memory(state_.step.tokens.size());
    }
    detail::mark_planned(state_);
    state_.step.stage = Stage::submitted;
    return Done{};
  }

  /// What the pools must do; empty before `submit`. Valid until the step retires.
  [[nodiscard]] Plan const& plan() const noexcept { return state_.step.plan; }

  /// Takes an open step back: nothing happened. **Cost** as its adds. **Errors** `stale_step`.
  Result<Done> drop(StepId id) noexcept
  {
    if (!at(id, Stage::open)) {
      return detail::stale(id);
    }
    for (std::size_t i = state_.step.chunks.size(); i-- > 0;) {
      state_.undo(state_.step.chunks[i]);
    }
    state_.step.clear();
    return Done{};
  }

  /// Retires a submitted step that ran: of each planned chunk the first `accepted` tokens are real from now
  /// on (all, where the span is empty), the others never existed. Whole pages are published.
  /// **Cost** O(tokens + pages). **Errors** `stale_step`, `bad_config`; nothing changed.
  Result<Done> commit(StepId id, std::span<Index const> accepted = {})
  {
    if (!at(id, Stage::submitted)) {
      return detail::stale(id);
    }
    if (Error const error = detail::check(accepted, plan().chunks); error.why != Why::ok) {
      return error;
    }
    std::size_t planned = 0;
    for (detail::ChunkState& chunk : state_.step.chunks) {
      Index const real = accepted.empty() || !chunk.planned ? chunk.tokens : accepted[planned];
      planned += chunk.planned ? 1U : 0U;
      state_.settle(chunk, real);
    }
    for (detail::ChunkState const& chunk : state_.step.chunks) {
      if (!chunk.orphan) {
        (void)detail::memory_sufficed_for(
          [&] { state_.publish(state_.sequences[chunk.sequence.slot]); });
      }
    }
    state_.step.clear();
    return Done{};
  }

  /// Retires a submitted step that did not run to its end: its rows never existed. **Errors** `stale_step`.
  Result<Done> fail(StepId id) noexcept
  {
    if (!at(id, Stage::submitted)) {
      return detail::stale(id);
    }
    for (std::size_t i = state_.step.chunks.size(); i-- > 0;) {
      state_.revert(state_.step.chunks[i]);
    }
    state_.step.clear();
    return Done{};
  }

  // ---- truth

  /// **Cost** O(pages) for the fenced ones, else O(1).
  [[nodiscard]] Stats stats() const noexcept { return detail::full_stats(state_); }
  /// Equal for two planes that were fed the same calls; ranks compare it. **Cost** O(all state).
  [[nodiscard]] std::uint64_t digest() const noexcept { return detail::digest_of(state_); }
  /// Recounts everything from scratch. **Cost** O(all state), allocates.
  [[nodiscard]] Report check_invariants() const { return detail::check_state(state_); }

 private:
  using Base::Base;
  using Base::idle;
  using Base::state_;
  using Base::unusable;
  using Stage = detail::StepState::Stage;

  [[nodiscard]] bool at(StepId id, Stage stage) const noexcept
  {
    return id == state_.step.id && state_.step.stage == stage;
  }
  [[nodiscard]] static Shortage refused(Error const& error) noexcept
  {
    return {.why = error.why, .detail = error};
  }
};

}  // namespace kvcache::inline v0_1
