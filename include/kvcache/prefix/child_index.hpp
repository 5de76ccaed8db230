// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/first_room.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/keyed_hash.hpp>
#include <kvcache/prefix/compare.hpp>
#include <kvcache/prefix/id_table.hpp>
#include <kvcache/prefix/span.hpp>
#include <kvcache/prefix/span_store.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Where a child hangs: below a span, or at the root of a domain.
struct Place {
  std::uint32_t parent;  // nil: the root of `domain`
  DomainId domain;
};

/// Finds the child of a place by its first page, or the children that share its first token.
///
/// One table for all places, keyed by the place and all tokens of the first page; the tokens are always
/// compared. Hashes have a secret in every round, so prompts made to meet do not. Prompts of a domain cannot slow a look-up of another: the key holds the place, so foreign
/// spans meet a probe only as the scatter of any hash table, never in step with their content.
/// Siblings with the same first token form a list, newest first, for partial hits; pages of one token have
/// no partial hits and keep no lists.
/// **Cost** each call O(1) expected, O(page_tokens) to hash and compare a page.
class ChildIndex {
 public:
  /// For a tree of up to `pages`. **Errors** `std::bad_alloc`.
  ChildIndex(std::size_t page_tokens, std::uint64_t seed, PageCount pages)
      : page_tokens_(page_tokens), hash_(page_tokens, seed)
  {
    reserve(first_room(pages));
  }

  [[nodiscard]] std::uint32_t hash(Place place, Token const* page) const noexcept
  {
    return fold(hash_(number(place), page));
  }

  /// The child of `place` that starts with this page, or nil. `hash` is `hash(place, page)`.
  [[nodiscard]] std::uint32_t find(SpanStore const& spans,
                                   Place place,
                                   Token const* page,
                                   std::uint32_t hash) const noexcept
  {
    return by_page_.find(hash, [&](std::uint32_t id) {
      return is_at(spans[id], place) && equal_tokens(spans[id].buffer.tokens(), page, page_tokens_);
    });
  }

  /// The newest child of `place` that starts with `token`, or nil; `Span::next` leads to older ones.
  [[nodiscard]] std::uint32_t newest(SpanStore const& spans,
                                     Place place,
                                     Token token) const noexcept
  {
    return by_token_.find(token_hash(place, token), [&](std::uint32_t id) {
      return is_at(spans[id], place) && spans[id].buffer.tokens()[0] == token;
    });
  }

  /// Makes room for `count` children in all. **Errors** `std::bad_alloc`, nothing changed that shows.
  void reserve(std::size_t count)
  {
    by_page_.reserve(count);
    by_token_.reserve(page_tokens_ > 1 ? count : 0);
  }

  /// Enters span `id`; its place, hash and buffer are set. **Pre** there is room.
  void link(SpanStore& spans, std::uint32_t id) noexcept
  {
    Span& span = spans[id];
    by_page_.insert(span.hash, id);
    span.next = nil;
    span.previous = nil;
    if (page_tokens_ > 1) {
      Place const place = place_of(span);
      Token const token = span.buffer.tokens()[0];
      std::uint32_t const second = newest(spans, place, token);
      if (second == nil) {
        by_token_.insert(token_hash(place, token), id);
      } else {
        by_token_.replace(token_hash(place, token), second, id);
        span.next = second;
        spans[second].previous = id;
      }
    }
  }

  /// Takes span `id` out. **Pre** its place, hash and first page are as they were at `link`.
  void unlink(SpanStore& spans, std::uint32_t id) noexcept
  {
    Span const& span = spans[id];
    by_page_.erase(span.hash, id);
    if (page_tokens_ > 1) {
      if (span.previous != nil) {
        spans[span.previous].next = span.next;
      } else {
        retarget_first(span, id, span.next);
      }
      if (span.next != nil) {
        spans[span.next].previous = span.previous;
      }
    }
  }

  /// Span `head` takes over the entry of `id`: it hangs at the same place, and has the first page that `id` had.
  void replace(SpanStore& spans, std::uint32_t id, std::uint32_t head) noexcept
  {
    Span const& old = spans[id];
    by_page_.replace(old.hash, id, head);
    spans[head].next = old.next;
    spans[head].previous = old.previous;
    if (page_tokens_ > 1) {
      if (old.previous != nil) {
        spans[old.previous].next = head;
      } else {
        retarget_first(spans[head], id, head);  // which has the first token now
      }
      if (old.next != nil) {
        spans[old.next].previous = head;
      }
    }
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return by_page_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return by_page_.bytes() + by_token_.bytes(); }

  /// The tree's one hash of pages.
  [[nodiscard]] PageHash const& page_hash() const noexcept { return hash_; }

  [[nodiscard]] static Place place_of(Span const& span) noexcept
  {
    return {.parent = span.parent, .domain = span.domain};
  }

 private:
  static std::uint32_t fold(std::uint64_t h) noexcept
  {
    return static_cast<std::uint32_t>(h ^ h >> 32);
  }

  /// Tells places apart.
  static std::uint64_t number(Place place) noexcept
  {
    return place.parent != nil ? place.parent : std::uint64_t{1} << 32 | place.domain.slot;
  }

  static bool is_at(Span const& span, Place place) noexcept
  {
    return span.parent == place.parent && (place.parent != nil || span.domain == place.domain);
  }

  [[nodiscard]] std::uint32_t token_hash(Place place, Token token) const noexcept
  {
    return fold(hash_.of_token(number(place), token));
  }

  /// The list that `span` (with id `id`) leads starts with `first` now; nil: it is empty.
  void retarget_first(Span const& span, std::uint32_t id, std::uint32_t first) noexcept
  {
    std::uint32_t const hash = token_hash(place_of(span), span.buffer.tokens()[0]);
    if (first != nil) {
      by_token_.replace(hash, id, first);
    } else {
      by_token_.erase(hash, id);
    }
  }

  IdTable by_page_;   // all spans
  IdTable by_token_;  // the newest span of each list
  std::size_t page_tokens_;
  PageHash hash_;
};

}  // namespace kvcache::inline v0_1::detail
