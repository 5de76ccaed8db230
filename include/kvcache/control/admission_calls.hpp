// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/events.hpp>
#include <kvcache/control/growth.hpp>
#include <kvcache/control/pins.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/refusals.hpp>
#include <kvcache/control/self_check.hpp>
#include <kvcache/control/sequence_calls.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/stats.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

/// \file What a scheduler asks before it lets a request in, what it pins, and who has which pages.
///
/// Letting a request in because its next chunk fits is how caches thrash: it is preempted, comes back in the next step,
/// and is preempted again. So `admit` answers for the whole need. A request with a stated `max_tokens` comes
/// in once that fits beside a watermark, which leaves room for those that run to grow; a scheduler that wants no preemption
/// at all asks that it also fits beside their whole growth (`growth.hpp`).

namespace kvcache::inline v0_1 {

/// Admission, pins and the use of pages by owner.
template <class Allocator, class Prefix, class Replacement>
class AdmissionCalls : public SequenceCalls<Allocator, Prefix, Replacement> {
  using Base = SequenceCalls<Allocator, Prefix, Replacement>;

 public:
  using Base::options;

  /// Whether there is room for a request that grows to its `max_tokens`. Changes nothing.
  /// **Cost** O(prompt + sequences), and O(pages that steps hold) while cached pages are fenced for them. **Errors** as `open`: `too_large` can never fit, whatever is freed.
  [[nodiscard]] Result<Admission> admit(Prompt const& prompt) const
  {
    if (Error const error = detail::check(prompt, options()); error.why != Why::ok) {
      return error;
    }
    std::optional<DomainId> const domain = tree().find(this->domain_of(prompt));
    detail::NamedPrompt named;
    if (Error const error = this->name(prompt, this->matchable(prompt), named);
        error.why != Why::ok) {
      return error;
    }
    Match match = detail::match_rows(
      state_, domain.value_or(DomainId{nil}), named.text, named.spans, named.limit, prompt.stream);
    return admission(match, prompt.tokens.size(), prompt.max_tokens, prompt.stream);
  }
  /// The same for a suspended sequence. **Errors** `stale_sequence`, `bad_config` (not suspended).
  [[nodiscard]] Result<Admission> admit(SequenceId id, StreamId stream = {}) const
  {
    detail::SequenceState const* const s = state_.find(id);
    if (s == nullptr) {
      return detail::stale(id);
    }
    if (!s->suspended) {
      return detail::not_suspended(id);
    }
    if (Error const error = detail::check(stream); error.why != Why::ok) {
      return error;
    }
    Match match = detail::match_rows(state_, s->domain, s->tokens, s->media, s->length(), stream);
    return admission(match, s->tokens.size(), s->max_tokens, stream);
  }

  /// Holds the whole pages that are cached of a prefix, so that they are not evicted, until `unpin`.
  /// **Cost** O(tokens). **Errors** `bad_token`, `too_large`, `no_memory`; `bad_config` where not a page of it is cached.
  [[nodiscard]] Result<PinId> pin(Prompt const& prefix)
  {
    if (Error const error = detail::check(prefix, options()); error.why != Why::ok) {
      return error;
    }
    std::optional<DomainId> const domain = tree().find(this->domain_of(prefix));
    detail::NamedPrompt named;
    if (Error const error = this->name(prefix, static_cast<Index>(prefix.tokens.size()), named);
        error.why != Why::ok) {
      return error;
    }
    Match match = tree().match(domain.value_or(DomainId{nil}), named.text, named.limit);
    state_.settle_match(match, nobody);
    if (match.full_pages == 0) {
      return detail::nothing_to_pin(prefix.tokens.size());
    }
    bool const is_new = state_.free_pins.empty();
    auto const slot =
      is_new ? static_cast<std::uint32_t>(state_.pins.size()) : state_.free_pins.back();
    List<PageId> table;
    if (!detail::memory_sufficed_for([&] {
          table.resize(static_cast<std::size_t>(match.full_pages));
          tree().copy_pages(match, table.data());
          state_.pins.reserve_grown(std::size_t{slot} + 1);
          state_.free_pins.reserve(state_.pins.capacity());
          state_.book.end_span_at(table.back(), match.full_pages - 1);
        })) {
      return detail::no_memory(prefix.tokens.size());
    }
    if (is_new) {
      state_.pins.push_reserved();  // within the reserve
    } else {
      state_.free_pins.pop_back();
    }
    for (PageId const page : table) {
      state_.book.share(page);
    }
    detail::PinState& pin = state_.pins[slot];
    pin.generation += 1;
    pin.domain = *domain;
    state_.book.name(pin.domain);
    pin.since = StepId{state_.next_step};
    pin.table = std::move(table);
    return PinId{slot, pin.generation};
  }
  /// Lets go of the pages of a pin. **Cost** O(pages). **Errors** `stale_pin`.
  Result<Done> unpin(PinId id) noexcept
  {
    if (id.slot >= state_.pins.size() || id.generation % 2 == 0 ||
        state_.pins[id.slot].generation != id.generation) {
      return detail::stale(id);
    }
    detail::PinState& pin = state_.pins[id.slot];
    while (!pin.table.empty()) {  // deepest first
      state_.book.release(pin.table.back());
      pin.table.pop_back();
    }
    state_.book.unname(pin.domain);
    pin.generation += 1;
    state_.free_pins.push_back(id.slot);  // within its reserve: a place is listed once
    return Done{};
  }
  /// Calls `visit(PinInfo const&)` for each pin. **Cost** O(pins).
  template <class Visit>
  void for_each_pin(Visit&& visit) const
  {
    for (std::uint32_t slot = 0; slot < state_.pins.size(); ++slot) {
      detail::PinState const& pin = state_.pins[slot];
      if (pin.live()) {
        auto const pages = static_cast<PageCount>(pin.table.size());
        visit(PinInfo{.pin = {slot, pin.generation},
                      .domain = pin.domain,
                      .rows = static_cast<Index>(pages) * options().page_tokens,
                      .pages = pages,
                      .age = state_.next_step - pin.since.value});
      }
    }
  }

