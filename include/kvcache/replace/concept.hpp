// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/replace/facts.hpp>

#include <concepts>
#include <cstdint>
#include <optional>

/// \file What control asks of a replacement policy: which cached, unused span leaves next.
///
/// The policy sees tree spans, never pages, tokens or holders. A span is a *candidate* from `on_idle` to
/// `on_busy`, which may come and go many times until `on_remove`: after that its id may name another span.
/// `on_hit` tells that one more user joins a span in use. Axioms, beyond the syntax below:
/// 1. `victim` names a candidate, or nothing exactly when `size() == 0`; asking twice without a call in
///    between names the same span, which stays a candidate until `on_busy`.
/// 2. The spans of one release arrive deepest first. A policy that names spans in order of arrival
///    therefore names children before their parents; any other order must see to that itself by never
///    naming a span before a candidate that is its descendant; `facts.parent` tells what hangs where.
/// 3. `restore(s, facts)` after `victim() == s` and `on_busy(s)` makes `s` the next victim again, under
///    a new id where `on_remove(s)` came in between; victims that are put back in reverse, with no other call
///    in between, leave everything in its old order.
/// 4. `on_split(head, tail)`: `tail` keeps its id, its children and its standing, and hangs below `head`; if
///    it is a candidate, so becomes `head`, which leaves after it.
/// 5. After `reserve(n)` said true, no call with span ids below `n` allocates or fails, and the arrays
///    never shrink. When it said false, nothing changed.
/// 6. `for_each_oldest_first` visits each candidate once, in an order that depends on the calls alone.
/// 7. Every call but `reserve` and `for_each_oldest_first` is O(1), `victim` at least amortised.
///
/// A policy may also hear of what it does not decide (`TakesBack`): a span that leaves while it is in use, with a step that
/// may be dropped, is `set_aside` in place of `on_remove`, and `take_back` undoes that, under a new id, and says whether
/// it could; where it did, the span may fall idle before those below it. `on_shrink` says that the victim lost its last
/// pages only, and `on_grow` undoes that. All are undone newest first, together with `restore`.
///
/// `tests/conformance/replacement.hpp` tries 1 to 6 on any policy against a naive model.

namespace kvcache::inline v0_1 {

template <class R>
concept PlaysReplacement = std::same_as<typename R::role, role::replacement>;

template <class R>
concept StartsWithOptions = std::default_initializable<typename R::Options> &&
                            std::constructible_from<R, typename R::Options> &&
                            std::default_initializable<R> && std::movable<R>;

template <class R>
concept ReservesSpans = requires(R& r, std::uint32_t spans) {
  { r.reserve(spans) } noexcept -> std::same_as<bool>;
};

template <class R>
concept HearsIdle = requires(R& r, SpanId span, SpanFacts const& facts) {
  { r.on_idle(span, facts) } noexcept -> std::same_as<void>;
};

template <class R>
concept HearsBusy = requires(R& r, SpanId span) {
  { r.on_busy(span) } noexcept -> std::same_as<void>;
};

template <class R>
concept HearsHit = requires(R& r, SpanId span) {
  { r.on_hit(span) } noexcept -> std::same_as<void>;
};

template <class R>
concept HearsRemoval = requires(R& r, SpanId span) {
  { r.on_remove(span) } noexcept -> std::same_as<void>;
};

template <class R>
concept NamesVictim = requires(R& r) {
  { r.victim() } noexcept -> std::same_as<std::optional<SpanId>>;
};

template <class R>
concept RestoresVictim = requires(R& r, SpanId span, SpanFacts const& facts) {
  { r.restore(span, facts) } noexcept -> std::same_as<void>;
};

template <class R>
concept HearsSplit = requires(R& r, SpanId head, SpanId tail) {
  { r.on_split(head, tail) } noexcept -> std::same_as<void>;
};

template <class R>
concept ShowsCandidates = requires(R const& r, SpanId span, void (*visit)(SpanId)) {
  { r.is_candidate(span) } noexcept -> std::same_as<bool>;
  { r.size() } noexcept -> std::same_as<std::uint32_t>;
  r.for_each_oldest_first(visit);
  { r.check_invariants() } -> std::same_as<bool>;
};

/// Optional: what a dropped step did to spans that were no victims, or stayed, is undone too.
template <class R>
concept TakesBack = requires(R& r, SpanId span) {
  { r.on_shrink(span) } noexcept -> std::same_as<void>;
  { r.on_grow(span) } noexcept -> std::same_as<void>;
  { r.set_aside(span) } noexcept -> std::same_as<void>;
  { r.take_back(span) } noexcept -> std::same_as<bool>;
};

/// A policy over idle spans of the prefix tree.
template <class R>
concept Replacement = PlaysReplacement<R> && StartsWithOptions<R> && ReservesSpans<R> &&
                      HearsIdle<R> && HearsBusy<R> && HearsHit<R> && HearsRemoval<R> &&
                      NamesVictim<R> && RestoresVictim<R> && HearsSplit<R> && ShowsCandidates<R>;

/// Stops the build at the first requirement that `R` lacks, with a sentence that says which.
template <class R>
consteval bool explain_replacement()
{
  static_assert(PlaysReplacement<R>,
                "kvcache: a replacement policy says `using role = kvcache::role::replacement;`");
  static_assert(StartsWithOptions<R>,
                "kvcache: a replacement policy has `struct Options` with defaults, is made from "
                "nothing or from Options, and can be moved");
  static_assert(ReservesSpans<R>,
                "kvcache: a replacement policy has `bool reserve(std::uint32_t) noexcept`, after "
                "which no other call may allocate");
  static_assert(
    HearsIdle<R>,
    "kvcache: a replacement policy has `void on_idle(SpanId, SpanFacts const&) noexcept`");
  static_assert(HearsBusy<R>, "kvcache: a replacement policy has `void on_busy(SpanId) noexcept`");
  static_assert(HearsHit<R>, "kvcache: a replacement policy has `void on_hit(SpanId) noexcept`");
  static_assert(
    HearsRemoval<R>,
    "kvcache: a replacement policy has `void on_remove(SpanId) noexcept`, after which the "
    "id may name another span");
  static_assert(NamesVictim<R>,
                "kvcache: a replacement policy has `std::optional<SpanId> victim() noexcept`");
  static_assert(
    RestoresVictim<R>,
    "kvcache: a replacement policy has `void restore(SpanId, SpanFacts const&) noexcept`");
  static_assert(HearsSplit<R>,
                "kvcache: a replacement policy has `void on_split(SpanId head, SpanId tail) "
                "noexcept`");
  static_assert(ShowsCandidates<R>,
                "kvcache: a replacement policy has `is_candidate(SpanId) const noexcept`, `size() "
                "const noexcept`, `for_each_oldest_first(F) const` and `check_invariants() const`");
  return Replacement<R>;
}

}  // namespace kvcache::inline v0_1
