// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/events.hpp>
#include <kvcache/control/fenced_spans.hpp>
#include <kvcache/control/fences.hpp>
#include <kvcache/control/ledger_state.hpp>
#include <kvcache/control/stored_pages.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/first_room.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/concept.hpp>
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
/// What steps in flight may still read is idle, but not the policy's yet: `FencedSpans`. A page is fenced for as long as any
/// page behind it (`cover`), so a span's first page speaks for its fence, and no parent leaves before its children may.
/// A *pending* span holds pages that a submitted step will write: its stream may attach to them, nobody else
/// sees them. The step is one of their holders, so they are never idle.
///
/// Cost: share and release are O(1); nothing here allocates but the index itself.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
class PageLedger : public LedgerState<Allocator, Prefix, Replacement> {
  using Base = LedgerState<Allocator, Prefix, Replacement>;

 public:
  using Base::Base;
  using Base::num_users;

  /// **Errors** `std::bad_alloc`, nothing changed.
  DomainId intern(Domain const& domain)
  {
    names_.reserve_one();
    DomainId const id = tree_.intern(domain);
    names_.enter(id);
    if (domain.bytes().empty() && !keeps_empty_) {
      keeps_empty_ = true;  // the domain of those who name nothing stays
      names_.name(id);
    }
    return id;
  }

  /// One more holder of `page`. **Pre** it has one.
  void share(PageId page) noexcept
  {
    kept_ -= is_kept(page) ? 1U : 0U;
    if (tree_.contains(page)) {
      bool const unused = allocator_.count(page) == 1;
      cached_ -= unused ? 1U : 0U;
      if (SpanId const span = tree_.span_of(page); tree_.last_page(span) == page) {
        bool const known = unused && !fenced_.contains(span);  // as idle, to the policy
        if (unused) {
          leave_idle(span);
        }
        if (!known) {
          policy_.on_hit(span);
        }
      }
    }
    allocator_.share(page);
  }

  /// As `share`, for a page that is in use: a hit only once `hit` says so, for who may take it back.
  void share_unheard(PageId page) noexcept
  {
    kept_ -= is_kept(page) ? 1U : 0U;
    allocator_.share(page);
  }
  void hit(PageId page) noexcept
  {
    if (tree_.contains(page) && tree_.last_page(tree_.span_of(page)) == page) {
      policy_.on_hit(tree_.span_of(page));
    }
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

  /// Steps of `stream` up to some point have retired: pages that waited for them are free, and spans the policy's.
  void collect(StreamId stream) noexcept
  {
    fences_.collect(stream, [this](PageId page) { allocator_.release(page); });
    for (std::uint32_t const list : {stream.value, Fences::many}) {
      for (SpanId span = fenced_.oldest(list), next{}; span.value != nil; span = next) {
        next = fenced_.newer(span);
        if (fences_.who(tree_.pages(span)[0]) != list) {
          fenced_.remove(span, tree_.size(span));
          stand(span);
        }
      }
    }
  }
  /// Step `step` may read `page`, which it will not hold, and so what hangs above it. **Pre** the page is in use.
  void fence(PageId page, StreamId by, StepId step) noexcept
  {
    fences_.fence(page, by, step);
    cover(page);
  }
  /// What hangs above the cached `page` is fenced for as long. **Pre** it is in use. **Cost** O(pages that were not).
  void cover(PageId page) noexcept
  {
    if (fences_.quiet() || !tree_.contains(page)) {
      return;
    }
    for (PageId above = tree_.previous_page(page);
         above != zero_page && !fences_.covers(above, page);
         page = above, above = tree_.previous_page(page)) {
      fences_.cover(above, page);
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
    tags_[head.value] = tags_[span.value];
    policy_.on_split(head, span);
    if (fenced_.contains(span)) {
      fenced_.split(head, span);
      fences_.cover(tree_.pages(span)[0], tree_.pages(head)[0]);  // which spoke for it, too
    }
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
    for (PageId const page : pages) {
      cover(page);  // who left it may have left another page than `parent` before it
    }
    events_.stored(*this, domain, parent, pages, tokens);
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
      events_.stored(*this,
                     tree_.domain(span),
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
      names_.remove_pages(tree_domain, 1);
      end_if_unnamed(tree_domain);
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
          leave_idle(span);
        }
        policy_.on_remove(span);
      },
      [this](PageId page) {
        cached_ -= allocator_.count(page) == 1 ? 1U : 0U;
        drop_hold(page);  // the tree's
      });
    names_.remove_pages(domain, names_.pages(domain));
    events_.cleared(*this, domain);
    end_if_unnamed(domain);
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
    for (std::uint32_t list = 0; list <= Fences::many; ++list) {
      for (SpanId at = fenced_.oldest(list); at.value != nil; at = fenced_.newer(at)) {
        h = mix(h, std::uint64_t{list} << 32 | tree_.last_page(at).value);
      }
    }
    fences_.for_each([&](PageId page) { h = mix(h, page.value); });
    return h;
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
      if (tree_.pages(span)[0] == page) {
        fall_idle(span);
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
    names_.add_pages(domain, static_cast<PageCount>(pages.size()));
    for (PageId const page : pages) {
      allocator_.share(page);
    }
  }
  /// `span` is idle, and in nobody's order yet.
  void stand(SpanId span) noexcept
  {
    if (std::uint32_t const by = fences_.who(tree_.pages(span)[0]); by != Fences::nobody) {
      fenced_.put(span, by, tree_.size(span));
    } else {
      policy_.on_idle(span, facts(span));
    }
  }
  /// `span` has lost its last user. What hangs above it may be idle already, where a step held `span` alone: it leaves after it.
  void fall_idle(SpanId span) noexcept
  {
    stand(span);
    for (SpanId above = tree_.parent(span); above.value != nil && fenced_.contains(above);
         above = tree_.parent(above)) {
      std::uint32_t const list = fenced_.list_of(above);
      fenced_.remove(above, tree_.size(above));
      fenced_.put(above, list, tree_.size(above));
    }
  }
  /// `span` is idle no more.
  void leave_idle(SpanId span) noexcept
  {
    if (fenced_.contains(span)) {
      fenced_.remove(span, tree_.size(span));
    } else {
      policy_.on_busy(span);
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
    fenced_.reserve(spans);
    tags_.resize(spans);
  }
  [[nodiscard]] SpanFacts facts(SpanId span) const noexcept
  {
    return {.parent = tree_.parent(span),
            .domain = tree_.domain(span).slot,
            .first_token = tree_.first_token(span),
            .pages = tree_.size(span)};
  }

  using Base::allocator_;
  using Base::cached_;
  using Base::end_if_unnamed;
  using Base::events_;
  using Base::fenced_;
  using Base::fences_;
  using Base::keeps_empty_;
  using Base::kept_;
  using Base::names_;
  using Base::page_tokens_;
  using Base::policy_;
  using Base::step_uses_;
  using Base::tags_;
  using Base::tree_;
  using Base::uses_;
};

}  // namespace kvcache::inline v0_1::detail
