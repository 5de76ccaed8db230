// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/events.hpp>
#include <kvcache/control/fences.hpp>
#include <kvcache/control/step_uses.hpp>
#include <kvcache/control/stored_pages.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/first_room.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/zero_array.hpp>
#include <kvcache/prefix/domain.hpp>
#include <kvcache/replace/facts.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

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
/// A *pending* span holds pages that a submitted step will write: its stream may attach to them, nobody else
/// sees them. The step is one of their holders, so they are never idle.
///
/// Cost: share and release are O(1); nothing here allocates but the index itself.

namespace kvcache::inline v0_1::detail {

/// Which chunk of which step a pending span waits for; step 0: it is committed.
struct PendingTag {
  StepId step{};
  StreamId stream{};
  std::uint32_t chunk = 0;
  friend bool operator==(PendingTag const&, PendingTag const&) = default;
};

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
class PageLedger {
 public:
  PageLedger(std::int32_t page_tokens,
             PageCount pages,
             typename Prefix::Options prefix,
             typename Replacement::Options replacement,
             std::uint32_t event_capacity)
      : allocator_(pages),
        tree_(page_tokens, pages, prefix),
        policy_(replacement),
        fences_(pages),
        step_uses_(pages),
        events_(event_capacity, page_tokens),
        uses_(std::size_t{pages} + 1),
        page_tokens_(page_tokens)
  {
  }

  [[nodiscard]] Allocator const& allocator() const noexcept { return allocator_; }
  [[nodiscard]] Prefix const& tree() const noexcept { return tree_; }
  [[nodiscard]] Replacement const& policy() const noexcept { return policy_; }
  [[nodiscard]] Fences& fences() noexcept { return fences_; }
  [[nodiscard]] Fences const& fences() const noexcept { return fences_; }
  [[nodiscard]] PageCount num_free() const noexcept { return allocator_.num_free(); }
  [[nodiscard]] EventLog const& events() const noexcept { return events_; }
  /// Pages that only the tree holds.
  [[nodiscard]] PageCount num_cached() const noexcept { return cached_; }
  /// Pages that steps hold, and nobody but them and the tree.
  [[nodiscard]] PageCount num_kept() const noexcept { return kept_; }
  [[nodiscard]] StepUses& step_uses() noexcept { return step_uses_; }
  [[nodiscard]] StepUses const& step_uses() const noexcept { return step_uses_; }
  /// Holders of `page` beside the tree and steps: tables, pins, and the stack of those that wait.
  [[nodiscard]] std::uint32_t num_users(PageId page) const noexcept
  {
    return allocator_.count(page) - (tree_.contains(page) ? 1U : 0U) - step_uses_.of(page);
  }
  /// Two pages of a table, one behind the other, have the same holders. Along a table those get fewer, but steps hold
  /// single pages: copies' sources.
  [[nodiscard]] bool same_holders(PageId page, PageId next) const noexcept
  {
    return num_users(page) == num_users(next) && step_uses_.of(page) == 0 &&
           step_uses_.of(next) == 0;
  }

  /// **Errors** `std::bad_alloc`, nothing changed.
  DomainId intern(Domain const& domain)
  {
    if (indexed_.size() == indexed_.capacity()) {
      indexed_.reserve(2 * indexed_.size() + 1);  // first: a number that was given stays
    }
    DomainId const id = tree_.intern(domain);
    if (indexed_.size() <= id.value) {
      indexed_.resize(std::size_t{id.value} + 1);  // numbers are given in turn
    }
    return id;
  }
  /// Pages of the domain in the tree.
  [[nodiscard]] PageCount num_indexed(DomainId id) const noexcept
  {
    return id.value < indexed_.size() ? indexed_[id.value] : 0;
  }

  /// What the span of the cached `page` waits for.
  [[nodiscard]] PendingTag const& tag(PageId page) const noexcept
  {
    return tags_[tree_.span_of(page).value];
  }
  [[nodiscard]] PendingTag const& tag(SpanId span) const noexcept { return tags_[span.value]; }
  [[nodiscard]] bool pending(PageId page) const noexcept { return tag(page).step.value != 0; }

