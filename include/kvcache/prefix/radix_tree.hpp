// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The prefix tree: which cached pages continue which tokens.
///
///   domain "llama, tenant 7"                     pages of 4 tokens
///     |
///     +-- [ you are a | helpful bot . ]          one span of 2 pages: nothing branches out of it
///     |        |
///     |        +-- [ what is a kv cache ? | ...]        a prompt that goes on below it
///     |        +-- [ what is the time it | is 9 ]
///     +-- [ you are a | pirate , say arr ]       no: it shares page 1, so the first span was split there
///
/// A *span* is a run of pages of one prompt, and a node of the tree. Children of a span differ in their first page, so
/// one look-up in a hash table keyed by (span, first page) replaces a walk over siblings, and the tokens of a long span
/// are compared in one sweep. Every token is compared; a hash only says where to look. Where a prompt leaves the tree
/// inside a page, the rows before that point are a *partial hit*: the caller may copy them.
///
/// A new prompt that leaves a span in its middle splits it: the front part becomes a new span, the rest
/// keeps its id and children. Each span has one block of memory: what is evicted makes room for what comes.
///
/// The tree knows pages and tokens; it knows neither holders nor recency. Control counts the holders, asks
/// a replacement policy which childless span should go, and calls `pop_tail`.
///
/// Cost: a match compares tokens at the speed of memory plus about three cache lines a span; memory is
/// 4 bytes a token, 4 a cached page, an eighth or so of both unused, 11 a page of the pool, about 100 a span.
/// Source: SGLang's RadixAttention (Zheng et al., arXiv 2312.07104) for the idea. Departures: whole pages,
/// one table instead of a map in each node, domains, partial hits, reasons for misses.

#include <kvcache/core/check.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/keyed_hash.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/prefix/check_tree.hpp>
#include <kvcache/prefix/child_index.hpp>
#include <kvcache/prefix/compare.hpp>
#include <kvcache/prefix/domain.hpp>
#include <kvcache/prefix/domain_table.hpp>
#include <kvcache/prefix/ghosts.hpp>
#include <kvcache/prefix/match.hpp>
#include <kvcache/prefix/page_map.hpp>
#include <kvcache/prefix/span.hpp>
#include <kvcache/prefix/span_store.hpp>
#include <kvcache/prefix/walk.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

namespace kvcache::inline v0_1 {

/// The radix tree of cached pages; see the file comment.
/// **Threads** one thread owns it; const calls may run beside each other while nobody writes.
class RadixTree {
 public:
  using role = role::prefix;

  struct Options {
    /// The secret of the look-ups' hashes, which keeps strangers from making prompts that crowd one slot. Drawn where it
    /// is not given; ranks may draw their own: beside the reasons for misses, which are a guess, no result depends on it.
    std::optional<std::uint64_t> seed{};
  };

  /// **Pre** `page_tokens >= 1`. **Errors** `std::bad_alloc`.
  RadixTree(std::int32_t page_tokens, PageCount pages) : RadixTree(page_tokens, pages, Options{}) {}
  RadixTree(std::int32_t page_tokens, PageCount pages, Options options)
      : spans_(pages, static_cast<std::size_t>(page_tokens)),
        index_(static_cast<std::size_t>(page_tokens), detail::secret_of(options.seed), pages),
        map_(pages),
        ghosts_(pages),
        domains_(index_.page_hash().finish(0, 0)),
        page_tokens_(static_cast<std::size_t>(page_tokens))
  {
    KVCACHE_EXPECTS(page_tokens >= 1, "kvcache: a RadixTree needs page_tokens of at least 1");
  }

  /// The id of `domain`, new or known. **Cost** O(bytes). **Errors** `std::bad_alloc`, nothing changed.
  DomainId intern(Domain const& domain) { return domains_.intern(domain); }

  /// The id of `domain`, if it was interned and has not ended. **Cost** O(bytes).
  [[nodiscard]] std::optional<DomainId> find(Domain const& domain) const noexcept
  {
    return domains_.find(domain);
  }

  /// How often `domain` was forgotten. **Pre** it has not ended.
  [[nodiscard]] std::uint32_t generation(DomainId id) const noexcept
  {
    return domains_.generation(id);
  }

  /// Nobody names `domain` any more: its bytes go, its slot is used again. **Pre** it has no page here.
  void end(DomainId domain) noexcept { domains_.end(domain); }

