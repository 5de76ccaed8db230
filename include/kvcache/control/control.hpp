// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/admission_calls.hpp>
#include <kvcache/control/control_state.hpp>
#include <kvcache/control/make_plan.hpp>
#include <kvcache/control/media_moves.hpp>
#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/refusals.hpp>
#include <kvcache/control/self_check.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/control/step_tokens.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/first_room.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

/// \file The control plane: sequences, their tables, and steps as transactions. Ids and integers only.
///
///   open --------> length = rows found in the tree
///   begin, add --> rows planned, pages reserved          drop: nothing happened
///   submit ------> the plan goes to the pools            fail: the rows never existed, nor what depends on them
///   commit ------> accepted rows are real; whole pages are published in the tree
///
/// The same calls give the same ids on every rank: no device, no clock, no memory size is read here.
/// A public call does all that it says or changes nothing.
///
/// A stream may have two steps submitted, or one and another that is being built; steps of a stream retire in the
/// order of their submission. What a chunk that must be accepted whole will write is *pending*: its stream finds it
/// from `submit` on, everybody else after commit. Sequences may be forked, cut, suspended and closed
/// meanwhile: the rules, and the failure that each prevents, are in `docs/life-of-a-token.md`.
///
/// Cost: open O(prompt); add and commit O(tokens + pages touched); fork and close O(pages). A step in
/// steady state allocates nothing.
/// **Threads** one owner; const calls may run beside each other.

namespace kvcache::inline v0_1 {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
class Control : public AdmissionCalls<Allocator, Prefix, Replacement> {
  using Base = AdmissionCalls<Allocator, Prefix, Replacement>;

 public:
  using Base::options;
  using Base::tokens;
  using typename Base::PolicyOptions;

  static constexpr std::uint32_t max_steps_in_flight = detail::SequenceState::max_flights - 1;

  /// **Errors** the first field of `options` that cannot work; `no_memory`.
  [[nodiscard]] static Result<Control> create(ControlOptions options,
                                              PolicyOptions const& policies = {})
  {
    if (Error const error = options.complete(); error.why != Why::ok) {
      return error;
    }
    std::optional<Control> made;
    if (!detail::memory_sufficed_for([&] {
          made.emplace(Control(options, policies));
          made->outcomes_.reserve(detail::first_room(options.max_sequences));
        })) {
      return detail::no_memory_for_pages(options.pages);
    }
    return std::move(*made);
  }

  // ---- steps

  /// Opens a step of `stream`. **Cost** O(1).
  /// **Errors** `busy`: the stream has a step open, or two in flight; `bad_config`: no such stream.
  [[nodiscard]] Result<StepId> begin(StreamId stream = {}, StepOptions how = {}) noexcept
  {
    if (Error const error = detail::check(stream); error.why != Why::ok) {
      return error;
    }
    StepState* empty = nullptr;
    std::uint32_t submitted = 0;
    for (StepState& t : state_.steps_of(stream)) {
      if (t.stage == Stage::open) {
        return detail::busy(t.id);
      }
      submitted += t.stage == Stage::submitted ? 1U : 0U;
      empty = t.stage == Stage::none ? &t : empty;
    }
    if (submitted == max_steps_in_flight) {
      return detail::busy(state_.oldest_submitted(stream)->id);
    }
    empty->clear();
    empty->id = StepId{state_.next_step++};
    empty->stream = stream;
    empty->stage = Stage::open;
    empty->attach = how.attach;
    state_.latest = empty;
    return empty->id;
  }

  /// Adds the next tokens of a sequence to an open step and reserves pages for them, evicting cached ones where free ones
  /// do not suffice. Returns the rows planned: all that were given. Only a step that was begun with `StepOptions::attach`
  /// takes whole pages that others hold or will write in this step or before it, and plans the chunk's last tokens.
  /// A sequence is in a step at most once. **Cost** O(tokens + pages taken).
  /// **Errors** a `Shortage`, nothing changed.
  [[nodiscard]] Result<Index, Shortage> add(StepId id, SequenceId sequence, Chunk const& chunk)
  {
    if (state_.add_in_place(id, sequence, chunk)) {
      return chunk.tokens.empty() ? chunk.count : static_cast<Index>(chunk.tokens.size());
    }
    return add_anywhere(id, sequence, chunk);
  }

