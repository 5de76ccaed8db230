// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/media_moves.hpp>
#include <kvcache/control/options.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/refusals.hpp>
#include <kvcache/control/retire_moves.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

/// \file The half of the control plane that is about sequences; steps are in `control.hpp`, which also has
/// the essay.

namespace kvcache::inline v0_1 {

/// Sequences: found, opened, forked, cut, closed.
template <class Allocator, class Prefix, class Replacement>
class SequenceCalls {
 public:
  struct PolicyOptions {
    typename Prefix::Options prefix{};
    typename Replacement::Options replacement{};
  };

  [[nodiscard]] ControlOptions const& options() const noexcept { return state_.options; }

  /// What `open` would find; pins nothing, moves no recency. A prompt that `open` refuses hits nothing.
  /// **Cost** O(prompt).
  [[nodiscard]] Hit probe(Prompt const& prompt) const noexcept
  {
    if (detail::check(prompt, options()).why != Why::ok) {
      return {.rows = 0, .shared_rows = 0, .new_pages = 0, .miss = Miss::never_seen};
    }
    std::optional<DomainId> const domain = tree().find(domain_of(prompt));
    detail::NamedPrompt named;
    if (name(prompt, matchable(prompt), named).why != Why::ok) {
      return {.rows = 0, .shared_rows = 0, .new_pages = 0, .miss = Miss::never_seen};
    }
    Match const match = detail::match_rows(
      state_, domain.value_or(DomainId{nil}), named.text, named.spans, named.limit, prompt.stream);
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
    if (!has_room()) {
      return detail::no_rows(options());
    }
    detail::SequenceState& s = state_.sequences[state_.free_slots.back()];
    state_.spares.give(s);
    Match match{};
    Error named{};
    if (!detail::memory_sufficed_for([&] {
          std::span<Token const> text;
          named = detail::name_prompt(state_, prompt, s, text);
          if (named.why != Why::ok) {
            return;
          }
          std::optional<DomainId> const known = tree().find(domain_of(prompt));
          s.attach_limit = detail::whole_spans(s.media, matchable(prompt));
          match = detail::match_rows(
            state_, known.value_or(DomainId{nil}), text, s.media, s.attach_limit, prompt.stream);
          state_.attach(s, prompt.tokens.size(), match);
          s.tokens.assign(text.first(static_cast<std::size_t>(match.rows(options().page_tokens))));
          // Last: a name that was given cannot be taken back.
          s.domain = known ? *known : state_.book.intern(domain_of(prompt));
        }) ||
        named.why != Why::ok) {
      s.table.clear();
      s.tokens.clear();
      s.media.clear();
      return named.why != Why::ok ? named : detail::no_memory(prompt.tokens.size());
    }
    state_.book.name(s.domain);
    s.domain_generation = tree().generation(s.domain);
    state_.hold(s, static_cast<PageCount>(match.full_pages), prompt.stream);
    state_.stats.prompt_tokens += prompt.tokens.size();
    state_.stats.hit_tokens += static_cast<std::uint64_t>(s.length());
    state_.stats.promised_tokens += static_cast<std::uint64_t>(prompt.promised);
    state_.stats.promised_hits +=
      static_cast<std::uint64_t>(prompt.promised < s.length() ? prompt.promised : s.length());
    s.max_tokens = prompt.max_tokens;
    state_.stats.misses[static_cast<std::size_t>(match.miss)] += 1;
    return state_.enter(s, match.miss);
  }

  /// A second sequence with the same rows. Pages are shared; the first of the two that writes into a shared
  /// page gets a copy of it. It keeps the media that its prompt declared for rows to come, so that both may go on with the
  /// prompt; for another text cut it to its own length, which makes it forget them. **Cost** O(pages + tokens).
  /// **Errors** `stale_sequence`, `suspended`, `no_rows`, `no_memory`.
  [[nodiscard]] Result<SequenceId> fork(SequenceId id)
  {
    detail::SequenceState const* const from = state_.find(id);
    if (from == nullptr || from->suspended) {
      return unusable(id);
    }
    if (!has_room()) {
      return detail::no_rows(options());
    }
    Index const length = state_.settled(*from, from->in_place());
    detail::SequenceState& s = state_.sequences[state_.free_slots.back()];
    state_.spares.give(s);
    if (!detail::memory_sufficed_for([&] {
          s.table.assign(std::span(from->table).first(state_.pages_of(length)));
          s.tokens.assign(std::span(from->tokens).first(static_cast<std::size_t>(length)));
          s.media = from->media;
          if (s.table.size() < from->table.size() && !s.table.empty() &&
              tree().contains(s.table.back())) {  // it holds fewer pages of the span
            state_.book.end_span_at(s.table.back(), static_cast<Index>(s.table.size() - 1));
          }
          if (detail::StepState* const step = state_.touching(*from); step != nullptr) {
            step->orphan_room += s.table.size() + 1;
            step->orphans.reserve_grown(step->orphan_room);
          }
        })) {
      s.table.clear();
      s.tokens.clear();
      s.media.clear();
      return detail::no_memory(from->tokens.size());
    }
    s.num_flights = 0;
    detail::drop_declared(s);
    s.domain = from->domain;
    state_.book.name(s.domain);
    s.domain_generation = from->domain_generation;
    s.attach_limit = from->attach_limit;
    s.max_tokens = from->max_tokens;
    s.stream = from->stream;
    s.bound_until = from->bound_until;
    auto const whole = static_cast<PageCount>(length / options().page_tokens);
    state_.hold(s, detail::smaller(from->indexed, whole), from->stream);
    return state_.enter(s, Miss::none);
  }