  /// The longest cached prefix of `tokens`, of at most `limit` rows. Moves nothing, allocates nothing. **Cost** O(rows matched + spans).
  [[nodiscard]] Match match(DomainId domain,
                            std::span<Token const> tokens,
                            Index limit) const noexcept
  {
    std::size_t const wanted = limit <= 0 ? 0 : static_cast<std::size_t>(limit);
    std::size_t const rows = wanted < tokens.size() ? wanted : tokens.size();
    Match match = detail::walk(spans_, index_, page_tokens_, domain, tokens.first(rows));
    auto const reached = static_cast<std::size_t>(match.rows(static_cast<Index>(page_tokens_)));
    match.miss = reached == tokens.size()  ? Miss::none
                 : reached == rows         ? Miss::last_token
                 : match.partial_rows != 0 ? Miss::partial
                                           : why_missed(match, tokens.subspan(reached));
    return match;
  }

  /// Writes the ids of the `match.full_pages` whole pages to `out`, from the first token on.
  /// **Pre** the tree has not changed since the match. **Cost** O(full_pages).
  void copy_pages(Match const& match, PageId* out) const noexcept
  {
    PageId* end = out + match.full_pages;
    PageCount count = match.span_pages;
    for (std::uint32_t id = match.span.value; id != nil; id = spans_[id].parent) {
      PageId const* const pages = spans_[id].buffer.pages(page_tokens_);
      count = id == match.span.value ? count : spans_[id].buffer.size();
      end -= count;
      std::memcpy(end, pages, count * sizeof(PageId));
    }
  }

  /// How many spans there are; how many pages they hold; a bound that all span ids stay below.
  [[nodiscard]] std::uint32_t num_spans() const noexcept { return spans_.size(); }
  [[nodiscard]] PageCount num_pages() const noexcept { return map_.size(); }
  [[nodiscard]] std::uint32_t span_id_bound() const noexcept { return spans_.bound(); }

  /// Whether `page` is in the tree, and in which span; nil when in none.
  [[nodiscard]] bool contains(PageId page) const noexcept { return span_of(page).value != nil; }
  [[nodiscard]] SpanId span_of(PageId page) const noexcept { return SpanId{map_.span(page)}; }

  /// What span `id` is. **Pre** the span exists. **Cost** O(1).
  [[nodiscard]] SpanId parent(SpanId id) const noexcept { return SpanId{node(id).parent}; }
  [[nodiscard]] std::uint32_t children(SpanId id) const noexcept { return node(id).children; }
  [[nodiscard]] PageCount size(SpanId id) const noexcept { return node(id).buffer.size(); }
  [[nodiscard]] DomainId domain(SpanId id) const noexcept { return node(id).domain; }
  [[nodiscard]] PageId first_page(SpanId id) const noexcept { return pages(id).front(); }
  [[nodiscard]] PageId last_page(SpanId id) const noexcept { return pages(id).back(); }
  [[nodiscard]] Index first_token(SpanId id) const noexcept
  {
    return static_cast<Index>(node(id).first * page_tokens_);
  }
  [[nodiscard]] std::span<PageId const> pages(SpanId id) const noexcept
  {
    return {node(id).buffer.pages(page_tokens_), node(id).buffer.size()};
  }
  [[nodiscard]] std::span<Token const> tokens(SpanId id) const noexcept
  {
    return {node(id).buffer.tokens(), node(id).buffer.size() * page_tokens_};
  }

  /// The page before `page` in its prompt; `zero_page` for a first page and for one that is not cached.
  /// **Cost** O(1).
  [[nodiscard]] PageId previous_page(PageId page) const noexcept
  {
    SpanId const id = span_of(page);
    if (id.value == nil) {
      return zero_page;
    }
    std::uint32_t const index = map_.depth(page) - node(id).first;
    return index != 0 ? pages(id)[index - 1] : page_before(node(id));
  }

  /// The cached page right below `parent` (`zero_page`: at the root) that holds exactly these tokens, or
  /// `zero_page`. **Pre** `page.size() == page_tokens`. **Cost** O(page_tokens).
  [[nodiscard]] PageId find_child(DomainId domain,
                                  PageId parent,
                                  std::span<Token const> page) const noexcept
  {
    std::uint32_t const id = map_.span(parent);
    if (parent != zero_page && id == nil) {
      return zero_page;
    }
    if (id != nil) {
      detail::SpanBuffer const& buffer = spans_[id].buffer;
      std::uint32_t const next = map_.depth(parent) - spans_[id].first + 1;
      if (next < buffer.size()) {
        bool const same =
          detail::equal_tokens(buffer.tokens() + next * page_tokens_, page.data(), page_tokens_);
        return same ? buffer.pages(page_tokens_)[next] : zero_page;
      }
    }
    detail::Place const place{.parent = id, .domain = domain};
    std::uint32_t const child =
      index_.find(spans_, place, page.data(), index_.hash(place, page.data()));
    return child == nil ? zero_page : first_page(SpanId{child});
  }