  /// Closes the step for adding and makes its plan. What it makes pending is found by the stream from now on.
  /// **Cost** O(chunks + table entries). **Errors** `stale_step`, `no_memory`.
  [[nodiscard]] Result<Done> submit(StepId id)
  {
    return submit(id, [](Plan const&) { return Result<Done>(Done{}); });
  }
  /// As above, for who has the pool too: `apply(plan)` takes the plan there, last of all that can fail. Where it
  /// returns an error so does this call, and where it throws that passes through; either way nothing changed.
  template <class Apply>
  [[nodiscard]] Result<Done> submit(StepId id, Apply&& apply)
  {
    StepState* const t = state_.find(id, Stage::open);
    if (t == nullptr) {
      return detail::stale(id);
    }
    state_.find_unwanted(*t);
    detail::PlanGuard guard(*t);
    if (!detail::memory_sufficed_for([&] { detail::make_plan(state_, *t); })) {
      return detail::no_memory(t->tokens.size());
    }
    if (auto applied = apply(std::as_const(t->plan)); !applied) {
      return applied;
    }
    guard.keep();
    state_.settle_orphans(*t);
    detail::mark_planned(state_, *t);
    t->stage = Stage::submitted;
    state_.update_fences(t->stream);
    state_.free_orphans(*t, t->id);
    return Done{};
  }

  /// What the pools must do for a submitted step; empty for any other. Valid until the step retires.
  [[nodiscard]] Plan const& plan(StepId id) const noexcept
  {
    StepState const* const t = state_.step_of(id);
    return t != nullptr && t->stage == Stage::submitted ? t->plan : no_plan_;
  }

  /// The tokens that a submitted step computes, in the order of `plan` and of views; none of any other step. They are
  /// those that were given, unless the step attaches, or a sequence left it before `submit`. Valid until the step retires.
  [[nodiscard]] StepTokens tokens(StepId id) const noexcept
  {
    StepState const* const t = state_.step_of(id);
    return t != nullptr && t->stage == Stage::submitted ? StepTokens(*t, state_.media)
                                                        : StepTokens{};
  }

  /// Takes an open step back: nothing happened. **Cost** as its adds. **Errors** `stale_step`.
  Result<Done> drop(StepId id) noexcept
  {
    StepState* const t = state_.find(id, Stage::open);
    if (t == nullptr) {
      return detail::stale(id);
    }
    state_.drop(*t);
    return Done{};
  }

  /// Retires the oldest step of its stream, which ran: of each chunk the first so many planned tokens are real from
  /// now on, the others never existed. Whole pages are published. `outcomes` has one entry a chunk that was added, in the
  /// order of the adds, 0 of one found whole; or none: everything is accepted, and nothing was planned by count.
  /// **Cost** O(tokens + pages). **Errors** `stale_step`, `busy` (an older step), `bad_config`; nothing changed.
  Result<Done> commit(StepId id, std::span<Outcome const> outcomes = {})
  {
    StepState* const t = state_.find(id, Stage::submitted);
    if (t == nullptr) {
      return detail::stale(id);
    }
    if (t != state_.oldest_submitted(t->stream)) {
      return detail::busy(state_.oldest_submitted(t->stream)->id);
    }
    if (Error const error = detail::check(outcomes, *t, options()); error.why != Why::ok) {
      return error;
    }
    retire(*t, {.each = outcomes, .accepted = {}});
    return Done{};
  }

  /// As above, with the number of accepted tokens of each chunk; none was planned by count.
  Result<Done> commit(StepId id, std::span<Index const> accepted)
  {
    StepState* const t = state_.find(id, Stage::submitted);
    if (t != nullptr && t == state_.oldest_submitted(t->stream) && detail::fit(accepted, *t)) {
      retire(*t, {.each = {}, .accepted = accepted});
      return Done{};
    }
    outcomes_.clear();
    if (!detail::memory_sufficed_for([&] { outcomes_.reserve_grown(accepted.size()); })) {
      return detail::no_memory(accepted.size());
    }
    for (Index const n : accepted) {
      outcomes_.push_back({.accepted = n});
    }
    return commit(id, std::span<Outcome const>(outcomes_));
  }

  /// Retires a submitted step that did not run to its end: its plan was applied, its rows never existed, and later steps of the stream
  /// lose what depends on them. `cuts()` tells which sequences fell back. A step that is not the oldest of its stream
  /// fails as soon as it is. **Errors** `stale_step`.
  Result<Done> fail(StepId id) noexcept
  {
    StepState* const t = state_.find(id, Stage::submitted);
    if (t == nullptr) {
      return detail::stale(id);
    }
    t->doomed = true;
    state_.cuts.clear();
    fail_doomed(t->stream);
    return Done{};
  }
  /// The sequences that the last `fail`, or a commit that let one happen, cut back, with the rows that they keep.
  [[nodiscard]] std::span<Cut const> cuts() const noexcept { return state_.cuts; }

