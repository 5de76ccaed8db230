// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/reclaimed.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/domain.hpp>
#include <kvcache/replace/facts.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

/// \file Counts, index and recency of the pages, kept in step.
///
///   free   --take-->   held by a table   --publish-->   held by the tree too
///     ^                                                   |  last user lets go
///     +----- evict (the tail of the victim span) <---- cached: only the tree holds it
///
/// The allocator counts holders, the tree knows tokens, the policy orders what nobody uses; none of them
/// knows the others. This class is the one place where a count that rises or falls to "only the tree" moves
/// a span out of or into the policy. Two rules keep that O(1) a page:
///   - who holds a cached page holds the pages before it, so spans fall idle from the deepest on;
///   - a sequence's last cached page is the last of its span (`end_span_at`), so a span is used as a whole,
///     and its last page speaks for it.
///
/// Cost: share and release are O(1); evicting is O(1) a page; nothing here allocates but the index itself.

namespace kvcache::inline v0_1 {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
class PageBook {
 public:
  PageBook(std::int32_t page_tokens,
           PageCount pages,
           typename Prefix::Options prefix,
           typename Replacement::Options replacement)
      : allocator_(pages),
        tree_(page_tokens, pages, prefix),
        policy_(replacement),
        page_tokens_(page_tokens)
  {
  }

  [[nodiscard]] Allocator const& allocator() const noexcept { return allocator_; }
  [[nodiscard]] Prefix const& tree() const noexcept { return tree_; }
  [[nodiscard]] Replacement const& policy() const noexcept { return policy_; }
  [[nodiscard]] PageCount num_free() const noexcept { return allocator_.num_free(); }
  /// Pages that only the tree holds.
  [[nodiscard]] PageCount num_cached() const noexcept { return cached_; }
  /// Pages evicted since the start, less those that a dropped step put back.
  [[nodiscard]] std::uint64_t evicted_pages() const noexcept { return evicted_; }

  DomainId intern(Domain const& domain) { return tree_.intern(domain); }

  /// One more holder of `page`. **Pre** it has one.
  void share(PageId page) noexcept
  {
    if (allocator_.count(page) == 1 && tree_.contains(page)) {
      --cached_;
      SpanId const span = tree_.span_of(page);
      if (tree_.last_page(span) == page) {
        policy_.on_busy(span);
      }
    }
    allocator_.share(page);
  }

  /// One holder less; the last one frees the page. Tables let go of their pages deepest first.
  void release(PageId page) noexcept
  {
    if (allocator_.release(page) == 1 && tree_.contains(page)) {
      ++cached_;
      SpanId const span = tree_.span_of(page);
      if (tree_.last_page(span) == page) {
        policy_.on_idle(span, facts(span));
      }
    }
  }

  /// Makes the cached `page`, the `index`-th of its sequence, the last one of its span.
  /// **Errors** `std::bad_alloc`, nothing changed.
  void end_span_at(PageId page, Index index)
  {
    SpanId const span = tree_.span_of(page);
    if (tree_.last_page(span) == page) {
      return;
    }
    reserve_span();
    auto const at = static_cast<PageCount>(index - tree_.first_token(span) / page_tokens_ + 1);
    SpanId const head = tree_.split(span, at);
    // The tail keeps its id and its place in the policy. The head is used, or about to be; if not, it is
    // as old as the tail, which is older by rule.
    if (allocator_.count(page) == 1) {
      policy_.on_idle(head, facts(head));
    }
  }

  /// Room in `journal` for what taking `pages` may evict, and for an `unpublish` after it, so that neither
  /// can fail half-way. **Errors** `std::bad_alloc`.
  void prepare_take(PageCount pages, bool unpublishes, Reclaimed& journal) const
  {
    PageCount const missing =
      (pages > num_free() ? pages - num_free() : 0) + (unpublishes ? 1U : 0U);
    grow(journal.entries_, missing);
    grow(journal.pages_, missing);
    grow(journal.tokens_,
         static_cast<std::size_t>(missing) * static_cast<std::size_t>(page_tokens_));
  }

  /// Takes pages, evicting cached ones where free ones do not suffice; `journal` notes what was evicted.
  /// **Pre** `num_free() + num_cached() >= out.size()`; `prepare_take` went before.
  void take(std::span<PageId> out, Reclaimed& journal) noexcept
  {
    while (num_free() < out.size()) {
      evict(static_cast<PageCount>(out.size()) - num_free(), journal);
    }
    KVCACHE_EXPECTS(allocator_.take(out),
                    "kvcache: PageBook::take needs free and cached pages enough for all of it");
  }

  /// Undoes the latest `take`. Evictions are undone by `restore`.
  void untake(std::span<PageId const> pages) noexcept { allocator_.untake(pages); }