  /// The number by which this plane knows the domain, if somebody names it: a page in the tree, a sequence, a pin, a step that may be
  /// dropped, an event that can be read. **Cost** O(bytes).
  [[nodiscard]] std::optional<DomainId> domain_id(Domain const& domain) const noexcept
  {
    return tree().find(domain);
  }
  /// What the domain has of the pool. **Cost** O(sequences + pins).
  [[nodiscard]] DomainUse use_of(Domain const& domain) const noexcept
  {
    std::optional<DomainId> const id = tree().find(domain);
    if (!id) {
      return {};
    }
    DomainUse use{.indexed = state_.book.num_indexed(*id)};
    for (std::uint32_t const slot : state_.open_slots) {
      detail::SequenceState const& s = state_.sequences[slot];
      if (s.domain == *id) {
        use.sequences += 1;
        use.tables += static_cast<PageCount>(s.table.size());
      }
    }
    for (detail::PinState const& pin : state_.pins) {
      use.pinned += pin.domain == *id ? static_cast<PageCount>(pin.table.size()) : 0;
    }
    return use;
  }
  /// What the steps of `stream` keep from others. **Pre** `stream.value < max_streams`. **Cost** O(chunks in flight).
  [[nodiscard]] StreamUse use_of(StreamId stream) const noexcept
  {
    StreamUse use{.waiting = state_.book.fences().num_waiting(stream)};
    detail::for_each_step_hold(state_, [&](detail::StepState const& t, PageId) {
      use.held += t.stream == stream ? 1U : 0U;
    });
    for (detail::StepState const& t : state_.steps) {
      if (t.stage != detail::StepState::Stage::none && t.stream == stream) {
        use.steps += 1;
        use.oldest = use.oldest.value == 0 || t.id < use.oldest ? t.id : use.oldest;
      }
    }
    use.age = use.steps == 0 ? 0 : state_.next_step - use.oldest.value;
    return use;
  }

  /// What happened to the tree; see `EventLog`.
  [[nodiscard]] EventLog const& events() const noexcept { return state_.book.events(); }
  /// Calls `visit(Event const&)` for each page that prompts find, as a `stored` event, parents first: together they
  /// stand for all events up to `events().next() - 1`, which is their number. **Cost** O(cached tokens), allocates.
  template <class Visit>
  void for_each_stored(Visit&& visit) const
  {
    state_.book.for_each_stored(visit);
  }

 protected:
  using Base::Base;
  using Base::state_;
  using Base::tree;

 private:
  static constexpr StreamId nobody{nil};  // sees nothing that is pending

  [[nodiscard]] Admission admission(Match match,
                                    std::size_t tokens,
                                    Index max_tokens,
                                    StreamId stream) const noexcept
  {
    state_.settle_match(match, stream);
    List<bool> stuck;
    PageCount const available = state_.ready(stream) + state_.evictable(stream, stuck);
    detail::Claim const claim = detail::claim_of(state_, match, stream, stuck);
    auto const found = static_cast<std::size_t>(match.rows(options().page_tokens));
    auto const pages = [&](std::size_t rows) {  // a part page is copied once rows are added to it
      auto const whole = static_cast<PageCount>(match.full_pages);
      return claim.whole + (rows > found ? state_.pages_of(rows) - whole : claim.part);
    };
    std::size_t const grown =
      max_tokens > static_cast<Index>(tokens) ? static_cast<std::size_t>(max_tokens) : tokens;
    Admission a{.prompt = pages(tokens), .full = pages(grown), .available = available};
    bool runs = false;
    for (std::uint32_t const slot : state_.open_slots) {
      detail::SequenceState const& s = state_.sequences[slot];
      if (!s.suspended) {
        auto const has = static_cast<PageCount>(s.table.size());
        PageCount const end = state_.pages_of(s.max_tokens);
        a.growth += end > has ? end - has : 0;
        runs = true;
      }
    }
    a.growth += detail::copies_of_growth(state_, stream);
    if (a.growth != 0 && grown > found) {
      a.growth += claim.part;  // its step keeps the page that it copies from while the others grow
    }
    a.fits = std::uint64_t{a.full} + (runs ? options().watermark : 0) <= a.available;
    a.fits_beside_growth = a.full + a.growth <= a.available;
    return a;
  }
};

}  // namespace kvcache::inline v0_1
