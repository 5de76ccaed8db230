// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/control_state.hpp>
#include <kvcache/control/make_plan.hpp>
#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/refusals.hpp>
#include <kvcache/control/self_check.hpp>
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
/// steady state allocates nothing.
/// **Threads** one owner; const calls may run beside each other.

namespace kvcache::inline v0_1 {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
class Control {
 public:
  using Book = PageBook<Allocator, Prefix, Replacement>;

  struct PolicyOptions {
    typename Prefix::Options prefix{};
    typename Replacement::Options replacement{};
  };

  /// **Errors** the first field of `options` that cannot work; `no_memory`.
  [[nodiscard]] static Result<Control> create(ControlOptions options,
                                              PolicyOptions const& policies = {})
  {
    if (Error const error = options.complete(); error.why != Why::ok) {
      return error;
    }
    std::optional<Control> made;
    if (!detail::memory_sufficed_for([&] { made.emplace(Control(options, policies)); })) {
      return Error{Why::no_memory,
                   "pages",
                   options.pages,
                   "the host has no memory for the bookkeeping of so many"};
    }
    return std::move(*made);
  }

  [[nodiscard]] ControlOptions const& options() const noexcept { return state_.options; }

  // ---- sequences

  /// What `open` would find; pins nothing, moves no recency. A prompt that `open` refuses hits nothing.
  /// **Cost** O(prompt).
  [[nodiscard]] Hit probe(Prompt const& prompt) const noexcept
  {
    if (detail::check(prompt, options()).why != Why::ok) {
      return {};
    }
    std::optional<DomainId> const domain = tree().find(domain_of(prompt));
    Match const match =
      tree().match(domain.value_or(DomainId{nil}), prompt.tokens, matchable(prompt));
    return {
      .rows = match.rows(options().page_tokens),
      .shared_rows = match.full_pages * options().page_tokens,
      .new_pages = state_.pages_of(prompt.tokens.size()) - static_cast<PageCount>(match.full_pages),
      .miss = match.miss};
  }

  /// Opens a sequence and attaches the longest cached prefix of the prompt, but for its `fresh_tail`.
  /// **Post** `info(id).length` rows need no computing. **Cost** O(prompt).
  /// **Errors** `bad_token`, `bad_config`, `too_large`, `no_rows`, `no_memory`.
  [[nodiscard]] Result<SequenceId> open(Prompt const& prompt)
  {
    if (Error const error = detail::check(prompt, options()); error.why != Why::ok) {
      return error;
    }
    if (state_.free_slots.empty()) {
      return detail::no_rows(options());
    }
    detail::SequenceState& s = state_.sequences[state_.free_slots.back()];
    Match match{};
    if (!detail::memory_sufficed_for([&] {
          s.domain = state_.book.intern(domain_of(prompt));
          match = tree().match(s.domain, prompt.tokens, matchable(prompt));
          state_.attach(s, prompt.tokens, match);
        })) {
      s.table.clear();
      return detail::no_memory(prompt.tokens.size());
    }
    for (PageId const page : s.table) {
      state_.book.share(page);
    }
    s.domain_generation = tree().generation(s.domain);
    s.cached = s.length();
    s.miss = match.miss;
    s.indexed = static_cast<PageCount>(match.full_pages);
    state_.stats.prompt_tokens += prompt.tokens.size();
    state_.stats.hit_tokens += static_cast<std::uint64_t>(s.cached);
    state_.stats.misses[static_cast<std::size_t>(match.miss)] += 1;
    return state_.take_slot();
  }