  /// Puts back what was evicted since `journal` held `mark` entries, newest first, with its recency. What cannot
  /// go back (its domain was forgotten, its parent is gone, memory ran out) stays free.
  void restore(Reclaimed& journal, std::size_t mark) noexcept
  {
    while (journal.entries_.size() > mark) {
      Reclaimed::Entry const entry = journal.entries_.back();
      std::size_t const first_page = journal.pages_.size() - entry.pages;
      std::size_t const first_token =
        journal.tokens_.size() - std::size_t{entry.pages} * static_cast<std::size_t>(page_tokens_);
      restore_one(entry,
                  std::span(journal.pages_).subspan(first_page),
                  std::span(journal.tokens_).subspan(first_token));
      journal.entries_.pop_back();
      journal.pages_.resize(first_page);
      journal.tokens_.resize(first_token);
    }
  }

  /// Adds `pages` to the index below `parent`. The tree becomes a holder of each.
  /// **Pre** they have holders and are not indexed; `parent` is zero_page or the last page of its span.
  /// `alone`: the caller is the only holder of `parent` beside the tree, so the span may grow.
  /// **Errors** `std::bad_alloc`, nothing changed.
  void publish(DomainId domain,
               PageId parent,
               std::span<Token const> tokens,
               std::span<PageId const> pages,
               bool alone)
  {
    reserve_span();
    tree_.insert(domain, parent, tokens, pages, alone);
    for (PageId const page : pages) {
      allocator_.share(page);
    }
  }

  /// Takes `page` out of the index so that its one user may write it. **Pre** it has one user, and is the
  /// last page of a span without children; `prepare_take` went before.
  void unpublish(PageId page, Reclaimed& journal) noexcept
  {
    pop(tree_.span_of(page), 1, journal);
    allocator_.release(page);
  }
  /// Undoes the latest `unpublish` of `journal`; the page stays private where that cannot be.
  void republish(Reclaimed& journal) noexcept
  {
    Reclaimed::Entry const entry = journal.entries_.back();
    std::size_t const first_token = journal.tokens_.size() - static_cast<std::size_t>(page_tokens_);
    if (fits(entry, std::span(journal.tokens_).subspan(first_token))) {
      PageId const page = journal.pages_.back();
      bool const grow_span = !entry.whole_span && tree_.children(tree_.span_of(entry.parent)) == 0;
      (void)detail::memory_sufficed_for([&] {
        publish(entry.domain,
                entry.parent,
                std::span(journal.tokens_).subspan(first_token),
                std::span(&page, 1),
                grow_span);
      });
    }
    journal.entries_.pop_back();
    journal.pages_.pop_back();
    journal.tokens_.resize(first_token);
  }

  /// Drops every entry of the domain; pages that sequences hold stay theirs.
  void forget(DomainId domain) noexcept
  {
    tree_.forget(
      domain,
      [this](SpanId span) {
        if (allocator_.count(tree_.last_page(span)) == 1) {
          policy_.on_busy(span);
        }
      },
      [this](PageId page) {
        cached_ -= allocator_.count(page) == 1 ? 1U : 0U;
        allocator_.release(page);
      });
  }

  /// Equal for two books that were fed the same calls. **Cost** O(pages + tokens).
  [[nodiscard]] std::uint64_t digest() const noexcept
  {
    std::uint64_t h = mix(allocator_.digest(), tree_.digest());
    policy_.for_each_oldest_first([&](SpanId span) { h = mix(h, tree_.last_page(span).value); });
    return h;
  }

  /// Recounts what this class keeps in step. **Cost** O(pages).
  [[nodiscard]] char const* broken() const
  {
    if (!allocator_.check_invariants()) {
      return "I1: the free list and the counts disagree";
    }
    if (!tree_.check_invariants()) {
      return "I7: the prefix tree is damaged";
    }
    if (!policy_.check_invariants()) {
      return "the replacement policy is damaged";
    }
    PageCount cached = 0;
    std::uint32_t idle = 0;
    for (std::uint32_t value = 1; value <= allocator_.capacity(); ++value) {
      PageId const page{value};
      if (!tree_.contains(page)) {
        continue;
      }
      SpanId const span = tree_.span_of(page);
      bool const unused = allocator_.count(page) == 1;
      cached += unused ? 1U : 0U;
      if ((allocator_.count(tree_.last_page(span)) == 1) != unused) {
        return "a span is used in part";
      }
      if (tree_.last_page(span) == page) {
        if (policy_.is_candidate(span) != unused) {
          return "I6: a span is a candidate though used, or unused and no candidate";
        }
        idle += unused ? 1U : 0U;
      }
    }
    if (cached != cached_ || idle != policy_.size()) {
      return "I6: evictable pages were miscounted";
    }
    return nullptr;
  }

