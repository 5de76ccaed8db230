// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/prefix/domain.hpp>
#include <kvcache/prefix/match.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

/// \file What control asks of an index of cached pages.
///
/// A page is named by its domain and all tokens up to its end. The index groups pages into spans, runs
/// without a branch, which are what a replacement policy ranks. Axioms, beyond the syntax below:
/// 1. `match` returns the longest run of pages, from the first token on, whose tokens all equal the
///    prompt's: tokens and domain are compared, a hash decides nothing. It changes nothing, and its work
///    does not depend on what other domains hold.
/// 2. A page has one parent, which is in the index as long as the page is: only tails of childless spans
///    leave, or a whole domain.
/// 3. No two pages below one parent have the same tokens.
/// 4. `split` keeps the id, the children and the standing of the tail; the head is new.
/// 5. `insert`, `split` and `intern` throw `std::bad_alloc` and change nothing; everything else is noexcept.
/// 6. `digest` depends on what is cached alone, and is the same on every machine.
/// 7. Memory is bounded by what is cached and the size of the pool, whatever came before.

namespace kvcache::inline v0_1 {

template <class P>
concept PlaysPrefix = std::same_as<typename P::role, role::prefix>;

template <class P>
concept StartsWithPageSize =
  std::default_initializable<typename P::Options> &&
  std::constructible_from<P, std::int32_t, PageCount, typename P::Options> && std::movable<P>;

template <class P>
concept NumbersDomains = requires(P& p, P const& c, Domain const& domain, DomainId id) {
  { p.intern(domain) } -> std::same_as<DomainId>;
  { c.find(domain) } noexcept -> std::same_as<std::optional<DomainId>>;
  { c.generation(id) } noexcept -> std::same_as<std::uint32_t>;
};

/// Optional: `end` drops a domain that nobody names any more, so that its number is used again, with another
/// generation. Without it an index keeps each domain that it ever met.
template <class P>
concept EndsDomains = requires(P& p, DomainId id) {
  { p.end(id) } noexcept -> std::same_as<void>;
};

template <class P>
concept MatchesTokens = requires(
  P const& p, DomainId domain, std::span<Token const> tokens, Match const& m, PageId* out) {
  { p.match(domain, tokens, Index{}) } noexcept -> std::same_as<Match>;
  { p.copy_pages(m, out) } noexcept -> std::same_as<void>;
};

template <class P>
concept FindsPages = requires(P const& p, DomainId domain, PageId page, std::span<Token const> t) {
  { p.contains(page) } noexcept -> std::same_as<bool>;
  { p.span_of(page) } noexcept -> std::same_as<SpanId>;
  { p.previous_page(page) } noexcept -> std::same_as<PageId>;
  { p.find_child(domain, page, t) } noexcept -> std::same_as<PageId>;
};

template <class P>
concept ShowsSpans = requires(P const& p, SpanId span) {
  { p.num_spans() } noexcept -> std::same_as<std::uint32_t>;
  { p.span_id_bound() } noexcept -> std::same_as<std::uint32_t>;
  { p.parent(span) } noexcept -> std::same_as<SpanId>;
  { p.children(span) } noexcept -> std::same_as<std::uint32_t>;
  { p.size(span) } noexcept -> std::same_as<PageCount>;
  { p.domain(span) } noexcept -> std::same_as<DomainId>;
  { p.first_token(span) } noexcept -> std::same_as<Index>;
  { p.pages(span) } noexcept -> std::same_as<std::span<PageId const>>;
  { p.tokens(span) } noexcept -> std::same_as<std::span<Token const>>;
};

template <class P>
concept InsertsPages = requires(P& p,
                                DomainId domain,
                                PageId parent,
                                std::span<Token const> tokens,
                                std::span<PageId const> pages) {
  { p.insert(domain, parent, tokens, pages, true) } -> std::same_as<SpanId>;
};

template <class P>
concept SplitsSpans = requires(P& p, SpanId span, PageCount count) {
  { p.split(span, count) } -> std::same_as<SpanId>;
};

template <class P>
concept PopsTails = requires(P& p, SpanId span, PageCount count, PageId* out, Token* tokens) {
  { p.pop_tail(span, count, out, tokens) } noexcept -> std::same_as<Popped>;
};

template <class P>
concept ForgetsDomains =
  requires(P& p, DomainId domain, void (*on_span)(SpanId), void (*on_page)(PageId)) {
    { p.forget(domain, on_span, on_page) } noexcept -> std::same_as<void>;
  };

template <class P>
concept ProvesIndex = requires(P const& p) {
  { p.bytes() } noexcept -> std::same_as<std::size_t>;
  { p.digest() } noexcept -> std::same_as<std::uint64_t>;
  { p.check_invariants() } -> std::same_as<bool>;
};

/// An index from tokens to cached pages.
template <class P>
concept Prefix = PlaysPrefix<P> && StartsWithPageSize<P> && NumbersDomains<P> && MatchesTokens<P> &&
                 FindsPages<P> && ShowsSpans<P> && InsertsPages<P> && SplitsSpans<P> &&
                 PopsTails<P> && ForgetsDomains<P> && ProvesIndex<P>;

/// Stops the build at the first requirement that `P` lacks, with a sentence that says which.
template <class P>
consteval bool explain_prefix()
{
  static_assert(PlaysPrefix<P>,
                "kvcache: a prefix index says `using role = kvcache::role::prefix;`");
  static_assert(StartsWithPageSize<P>,
                "kvcache: a prefix index has `struct Options` with defaults, is made from (page "
                "tokens, pages, Options), and can be moved");
  static_assert(
    NumbersDomains<P>,
    "kvcache: a prefix index has `DomainId intern(Domain const&)`, `find(Domain const&) "
    "const noexcept` and `generation(DomainId) const noexcept`");
  static_assert(MatchesTokens<P>,
                "kvcache: a prefix index has `Match match(DomainId, std::span<Token const>, Index) "
                "const noexcept` and `copy_pages(Match const&, PageId*) const noexcept`");
  static_assert(FindsPages<P>,
                "kvcache: a prefix index has noexcept `contains`, `span_of`, `previous_page` of a "
                "page, and `find_child(DomainId, PageId, std::span<Token const>)`");
  static_assert(ShowsSpans<P>,
                "kvcache: a prefix index shows its spans: noexcept `num_spans`, `span_id_bound`, "
                "`parent`, `children`, `size`, `domain`, `first_token`, `pages`, `tokens`");
  static_assert(
    InsertsPages<P>,
    "kvcache: a prefix index has `SpanId insert(DomainId, PageId parent, tokens, pages, "
    "bool extend)`");
  static_assert(SplitsSpans<P>, "kvcache: a prefix index has `SpanId split(SpanId, PageCount)`");
  static_assert(PopsTails<P>,
                "kvcache: a prefix index has `Popped pop_tail(SpanId, PageCount, PageId*, Token*) "
                "noexcept`");
  static_assert(ForgetsDomains<P>,
                "kvcache: a prefix index has `forget(DomainId, on_span, on_page) noexcept`");
  static_assert(
    ProvesIndex<P>,
    "kvcache: a prefix index has `bytes() const noexcept`, `digest() const noexcept` and "
    "`check_invariants() const`");
  return Prefix<P>;
}

}  // namespace kvcache::inline v0_1