  /// Cuts the first `count` pages of span `id` off into a new span, which becomes its parent and is
  /// returned. The rest keeps its id and its children.
  /// **Pre** `0 < count < size(id)`. **Cost** O(size). **Errors** `std::bad_alloc`, nothing changed.
  SpanId split(SpanId id, PageCount count)
  {
    KVCACHE_EXPECTS(count > 0 && count < size(id), "kvcache: split needs a place inside the span");
    index_.reserve(std::size_t{num_spans()} + 1);
    std::uint32_t const head_id = spans_.reserve_one();
    detail::SpanBuffer front = spans_.split(id.value, count);
    detail::Span& head = spans_.use(head_id, std::move(front));
    detail::Span& tail = spans_[id.value];
    head.first = tail.first;
    head.parent = tail.parent;
    head.domain = tail.domain;
    head.hash = tail.hash;
    head.children = 1;
    index_.replace(spans_, id.value, head_id);
    map_.move(pages(SpanId{head_id}), head_id);
    tail.first += count;
    tail.parent = head_id;
    tail.hash = index_.hash(detail::ChildIndex::place_of(tail), tail.buffer.tokens());
    index_.link(spans_, id.value);
    return SpanId{head_id};
  }

  /// Adds pages with their tokens below `parent` (`zero_page`: at the root of `domain`) and returns the
  /// span that holds the last one. With `extend` a childless span of `parent` grows in place.
  /// **Pre** `parent` is the last page of its span, in `domain`; no page right below it has the same tokens
  /// as the first new one; the pages are not in the tree and differ; a page has `page_tokens` tokens.
  /// **Cost** O(pages), amortised. **Errors** `std::bad_alloc`, or `LogicError` for a broken precondition;
  /// nothing changed.
  SpanId insert(DomainId domain,
                PageId parent,
                std::span<Token const> tokens,
                std::span<PageId const> pages,
                bool extend)
  {
    KVCACHE_EXPECTS(
      !pages.empty() && tokens.size() == pages.size() * page_tokens_,
      "kvcache: insert needs page_tokens tokens for each page, and at least one page");
    auto const count = static_cast<PageCount>(pages.size());
    std::uint32_t const below = map_.span(parent);
    KVCACHE_EXPECTS(parent == zero_page || (below != nil && last_page(SpanId{below}) == parent &&
                                            spans_[below].domain == domain),
                    "kvcache: insert needs a parent that is the last page of a span of the domain");
    if (below != nil && extend && spans_[below].children == 0) {
      spans_.make_room(below, count);
      detail::Span& span = spans_[below];
      map_.enter(pages, below, span.first + span.buffer.size());
      span.buffer.append(tokens.data(), pages.data(), count, page_tokens_);
      return SpanId{below};
    }
    detail::Place const place{.parent = below, .domain = domain};
    std::uint32_t const hash = index_.hash(place, tokens.data());
    KVCACHE_EXPECTS(index_.find(spans_, place, tokens.data(), hash) == nil,
                    "kvcache: insert found a page with the same tokens below the parent");
    index_.reserve(std::size_t{num_spans()} + 1);
    std::uint32_t const id = spans_.reserve_one();
    spans_.reserve_buffer(count);
    std::uint32_t const first =
      below == nil ? 0 : spans_[below].first + spans_[below].buffer.size();
    map_.enter(pages, id, first);
    detail::SpanBuffer buffer = spans_.make_buffer(count);
    buffer.append(tokens.data(), pages.data(), count, page_tokens_);
    detail::Span& span = spans_.use(id, std::move(buffer));
    span.first = first;
    span.parent = below;
    span.domain = domain;
    span.hash = hash;
    index_.link(spans_, id);
    if (below != nil) {
      ++spans_[below].children;
    } else {
      ghosts_.record_start(index_.page_hash()(0, tokens.data()), domain);
    }
    return SpanId{id};
  }