 private:
  template <class T>
  static void grow(std::vector<T>& v, std::size_t more)
  {
    if (v.capacity() - v.size() < more) {
      v.reserve(v.size() + more > 2 * v.capacity() ? v.size() + more : 2 * v.capacity());
    }
  }

  /// Room in the policy for one span more. **Errors** `std::bad_alloc`.
  void reserve_span()
  {
    if (!policy_.reserve(tree_.span_id_bound() + 1)) {
      detail::out_of_memory();
    }
  }

  [[nodiscard]] SpanFacts facts(SpanId span) const noexcept
  {
    return {.domain = tree_.domain(span).value,
            .first_token = tree_.first_token(span),
            .pages = tree_.size(span),
            .priority = 0};
  }

  /// Takes up to `wanted` pages from the tail of the policy's victim.
  void evict(PageCount wanted, Reclaimed& journal) noexcept
  {
    SpanId const span = *policy_.victim();
    PageCount const n = tree_.size(span) < wanted ? tree_.size(span) : wanted;
    if (n == tree_.size(span)) {
      policy_.on_busy(span);
    }
    pop(span, n, journal);
    evicted_ += n;
    for (PageId const page : std::span(journal.pages_).last(n)) {
      --cached_;
      allocator_.release(page);
    }
  }

  /// **Pre** the journal has room: no resize here allocates.
  void pop(SpanId span, PageCount n, Reclaimed& journal) noexcept
  {
    std::size_t const page_at = journal.pages_.size();
    std::size_t const token_at = journal.tokens_.size();
    journal.pages_.resize(page_at + n);
    journal.tokens_.resize(token_at + std::size_t{n} * static_cast<std::size_t>(page_tokens_));
    auto const popped =
      tree_.pop_tail(span, n, journal.pages_.data() + page_at, journal.tokens_.data() + token_at);
    journal.entries_.push_back({.domain = popped.domain,
                                .generation = tree_.generation(popped.domain),
                                .parent = popped.parent,
                                .pages = n,
                                .whole_span = popped.removed_span});
  }

  /// The entry's place in the tree is still there and still empty.
  [[nodiscard]] bool fits(Reclaimed::Entry const& entry,
                          std::span<Token const> tokens) const noexcept
  {
    if (tree_.generation(entry.domain) != entry.generation) {
      return false;
    }
    if (entry.parent != zero_page &&
        (!tree_.contains(entry.parent) ||
         tree_.last_page(tree_.span_of(entry.parent)) != entry.parent)) {
      return false;
    }
    return tree_.find_child(entry.domain,
                            entry.parent,
                            tokens.first(static_cast<std::size_t>(page_tokens_))) == zero_page;
  }

  /// `pages` lists the evicted pages last page first; they are the ones that were freed last.
  void restore_one(Reclaimed::Entry const& entry,
                   std::span<PageId> pages,
                   std::span<Token const> tokens) noexcept
  {
    if (num_free() < pages.size() || !fits(entry, tokens)) {
      return;
    }
    // The last page was freed first, so the stack gives them back in the order of the sequence. Pages that
    // others took or freed in between show here, and then the entry is lost.
    std::size_t got = 0;
    for (; got < pages.size(); ++got) {
      PageId page{};
      (void)allocator_.take(std::span(&page, 1));  // there are free ones
      if (page != pages[pages.size() - 1 - got]) {
        allocator_.untake(std::span(&page, 1));
        break;
      }
    }
    bool const grow_span = !entry.whole_span && allocator_.count(entry.parent) == 1 &&
                           tree_.children(tree_.span_of(entry.parent)) == 0;
    bool const back = got == pages.size();
    if (back) {
      for (std::size_t i = 0; i < pages.size() / 2; ++i) {
        std::swap(pages[i], pages[pages.size() - 1 - i]);
      }
    }
    if (!back || !detail::memory_sufficed_for([&] {
          reserve_span();
          tree_.insert(entry.domain, entry.parent, tokens, pages, grow_span);
        })) {
      for (; got > 0; --got) {
        allocator_.untake(
          std::span<PageId const>(pages).subspan(back ? got - 1 : pages.size() - got, 1));
      }
      return;
    }
    cached_ += entry.pages;
    evicted_ -= entry.pages;
    if (!grow_span) {
      SpanId const span = tree_.span_of(pages.back());
      policy_.restore(span, facts(span));
    }
  }

  Allocator allocator_;
  Prefix tree_;
  Replacement policy_;
  std::int32_t page_tokens_;
  PageCount cached_ = 0;
  std::uint64_t evicted_ = 0;
};

}  // namespace kvcache::inline v0_1