  /// How often `page` was given out to be written: an id that was kept without a hold is the same page still only while
  /// this stays.
  [[nodiscard]] std::uint32_t uses(PageId page) const noexcept { return uses_[page.value]; }

  /// One more holder of `page`. **Pre** it has one.
  void share(PageId page) noexcept
  {
    kept_ -= is_kept(page) ? 1U : 0U;
    if (tree_.contains(page)) {
      bool const unused = allocator_.count(page) == 1;
      cached_ -= unused ? 1U : 0U;
      if (SpanId const span = tree_.span_of(page); tree_.last_page(span) == page) {
        unused ? policy_.on_busy(span) : policy_.on_hit(span);
      }
    }
    allocator_.share(page);
  }

  /// One holder less. The last one frees the page, or leaves it waiting where a step in flight may touch it.
  /// Tables let go of their pages deepest first.
  void release(PageId page) noexcept
  {
    drop_hold(page);
    kept_ += is_kept(page) ? 1U : 0U;
  }

  /// A hold of `page` is a step's from now on, whosever it was.
  void keep_for_step(PageId page) noexcept
  {
    step_uses_.add(page);
    kept_ += is_kept(page) ? 1U : 0U;
  }
  /// And is a table's again.
  void take_from_step(PageId page) noexcept
  {
    kept_ -= is_kept(page) ? 1U : 0U;
    step_uses_.remove(page);
  }
  /// A step lets go of what it holds.
  void release_of_step(PageId page) noexcept
  {
    take_from_step(page);
    release(page);
  }

  /// Steps of `stream` up to some point have retired: pages that waited for them are free.
  void collect(StreamId stream) noexcept
  {
    fences_.collect(stream, [this](PageId page) { allocator_.release(page); });
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
    tags_[head.value] = tags_[span.value];
    policy_.on_split(head, span);
  }

  /// Adds `pages` to the index below `parent`. The tree becomes a holder of each.
  /// **Pre** they have holders and are not indexed; `parent` is zero_page or the last page of its span.
  /// `alone`: `parent` and `pages` have the same holders beside the tree, so the span may grow.
  /// **Errors** `std::bad_alloc`, nothing changed.
  void publish(DomainId domain,
               PageId parent,
               std::span<Token const> tokens,
               std::span<PageId const> pages,
               bool alone)
  {
    insert(domain, parent, tokens, pages, alone);
    events_.stored(domain, parent, pages, tokens);
  }