  /// Cuts the sequence to its first `length` rows, or before the atomic span that this would tear; a longer `length` keeps
  /// all. Returns the length kept. Media past `length` are forgotten, those of rows to come too.
  /// **Cost** O(pages dropped). **Errors** `stale_sequence`, `suspended`, `bad_config`, `no_memory`.
  [[nodiscard]] Result<Index> truncate(SequenceId id, Index length)
  {
    detail::SequenceState* const s = state_.find(id);
    if (s == nullptr || s->suspended) {
      return unusable(id);
    }
    if (length < 0) {
      return Error{Why::bad_config, "length", length, "must not be negative"};
    }
    if (length >= state_.planned_end(*s)) {
      detail::clip(s->media, length);  // what is yet to come behind it
      return s->length();
    }
    Index const asked = detail::whole_spans(s->media, length);
    Index const kept = state_.settled(*s, asked < s->length() ? asked : s->length());
    if (!detail::memory_sufficed_for([&] { state_.cut(*s, kept); })) {
      return detail::no_memory(static_cast<std::size_t>(length));
    }
    detail::clip(s->media, asked);  // rows that were asked for and not kept can be added again
    return kept;
  }

  /// Ends the sequence; what it published stays cached. In a step, the step keeps its pages until it retires.
  /// **Cost** O(pages). **Errors** `stale_sequence`: it was closed before, nothing changed.
  Result<Done> close(SequenceId id) noexcept
  {
    detail::SequenceState* const s = state_.find(id);
    if (s == nullptr) {
      return detail::stale(id);
    }
    if (!s->suspended) {
      state_.vacate(*s);
    }
    state_.give_slot(*s, id.slot);
    return Done{};
  }

  /// Preempted: pages and table row go back, what is published stays cached, tokens and identity stay. What
  /// the sequence has in flight counts for nobody. **Cost** O(pages). **Errors** `stale_sequence`, `suspended`.
  Result<Done> suspend(SequenceId id) noexcept
  {
    detail::SequenceState* const s = state_.find(id);
    if (s == nullptr || s->suspended) {
      return unusable(id);
    }
    state_.vacate(*s);
    s->suspended = true;
    s->suspensions += 1;
    state_.stats.suspensions += 1;
    return Done{};
  }
  /// Attaches what is still cached of a suspended sequence; the rest of its tokens is to be added again.
  /// **Post** `info(id).length` rows need no computing. **Cost** O(tokens).
  /// **Errors** `stale_sequence`, `bad_config` (not suspended), `no_rows`, `no_memory`.
  [[nodiscard]] Result<Hit> resume(SequenceId id, StreamId stream = {})
  {
    detail::SequenceState* const s = state_.find(id);
    if (s == nullptr) {
      return detail::stale(id);
    }
    if (!s->suspended) {
      return detail::not_suspended(id);
    }
    if (Error const error = detail::check(stream); error.why != Why::ok) {
      return error;
    }
    if (state_.free_rows.empty()) {
      return detail::no_rows(options());
    }
    auto const rows = static_cast<Index>(s->tokens.size());
    Match const match = detail::match_rows(state_, s->domain, s->tokens, s->media, rows, stream);
    if (!detail::memory_sufficed_for([&] { state_.attach(*s, s->tokens.size(), match); })) {
      s->table.clear();
      return detail::no_memory(s->tokens.size());
    }
    s->tokens.resize(static_cast<std::size_t>(match.rows(options().page_tokens)));
    s->domain_generation = tree().generation(s->domain);
    s->attach_limit = rows;
    s->cached = s->length();
    s->miss = match.miss;
    s->lost += rows - s->length();
    state_.stats.lost_tokens += static_cast<std::uint64_t>(rows - s->length());
    state_.hold(*s, static_cast<PageCount>(match.full_pages), stream);
    return Hit{.rows = s->length(),
               .shared_rows = match.full_pages * options().page_tokens,
               .new_pages = state_.pages_of(rows) - static_cast<PageCount>(match.full_pages),
               .miss = match.miss};
  }