  // ---- truth

  /// **Cost** O(1).
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

  using StepState = detail::StepState;

  /// `add` of a chunk that needs more than room in its sequence's last page, or that is refused.
  [[nodiscard, gnu::noinline]] Result<Index, Shortage> add_anywhere(StepId id,
                                                                    SequenceId sequence,
                                                                    Chunk const& chunk)
  {
    StepState* const t = state_.find(id, Stage::open);
    if (t == nullptr) {
      return refused(detail::stale(id));
    }
    detail::SequenceState* const s = state_.find(sequence);
    if (s == nullptr || s->suspended) {
      return refused(unusable(sequence));
    }
    if (s->added_to(t->stream) == id || s->num_flights == detail::SequenceState::max_flights ||
        (s->stream != t->stream && state_.in_flight(s->bound_until))) {
      return refused(detail::in_step(sequence));
    }
    if (state_.has_tree(*s)) {
      return refused(detail::behind_tree(sequence));
    }
    Index const end = state_.planned_end(*s);
    if (Error const error = detail::check(chunk, end, t->planned_tokens, options());
        error.why != Why::ok) {
      return refused(error);
    }
    bool const media = !s->media.empty() || !chunk.media.empty() || owns(*s, chunk.tokens);
    Error named = media ? Error{} : detail::check(chunk.tokens, options().vocabulary);
    Chunk const& text = media ? state_.renamed : chunk;
    detail::ChunkState c;
    bool fits = true;
    if (named.why == Why::ok && !detail::memory_sufficed_for([&] {
          if (media) {
            state_.renamed = chunk;
            named = detail::name_chunk(state_, *s, id, end, state_.renamed);
          }
          if (named.why == Why::ok) {
            state_.draft(*t, sequence, *s, text, c);
            fits = state_.may_fit(*s, c, t->stream);
            if (fits) {
              state_.reserve(*t, *s, c);
            }
          }
        })) {
      return refused(detail::no_memory(chunk.tokens.size()));
    }
    if (named.why != Why::ok) {
      return refused(named);
    }
    if (!fits || !state_.grow(*t, *s, c)) {
      return shortage(c.taken, t->stream);
    }
    (void)detail::memory_sufficed_for([&] { state_.pend(*t, *s, c, text.tokens); });
    if (!chunk.media.empty()) {
      s->media.swap(state_.declared);
    }
    t->tokens.append(text.tokens);
    t->parents.append(chunk.parents);
    t->chunks.push_back(c);  // within the reserve
    state_.enter_step(*t, *s, c);
    return c.tokens;
  }

  /// **Pre** the outcomes were checked, and the step is the oldest of its stream.
  void retire(StepState& t, detail::Outcomes const& outcomes)
  {
    StreamId const stream = t.stream;
    state_.commit(t, outcomes);
    state_.cuts.clear();
    fail_doomed(stream);
  }
  void fail_doomed(StreamId stream) noexcept
  {
    for (StepState* t = state_.oldest_submitted(stream); t != nullptr && t->doomed;
         t = state_.oldest_submitted(stream)) {
      state_.fail(*t);
    }
  }
  /// The tokens lie in the sequence's own array, as drafts looked up in its text may: it moves when it grows.
  [[nodiscard]] static bool owns(detail::SequenceState const& s,
                                 std::span<Token const> tokens) noexcept
  {
    auto const at = [](Token const* token) { return reinterpret_cast<std::uintptr_t>(token); };
    return at(tokens.data()) >= at(s.tokens.data()) &&
           at(tokens.data()) < at(s.tokens.data() + s.tokens.size());
  }
  [[nodiscard]] Shortage shortage(PageCount need, StreamId stream) noexcept
  {
    state_.stats.shortages += 1;
    PageCount const evictable = state_.evictable(stream);
    PageCount const kept =
      state_.book.num_cached() - evictable;  // steps read them, or write behind
    return {
      .why = Why::no_pages,
      .need = need,
      .free = state_.ready(stream),
      .evictable = evictable,
      .fenced = detail::fenced_pages(state_) - state_.book.fences().num_waiting(stream) + kept};
  }
  [[nodiscard]] static Shortage refused(Error const& error) noexcept
  {
    return {.why = error.why, .detail = error};
  }

  Plan no_plan_{};
  List<Outcome> outcomes_;  // of `commit`, kept to allocate nothing
};

}  // namespace kvcache::inline v0_1