  /// As `publish`, for pages that the chunk `tag` will write. The step becomes a holder too.
  /// **Errors** `std::bad_alloc`, nothing changed.
  void publish_pending(DomainId domain,
                       PageId parent,
                       std::span<Token const> tokens,
                       std::span<PageId const> pages,
                       PendingTag const& tag)
  {
    insert(domain, parent, tokens, pages, false);
    tags_[tree_.span_of(pages.back()).value] = tag;
    for (PageId const page : pages) {
      allocator_.share(page);
      keep_for_step(page);
    }
  }
  /// The pending `page`, the `index`-th of its sequences, has its bytes, unless its domain was forgotten meanwhile.
  void settle(PageId page, std::size_t index) noexcept
  {
    if (tree_.contains(page)) {
      SpanId const span = tree_.span_of(page);
      auto const p = static_cast<std::size_t>(page_tokens_);
      std::size_t const first = index * p - static_cast<std::size_t>(tree_.first_token(span));
      tags_[span.value] = {};
      events_.stored(tree_.domain(span),
                     tree_.previous_page(page),
                     std::span(&page, 1),
                     tree_.tokens(span).subspan(first, p));
    }
  }
  /// Takes a pending `page` out of the index; neither the tree nor the step holds it any more.
  /// **Pre** it is the last page of a span without children, or its domain was forgotten.
  void retract(PageId page) noexcept
  {
    if (tree_.contains(page)) {
      PageId out{};
      SpanId const span = tree_.span_of(page);
      DomainId const tree_domain = tree_.domain(span);
      if (tree_.pop_tail(span, 1, &out, nullptr).removed_span) {
        policy_.on_remove(span);
      }
      --indexed_[tree_domain.value];
      allocator_.release(page);
    }
    release_of_step(page);
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
        policy_.on_remove(span);
      },
      [this](PageId page) {
        cached_ -= allocator_.count(page) == 1 ? 1U : 0U;
        drop_hold(page);  // the tree's
      });
    indexed_[domain.value] = 0;
    events_.cleared(domain);
  }

  /// Calls `visit(Event const&)` for each page that is not pending, parents first.
  template <class Visit>
  void for_each_stored(Visit&& visit) const
  {
    visit_stored(*this, static_cast<std::size_t>(page_tokens_), visit);
  }

  /// Equal for two books that were fed the same calls. **Cost** O(pages + tokens).
  [[nodiscard]] std::uint64_t digest() const noexcept
  {
    std::uint64_t h = mix(allocator_.digest(), tree_.digest());
    policy_.for_each_oldest_first([&](SpanId span) { h = mix(h, tree_.last_page(span).value); });
    fences_.for_each([&](PageId page) { h = mix(h, page.value); });
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
    List<PageCount> indexed(indexed_.size());
    for (std::uint32_t value = 1; value <= allocator_.capacity(); ++value) {
      PageId const page{value};
      if (!tree_.contains(page)) {
        continue;
      }
      SpanId const span = tree_.span_of(page);
      bool const unused = allocator_.count(page) == 1;
      cached += unused ? 1U : 0U;
      indexed[tree_.domain(span).value] += 1;
      if ((allocator_.count(tree_.last_page(span)) == 1) != unused) {
        return "a span is used in part";
      }
      if (unused && pending(page)) {
        return "I4: a pending page is not held by its step";
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
    if (indexed != indexed_) {
      return "pages of a domain were miscounted";
    }
    return nullptr;
  }

 protected:
  /// Steps hold the page, and nobody but them and the tree.
  [[nodiscard]] bool is_kept(PageId page) const noexcept
  {
    return step_uses_.any() && step_uses_.of(page) != 0 && num_users(page) == 0;
  }
  void drop_hold(PageId page) noexcept
  {
    if (allocator_.count(page) == 1 && fences_.active(page)) {
      fences_.push(page);
      return;
    }
    if (allocator_.release(page) == 1 && tree_.contains(page)) {
      ++cached_;
      SpanId const span = tree_.span_of(page);
      if (tree_.last_page(span) == page) {
        policy_.on_idle(span, facts(span));
      }
    }
  }
  /// Adds pages to the index, which becomes a holder of each.
  void insert(DomainId domain,
              PageId parent,
              std::span<Token const> tokens,
              std::span<PageId const> pages,
              bool alone)
  {
    reserve_span();
    SpanId const span = tree_.insert(domain, parent, tokens, pages, alone);
    tags_[span.value] = {};
    indexed_[domain.value] += static_cast<PageCount>(pages.size());
    for (PageId const page : pages) {
      allocator_.share(page);
    }
  }
  /// Room in the policy and the tags for one span more. **Errors** `std::bad_alloc`.
  void reserve_span()
  {
    std::uint32_t const bound = tree_.span_id_bound() + 1;
    if (tags_.size() >= bound) {
      return;
    }
    auto const first = static_cast<std::uint32_t>(first_room(allocator_.capacity())) + 1;
    std::uint32_t const spans = bound < first ? first : 2 * bound;
    if (!policy_.reserve(spans)) {
      out_of_memory();
    }
    tags_.resize(spans);
  }
  [[nodiscard]] SpanFacts facts(SpanId span) const noexcept
  {
    return {.parent = tree_.parent(span),
            .domain = tree_.domain(span).value,
            .first_token = tree_.first_token(span),
            .pages = tree_.size(span)};
  }

  Allocator allocator_;
  Prefix tree_;
  Replacement policy_;
  Fences fences_;
  StepUses step_uses_;
  EventLog events_;
  List<PendingTag> tags_;          // by span
  List<PageCount> indexed_;        // by domain: pages in the tree
  ZeroArray<std::uint32_t> uses_;  // by page: how often it was given out to be written
  std::int32_t page_tokens_;
  PageCount cached_ = 0;
  PageCount kept_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