  /// A second sequence with the same rows. Pages are shared; the first of the two that writes into a shared
  /// page gets a copy of it. **Cost** O(pages + tokens).
  /// **Errors** `stale_sequence`, `busy` (in the step in flight), `no_rows`, `no_memory`.
  [[nodiscard]] Result<SequenceId> fork(SequenceId id)
  {
    detail::SequenceState const* const from = idle(id);
    if (from == nullptr) {
      return unusable(id);
    }
    if (state_.free_slots.empty()) {
      return detail::no_rows(options());
    }
    detail::SequenceState& s = state_.sequences[state_.free_slots.back()];
    if (!detail::memory_sufficed_for([&] {
          detail::reserve_to(s.table, from->table.size() + 1);
          s.tokens.assign(from->tokens.begin(), from->tokens.end());
        })) {
      s.tokens.clear();
      return detail::no_memory(from->tokens.size());
    }
    for (PageId const page : from->table) {
      s.table.push_back(page);
      state_.book.share(page);
    }
    s.domain = from->domain;
    s.domain_generation = from->domain_generation;
    s.cached = s.length();
    s.miss = Miss::none;
    s.indexed = from->indexed;
    return state_.take_slot();
  }

  /// Cuts the sequence to its first `length` rows; a longer `length` keeps all. Returns the length kept.
  /// **Cost** O(pages dropped). **Errors** `stale_sequence`, `busy`, `bad_config`, `no_memory`.
  [[nodiscard]] Result<Index> truncate(SequenceId id, Index length)
  {
    detail::SequenceState* const s = idle(id);
    if (s == nullptr) {
      return unusable(id);
    }
    if (length < 0) {
      return Error{Why::bad_config, "length", length, "must not be negative"};
    }
    if (length >= s->length()) {
      return s->length();
    }
    PageCount const keep = state_.pages_of(static_cast<std::size_t>(length));
    if (!detail::memory_sufficed_for([&] {
          if (keep > 0 && keep < s->table.size() && tree().contains(s->table[keep - 1])) {
            state_.book.end_span_at(s->table[keep - 1], static_cast<Index>(keep - 1));
          }
        })) {
      return detail::no_memory(static_cast<std::size_t>(length));
    }
    state_.shrink(s->table, keep);
    s->tokens.resize(static_cast<std::size_t>(length));
    auto const whole = static_cast<PageCount>(length / options().page_tokens);
    s->indexed = s->indexed < whole ? s->indexed : whole;
    s->synced = s->synced < keep ? s->synced : keep;
    return length;
  }

  /// Ends the sequence; what it published stays cached. In a step, the step keeps its pages until it retires.
  /// **Cost** O(pages). **Errors** `stale_sequence`: it was closed before, nothing changed.
  Result<Done> close(SequenceId id) noexcept
  {
    detail::SequenceState* const s = state_.find(id);
    if (s == nullptr) {
      return detail::stale(id);
    }
    if (s->step_chunk != nil) {
      detail::ChunkState& chunk = state_.step.chunks[s->step_chunk];
      chunk.orphan = true;
      chunk.orphan_table = std::move(s->table);
      s->table.clear();
    }
    state_.shrink(s->table, 0);
    state_.give_slot(*s, id.slot);
    return Done{};
  }

  /// Weights changed, or a tenant left: nothing cached in the domain is found any more. Sequences that are open keep their
  /// rows, and publish no more. **Cost** O(spans of the tree).
  void forget(Domain const& domain) noexcept
  {
    if (std::optional<DomainId> const id = tree().find(domain)) {
      state_.book.forget(*id);
    }
  }

  [[nodiscard]] Result<SequenceInfo> info(SequenceId id) const noexcept
  {
    detail::SequenceState const* const s = state_.find(id);
    if (s == nullptr) {
      return detail::stale(id);
    }
    return SequenceInfo{.length = s->length(),
                        .cached = s->cached,
                        .pages = static_cast<PageCount>(s->table.size()),
                        .row = RowId{id.slot},
                        .miss = s->miss};
  }
  /// The sequence's pages in order, empty for a stale one; valid until the next call that changes control.
  [[nodiscard]] std::span<PageId const> table(SequenceId id) const noexcept
  {
    detail::SequenceState const* const s = state_.find(id);
    return s == nullptr ? std::span<PageId const>{} : std::span<PageId const>(s->table);
  }
  /// Its committed tokens, likewise.
  [[nodiscard]] std::span<Token const> tokens(SequenceId id) const noexcept
  {
    detail::SequenceState const* const s = state_.find(id);
    return s == nullptr ? std::span<Token const>{} : std::span<Token const>(s->tokens);
  }