  /// Takes the last `count` pages of span `id` out of the tree: their ids go to `out`, the last page first,
  /// their tokens to `tokens_out` (unless null) in the order of the prompt. An empty span is removed.
  /// **Pre** the span has no children; `0 < count <= size(id)`. **Cost** O(count), amortised.
  Popped pop_tail(SpanId id, PageCount count, PageId* out, Token* tokens_out) noexcept
  {
    detail::Span const& span = spans_[id.value];
    KVCACHE_EXPECTS(span.children == 0 && count > 0 && count <= span.buffer.size(),
                    "kvcache: pop_tail needs a childless span with that many pages");
    PageCount const left = span.buffer.size() - count;
    PageId const* const gone = span.buffer.pages(page_tokens_) + left;
    Token const* const text = span.buffer.tokens() + left * page_tokens_;
    Popped const result{.domain = span.domain,
                        .parent = left != 0 ? gone[-1] : page_before(span),
                        .pages = count,
                        .removed_span = left == 0};
    for (PageCount i = 0; i < count; ++i) {
      out[i] = gone[count - 1 - i];
    }
    if (tokens_out != nullptr) {
      std::memcpy(tokens_out, text, count * page_tokens_ * sizeof(Token));
    }
    map_.leave({gone, count});
    ghosts_.record_evicted(index_.page_hash()(ghost_place(span.domain, result.parent), text));
    if (left != 0) {
      spans_.pop_back(id.value, left);
    } else {
      if (span.parent != nil) {
        --spans_[span.parent].children;
      }
      remove(id.value);
    }
    return result;
  }

  /// Drops every span of `domain` and raises its generation. Calls `on_span(SpanId)` for each while all of
  /// them are still there, then `on_page(PageId)` for each page as it goes. Neither may change the tree.
  /// **Cost** O(span_id_bound() + pages dropped).
  template <class F, class G>
  void forget(DomainId domain, F&& on_span, G&& on_page) noexcept
  {
    for (std::uint32_t id = 0; id < span_id_bound(); ++id) {
      if (spans_.in_domain(id, domain)) {
        on_span(SpanId{id});
      }
    }
    for (std::uint32_t id = 0; id < span_id_bound(); ++id) {
      if (spans_.in_domain(id, domain)) {
        map_.leave(pages(SpanId{id}));
        for (PageId const page : pages(SpanId{id})) {
          on_page(page);
        }
        remove(id);
      }
    }
    domains_.raise_generation(domain);
  }

  /// Memory of the index, what lies ready for more included.
  [[nodiscard]] std::size_t bytes() const noexcept
  {
    return spans_.bytes() + index_.bytes() + map_.bytes() + ghosts_.bytes() + domains_.bytes();
  }

  /// One number for what is cached: the same for the same pages and tokens, however they came in.
  /// **Cost** O(tokens cached).
  [[nodiscard]] std::uint64_t digest() const noexcept
  {
    return mix(num_pages(), detail::digest_pages(spans_, domains_, page_tokens_));
  }

  /// Recounts everything from scratch: links, tables, page map. **Cost** O(pages + tokens), for tests.
  [[nodiscard]] bool check_invariants() const
  {
    return detail::check_links(spans_, domains_) && detail::check_blocks(spans_) &&
           detail::check_index(spans_, index_, page_tokens_) &&
           detail::check_map(spans_, map_, page_tokens_);
  }

 private:
  [[nodiscard]] detail::Span const& node(SpanId id) const noexcept { return spans_[id.value]; }

  [[nodiscard]] PageId page_before(detail::Span const& span) const noexcept
  {
    return detail::page_before(spans_, span, page_tokens_);
  }

  /// Why nothing of `ahead` is cached after the pages of `match`. The same look-ups whatever others hold.
  [[nodiscard]] Miss why_missed(Match const& match, std::span<Token const> ahead) const noexcept
  {
    if (ahead.size() < page_tokens_) {
      return Miss::never_seen;
    }
    PageId const last = match.span.value == nil
                          ? zero_page
                          : node(match.span).buffer.pages(page_tokens_)[match.span_pages - 1];
    detail::PageHash const& hash = index_.page_hash();
    std::uint64_t const sum = hash.sum(ahead.data());
    if (ghosts_.was_evicted(hash.finish(ghost_place(match.domain, last), sum))) {
      return Miss::evicted;
    }
    bool const elsewhere = ghosts_.starts_elsewhere(hash.finish(0, sum), match.domain);
    return last == zero_page && elsewhere ? Miss::other_domain : Miss::never_seen;
  }

  /// A page that left is known by the page before it, or at a root by the domain, and by its own tokens.
  [[nodiscard]] std::uint64_t ghost_place(DomainId domain, PageId before) const noexcept
  {
    return before == zero_page ? domains_.digest(domain) : std::uint64_t{before.value};
  }

  /// Frees span `id`, whose pages have left the map.
  void remove(std::uint32_t id) noexcept
  {
    index_.unlink(spans_, id);
    spans_.release(id);
  }

  detail::SpanStore spans_;
  detail::ChildIndex index_;
  detail::PageMap map_;
  detail::Ghosts ghosts_;
  detail::DomainTable domains_;
  std::size_t page_tokens_;
};

}  // namespace kvcache::inline v0_1