  /// Beams: sequence i goes on as a copy of what sequence `parents[i]` was, all at once. Pages are shared, so both are of one
  /// domain. **Pre** no sequence twice. **Cost** O(pages + tokens of those that change).
  /// **Errors** `stale_sequence`, `busy` (a step in flight has one), `bad_config`, `no_memory`; nothing changed.
  Result<Done> reorder(std::span<SequenceId const> ids, std::span<Index const> parents)
  {
    if (ids.size() != parents.size()) {
      return Error{Why::bad_config,
                   "parents",
                   static_cast<std::int64_t>(parents.size()),
                   "must be one for each sequence:",
                   static_cast<std::int64_t>(ids.size())};
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (idle(ids[i]) == nullptr) {
        return unusable(ids[i]);
      }
      if (!idle(ids[i])->strays.empty()) {
        return detail::has_strays(ids[i]);
      }
      if (parents[i] < 0 || static_cast<std::size_t>(parents[i]) >= ids.size()) {
        return Error{Why::bad_config,
                     "parents",
                     parents[i],
                     "must be 0 or more, and below the number of sequences,",
                     static_cast<std::int64_t>(ids.size())};
      }
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (state_.find(ids[i])->domain !=
          state_.find(ids[static_cast<std::size_t>(parents[i])])->domain) {
        return Error{Why::bad_config,
                     "parents",
                     parents[i],
                     "must name a sequence of the same domain; that of another was given to place",
                     static_cast<std::int64_t>(i)};
      }
    }
    if (!detail::memory_sufficed_for([&] { state_.reorder(ids, parents); })) {
      return detail::no_memory(ids.size());
    }
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
                        .planned = state_.planned_end(*s),
                        .cached = s->cached,
                        .pages = static_cast<PageCount>(s->table.size()),
                        .row = s->row,
                        .suspended = s->suspended,
                        .miss = s->miss,
                        .suspensions = s->suspensions,
                        .lost = s->lost};
  }
  /// The sequence's pages in order, empty for a stale one; valid until the next call that changes control.
  [[nodiscard]] std::span<PageId const> table(SequenceId id) const noexcept
  {
    detail::SequenceState const* const s = state_.find(id);
    return s == nullptr ? std::span<PageId const>{} : std::span<PageId const>(s->table);
  }
  /// Its committed tokens, likewise. Rows of media have negative names instead, which `add` takes back at the same row.
  [[nodiscard]] std::span<Token const> tokens(SequenceId id) const noexcept
  {
    detail::SequenceState const* const s = state_.find(id);
    return s == nullptr ? std::span<Token const>{} : std::span<Token const>(s->tokens);
  }

  /// What a negative name stands for that `tokens` or an event gave, as long as somebody uses it: until the sequence
  /// is closed, or the page removed. **Cost** O(log items).
  [[nodiscard]] std::optional<MediaRow> media_row(Token name) const noexcept
  {
    return state_.media.knows(name) ? std::optional(state_.media.look_up(name)) : std::nullopt;
  }

  /// How many hold `page`: tables, the tree, a copy in flight. 0: free. **Pre** a usable page.
  [[nodiscard]] std::uint32_t holders(PageId page) const noexcept
  {
    return state_.book.allocator().count(page);
  }

 protected:
  /// **Pre** `options` went through `complete`. **Errors** `std::bad_alloc`.
  SequenceCalls(ControlOptions const& options, PolicyOptions const& policies)
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
  /// The prompt as the tree knows it, if it may be opened.
  [[nodiscard]] Error name(Prompt const& prompt,
                           Index limit,
                           detail::NamedPrompt& named) const noexcept
  {
    Error error{};
    return detail::memory_sufficed_for(
             [&] { error = detail::name_known(state_, prompt, limit, named); })
             ? error
             : detail::no_memory(prompt.tokens.size());
  }
  [[nodiscard]] bool has_room() const noexcept
  {
    return !state_.free_slots.empty() && !state_.free_rows.empty();
  }
  /// The sequence, if it has pages and no step in flight has it.
  [[nodiscard]] detail::SequenceState* idle(SequenceId id) noexcept
  {
    detail::SequenceState* const s = state_.find(id);
    return s != nullptr && !s->suspended && !state_.in_flight(s->bound_until) ? s : nullptr;
  }

  [[nodiscard]] Error unusable(SequenceId id) const noexcept
  {
    detail::SequenceState const* const s = state_.find(id);
    return s == nullptr   ? detail::stale(id)
           : s->suspended ? detail::is_suspended(id)
                          : detail::in_step(id);
  }

  detail::RetireMoves<Allocator, Prefix, Replacement> state_;

 private:
  Domain empty_domain_{};
};

}  // namespace kvcache::inline v0_1