  /// How many hold `page`: tables, the tree, a copy in flight. 0: free. **Pre** a usable page.
  [[nodiscard]] std::uint32_t holders(PageId page) const noexcept
  {
    return state_.book.allocator().count(page);
  }

  // ---- steps

  /// Opens a step. **Errors** `busy`: the step before has not retired. **Cost** O(1).
  [[nodiscard]] Result<StepId> begin(StreamId stream = {}) noexcept
  {
    if (state_.step.stage != detail::StepState::Stage::none) {
      return Error{Why::busy,
                   "step",
                   static_cast<std::int64_t>(state_.step.id.value),
                   "commit, fail or drop it first"};
    }
    state_.step.clear();
    state_.step.id = StepId{state_.next_step++};
    state_.step.stage = detail::StepState::Stage::open;
    state_.step.plan.stream = stream;
    return state_.step.id;
  }

  /// Adds the next tokens of a sequence to an open step and reserves pages for their rows, evicting cached
  /// pages where free ones do not suffice. Returns the rows planned. A sequence is in a step at most once.
  /// **Cost** O(tokens + pages taken). **Errors** a `Shortage`, nothing changed.
  [[nodiscard]] Result<Index, Shortage> add(StepId id, SequenceId sequence, Chunk const& chunk)
  {
    if (id != state_.step.id || state_.step.stage != detail::StepState::Stage::open) {
      return refused({Why::stale_step,
                      "step",
                      static_cast<std::int64_t>(id.value),
                      "is not open; begin a new one"});
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
    if (id != state_.step.id || state_.step.stage != detail::StepState::Stage::open) {
      return detail::stale(id);
    }
    if (!detail::memory_sufficed_for([&] { detail::make_plan(state_); })) {
      state_.step.plan.clear();
      return detail::no_memory(state_.step.tokens.size());
    }
    detail::mark_planned(state_);
    state_.step.stage = detail::StepState::Stage::submitted;
    return Done{};
  }

  /// What the pools must do; empty before `submit`. Valid until the next `begin`.
  [[nodiscard]] Plan const& plan() const noexcept { return state_.step.plan; }

  /// Takes an open step back: nothing happened. **Cost** as its adds. **Errors** `stale_step`.
  Result<Done> drop(StepId id) noexcept
  {
    if (id != state_.step.id || state_.step.stage != detail::StepState::Stage::open) {
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
    if (id != state_.step.id || state_.step.stage != detail::StepState::Stage::submitted) {
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
    if (id != state_.step.id || state_.step.stage != detail::StepState::Stage::submitted) {
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
  Control(ControlOptions const& options, PolicyOptions const& policies)
      : state_(options, policies.prefix, policies.replacement)
  {
  }

  [[nodiscard]] Prefix const& tree() const noexcept { return state_.book.tree(); }
  [[nodiscard]] Domain const& domain_of(Prompt const& prompt) const noexcept
  {
    return prompt.domain != nullptr ? *prompt.domain : empty_domain_;
  }
  [[nodiscard]] static Index matchable(Prompt const& prompt) noexcept
  {
    auto const tokens = static_cast<Index>(prompt.tokens.size());
    return tokens > prompt.fresh_tail ? tokens - prompt.fresh_tail : 0;
  }
  /// The sequence, if no step in flight has it.
  [[nodiscard]] detail::SequenceState* idle(SequenceId id) noexcept
  {
    detail::SequenceState* const s = state_.find(id);
    return s != nullptr && s->step_chunk == nil ? s : nullptr;
  }

  [[nodiscard]] Error unusable(SequenceId id) const noexcept
  {
    return state_.find(id) == nullptr ? detail::stale(id) : detail::in_step(id);
  }
  [[nodiscard]] static Shortage refused(Error const& error) noexcept
  {
    return {.why = error.why, .detail = error};
  }

  detail::ControlState<Allocator, Prefix, Replacement> state_;
  Domain empty_domain_{};
};

}  // namespace kvcache::inline v0_1
