// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file LRU: the span that has been without a user for longest leaves first.
///
///   oldest                                     newest
///   [ leaf ] -> [ its parent ] -> [ leaf ] -> [ parent ] -> [ grandparent ]
///     ^ victim
///
/// One list in order of the moment a span fell idle. Spans in use are not in it: control withdraws a
/// whole path when a sequence takes it and gives it back, deepest first, when the last user goes. So a
/// parent always stands behind its children, the head of the list is always a leaf of the tree, and the
/// order is exact least-recently-used without a clock, a heap or a scan.
///
/// Cost: every call O(1), a few stores; 8 bytes a span.
/// Compare: SGLang keeps a heap of leaves, LMDeploy sorts all pages at each pass, vLLM keeps a list of pages
/// as we do of spans.

#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/owned_array.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/replace/facts.hpp>

#include <cstdint>
#include <new>
#include <optional>
#include <utility>

namespace kvcache::inline v0_1 {

/// Least recently used; see the file comment.
/// **Threads** one thread owns it.
class Lru {
 public:
  using role = role::replacement;
  struct Options {};

  explicit Lru(Options = {}) noexcept {}

  /// Makes room for span ids below `spans`; false when there is no memory, and then nothing changed.
  /// **Cost** amortised O(1) a span.
  [[nodiscard]] bool reserve(std::uint32_t spans) noexcept
  {
    if (spans <= capacity_) {
      return true;
    }
    std::uint32_t const grown = spans > capacity_ / 2 * 3 ? spans : capacity_ / 2 * 3;
    detail::OwnedArray<Link> links(new (std::nothrow) Link[grown]);
    if (!links) {
      return false;
    }
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      links[i] = links_[i];
    }
    links_ = std::move(links);
    capacity_ = grown;
    return true;
  }

  /// `span` has no user any more: it becomes the youngest candidate.
  /// **Pre** it is not a candidate; its id is below what was reserved. **Cost** O(1).
  void on_idle(SpanId span, SpanFacts const&) noexcept
  {
    KVCACHE_EXPECTS(span.value < capacity_ && !is_candidate(span),
                    "kvcache: on_idle needs a span that is in use, with an id that was reserved");
    link_before(nil, span.value);
  }

  /// `span` is used again, or was taken as a victim. **Pre** it is a candidate. **Cost** O(1).
  void on_busy(SpanId span) noexcept
  {
    KVCACHE_EXPECTS(is_candidate(span), "kvcache: on_busy needs a span that is a candidate");
    Link& link = links_[span.value];
    (link.older == nil ? oldest_ : links_[link.older].newer) = link.newer;
    (link.newer == nil ? newest_ : links_[link.newer].older) = link.older;
    link = Link{};
    --size_;
  }

  /// What is in use has no place in the order yet.
  void on_hit(SpanId) noexcept {}

  /// What is no candidate was forgotten before.
  void on_remove(SpanId) noexcept {}

  /// The candidate that has been idle for longest, or nothing.
  /// **Post** it stays a candidate until `on_busy`. **Cost** O(1).
  [[nodiscard]] std::optional<SpanId> victim() noexcept
  {
    return size_ == 0 ? std::nullopt : std::optional<SpanId>{SpanId{oldest_}};
  }

  /// Undoes `victim` and `on_busy`: `span` is the oldest candidate again. **Cost** O(1).
  void restore(SpanId span, SpanFacts const&) noexcept { link_before(oldest_, span.value); }

  /// The new span `head` was cut off the front of `tail`: if `tail` is a candidate, `head` becomes one
  /// right behind it. **Cost** O(1).
  void on_split(SpanId head, SpanId tail) noexcept
  {
    if (is_candidate(tail)) {
      link_before(links_[tail.value].newer, head.value);
    }
  }

  [[nodiscard]] bool is_candidate(SpanId span) const noexcept
  {
    return span.value < capacity_ && links_[span.value].newer != absent;
  }

  /// How many candidates there are.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// Calls `visit(SpanId)` for each candidate, the next victim first. **Cost** O(size).
  template <class F>
  void for_each_oldest_first(F visit) const
  {
    for (std::uint32_t at = oldest_; at != nil; at = links_[at].newer) {
      visit(SpanId{at});
    }
  }

  /// Recounts the list from both ends. **Cost** O(spans), for tests.
  [[nodiscard]] bool check_invariants() const
  {
    std::uint32_t seen = 0;
    std::uint32_t older = nil;
    for (std::uint32_t at = oldest_; at != nil; older = at, at = links_[at].newer, ++seen) {
      if (at >= capacity_ || links_[at].older != older || seen == size_) {
        return false;
      }
    }
    std::uint32_t marked = 0;
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      marked += links_[i].newer != absent ? 1U : 0U;
    }
    return seen == size_ && older == newest_ && marked == size_;
  }

 private:
  static constexpr std::uint32_t absent = nil - 1;  // not a candidate; no id gets that high
  struct Link {
    std::uint32_t newer = absent;
    std::uint32_t older = absent;
  };

  /// Puts `span` just before (older than) `newer`; nil: at the young end.
  void link_before(std::uint32_t newer, std::uint32_t span) noexcept
  {
    std::uint32_t const older = newer == nil ? newest_ : links_[newer].older;
    links_[span] = Link{.newer = newer, .older = older};
    (older == nil ? oldest_ : links_[older].newer) = span;
    (newer == nil ? newest_ : links_[newer].older) = span;
    ++size_;
  }

  detail::OwnedArray<Link> links_;  // by span id
  std::uint32_t capacity_ = 0;      // of links_
  std::uint32_t oldest_ = nil;
  std::uint32_t newest_ = nil;
  std::uint32_t size_ = 0;
};

}  // namespace kvcache::inline v0_1
