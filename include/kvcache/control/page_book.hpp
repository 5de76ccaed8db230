// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/page_ledger.hpp>
#include <kvcache/control/reclaimed.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/first_room.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/replace/concept.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// \file Where pages come from when a step asks, and how a step that is dropped puts everything back.
///
/// In this order: free pages; pages of the same stream that wait for steps before this one; cached pages,
/// as the policy names them; cached pages that only steps of the same stream may still read, oldest first. What is evicted
/// goes into the step's journal with its tokens.

namespace kvcache::inline v0_1 {

/// Pages for steps, over `detail::PageLedger`.
template <class Allocator, class Prefix, class Replacement>
class PageBook : public detail::PageLedger<Allocator, Prefix, Replacement> {
  using Base = detail::PageLedger<Allocator, Prefix, Replacement>;

 public:
  using Base::Base;

  /// Pages evicted since the start, less those that a dropped step put back.
  [[nodiscard]] std::uint64_t evicted_pages() const noexcept { return evicted_; }

  /// Room in `journal` for what taking `pages` may evict, and for an `unpublish` after it, so that neither
  /// can fail half-way. **Errors** `std::bad_alloc`.
  void prepare_take(PageCount pages, bool unpublishes, Reclaimed& journal)
  {
    PageCount const missing =
      (pages > this->num_free() ? pages - this->num_free() : 0) + (unpublishes ? 1U : 0U);
    if (missing == 0) {
      return;
    }
    std::size_t const few = detail::first_room(allocator_.capacity());
    auto const p = static_cast<std::size_t>(page_tokens_);
    grow(journal.entries_, missing, few);  // each has a page at least
    grow(journal.pages_, missing, few);
    grow(journal.tokens_, missing * p, few * p);
  }

  /// Takes pages for a step of `stream` and returns how many of them, the last ones, had waited. `journal` notes what was
  /// evicted. **Pre** there are as many: free ones, those that wait for the stream, and those it could have evicted; who asks
  /// first finds the policy untouched where there are not. `prepare_take` went before.
  [[nodiscard]] std::uint32_t take(std::span<PageId> out,
                                   StreamId stream,
                                   Reclaimed& journal) noexcept
  {
    std::size_t const mark = journal.size();
    auto const wanted = static_cast<PageCount>(out.size());
    auto const ready = [&] { return this->num_free() + fences_.num_waiting(stream); };
    while (ready() < wanted && evict(wanted - ready(), stream, journal)) {
    }
    if (ready() < wanted) {  // a policy names a parent before its child
      restore(journal, mark);
      return nil;
    }
    PageCount const waited = wanted > this->num_free() ? wanted - this->num_free() : 0;
    (void)allocator_.take(out.first(wanted - waited));
    for (PageId& page : out.last(waited)) {
      page = fences_.pop(stream);
    }
    for (PageId const page : out) {
      ++uses_[page.value];
    }
    return waited;
  }

  /// Undoes the latest `take`, which had `waited` pages; evictions are undone by `restore`.
  void untake(std::span<PageId const> pages, PageCount waited) noexcept
  {
    for (PageId const page : pages) {
      --uses_[page.value];
    }
    for (std::size_t i = pages.size(); i > pages.size() - waited; --i) {
      give_back(pages[i - 1]);
    }
    allocator_.untake(pages.first(pages.size() - waited));
  }

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
      this->unname(entry.domain);
    }
  }
  /// The step cannot be dropped any more: its journal names no domain.
  void let_go(Reclaimed& journal) noexcept
  {
    journal.for_each_domain([this](DomainId id) { this->unname(id); });
    journal.clear();
  }

  /// Takes `page` out of the index so that its one user may write it. **Pre** it has one user, and is the
  /// last page of a committed span without children; `prepare_take` went before.
  void unpublish(PageId page, Reclaimed& journal) noexcept
  {
    pop(tree_.span_of(page), 1, zero_page, true, journal);
    ++uses_[page.value];
    allocator_.release(page);
  }
  /// Undoes the latest `unpublish` of `journal`; the page stays private where that cannot be.
  void republish(Reclaimed& journal) noexcept
  {
    Reclaimed::Entry const entry = journal.entries_.back();
    std::size_t const first_token = journal.tokens_.size() - static_cast<std::size_t>(page_tokens_);
    std::span<Token const> const tokens = std::span(journal.tokens_).subspan(first_token);
    PageId const page = journal.pages_.back();
    --uses_[page.value];
    if (fits(entry, tokens)) {
      (void)detail::memory_sufficed_for([&] {
        this->publish(entry.domain, entry.parent, tokens, std::span(&page, 1), may_grow(entry));
        take_back(entry, tree_.span_of(page));
      });
    }
    journal.entries_.pop_back();
    journal.pages_.pop_back();
    journal.tokens_.resize(first_token);
    this->unname(entry.domain);
  }

 private:
  using Base::allocator_;
  using Base::cached_;
  using Base::events_;
  using Base::fenced_;
  using Base::fences_;
  using Base::names_;
  using Base::page_tokens_;
  using Base::policy_;
  using Base::tree_;
  using Base::uses_;

  /// Room for `more`; the first time for `few` at least.
  template <class T>
  static void grow(List<T>& list, std::size_t more, std::size_t few)
  {
    list.reserve_grown(list.capacity() == 0 && more < few ? few : list.size() + more);
  }

  /// Takes up to `wanted` pages from the tail of the policy's victim, or of what only steps of `stream` may still read where
  /// the policy has nothing; false where nobody may leave.
  [[nodiscard]] bool evict(PageCount wanted, StreamId stream, Reclaimed& journal) noexcept
  {
    auto const victim = policy_.victim();
    SpanId const span = victim ? *victim : oldest_fenced(stream);
    if (span.value == nil || tree_.children(span) != 0) {
      return false;
    }
    PageCount const size = tree_.size(span);
    PageCount const n = wanted < size ? wanted : size;
    PageId newer = zero_page;
    if (!victim) {
      SpanId const behind = fenced_.newer(span);
      newer = behind.value == nil ? zero_page : tree_.last_page(behind);
      n == size ? fenced_.remove(span, n) : fenced_.shrink(span, n);
    } else if (n == size) {
      policy_.on_busy(span);
    } else if constexpr (TakesBack<Replacement>) {
      policy_.on_shrink(span);
    }
    pop(span, n, newer, !victim, journal);
    evicted_ += n;
    for (PageId const page : std::span(journal.pages_).last(n)) {
      --cached_;
      if (fences_.active(page)) {
        fences_.push(page);  // of this stream, or it would not have been taken
      } else {
        allocator_.release(page);
      }
    }
    return true;
  }
  /// The first span without children that only steps of `stream` may still read. What has some stays until a step retires that
  /// holds a page below it. **Cost** O(those).
  [[nodiscard]] SpanId oldest_fenced(StreamId stream) const noexcept
  {
    SpanId span = fenced_.oldest(stream.value);
    while (span.value != nil && tree_.children(span) != 0) {
      span = fenced_.newer(span);
    }
    return span;
  }

  /// **Pre** the journal has room: no resize here allocates.
  void pop(SpanId span, PageCount n, PageId newer, bool used, Reclaimed& journal) noexcept
  {
    std::size_t const page_at = journal.pages_.size();
    std::size_t const token_at = journal.tokens_.size();
    journal.pages_.resize(page_at + n);
    journal.tokens_.resize(token_at + std::size_t{n} * static_cast<std::size_t>(page_tokens_));
    auto const popped =
      tree_.pop_tail(span, n, journal.pages_.data() + page_at, journal.tokens_.data() + token_at);
    journal.entries_.push_back(Reclaimed::Entry{.domain = popped.domain,
                                                .generation = tree_.generation(popped.domain),
                                                .parent = popped.parent,
                                                .parent_use = uses_[popped.parent.value],
                                                .pages = n,
                                                .whole_span = popped.removed_span,
                                                .used = used,
                                                .newer = newer});
    if (popped.removed_span) {
      if constexpr (TakesBack<Replacement>) {
        used ? policy_.set_aside(span) : policy_.on_remove(span);
      } else {
        policy_.on_remove(span);
      }
    }
    names_.name(popped.domain);  // the journal does
    names_.remove_pages(popped.domain, n);
    for (PageId const page : std::span(journal.pages_).subspan(page_at)) {
      events_.removed(*this, popped.domain, page);
    }
  }

  /// The policy has the entry's span again as it was when it left, in use.
  bool take_back(Reclaimed::Entry const& entry, SpanId span) noexcept
  {
    if constexpr (TakesBack<Replacement>) {
      return entry.used && entry.whole_span && policy_.take_back(span);
    }
    return false;
  }

  /// The entry's place in the tree is still there and still empty.
  [[nodiscard]] bool fits(Reclaimed::Entry const& entry,
                          std::span<Token const> tokens) const noexcept
  {
    if (tree_.generation(entry.domain) != entry.generation) {
      return false;
    }
    if (entry.parent != zero_page &&
        (!tree_.contains(entry.parent) || uses_[entry.parent.value] != entry.parent_use ||
         this->pending(entry.parent) ||
         tree_.last_page(tree_.span_of(entry.parent)) != entry.parent)) {
      return false;
    }
    return tree_.find_child(entry.domain,
                            entry.parent,
                            tokens.first(static_cast<std::size_t>(page_tokens_))) == zero_page;
  }
  /// The span that the entry was cut from can take it back.
  [[nodiscard]] bool may_grow(Reclaimed::Entry const& entry) const noexcept
  {
    return !entry.whole_span && tree_.children(tree_.span_of(entry.parent)) == 0;
  }

  /// `pages` lists the evicted pages last page first; they are the ones that were freed last.
  void restore_one(Reclaimed::Entry const& entry,
                   std::span<PageId> pages,
                   std::span<Token const> tokens) noexcept
  {
    if (!fits(entry, tokens) || !is_covered(entry.parent, pages) || !retake(pages)) {
      return;
    }
    bool const grow_span = may_grow(entry) && allocator_.count(entry.parent) == 1;
    if (!detail::memory_sufficed_for([&] {
          this->reserve_span();
          SpanId const span = tree_.insert(entry.domain, entry.parent, tokens, pages, grow_span);
          this->tags_[span.value] = {};
        })) {
      for (std::size_t i = pages.size(); i > 0; --i) {
        give_back(pages[i - 1]);
      }
      return;
    }
    names_.add_pages(entry.domain, entry.pages);
    events_.stored(*this, entry.domain, entry.parent, pages, tokens);
    cached_ += entry.pages;
    evicted_ -= entry.pages;
    SpanId const span = tree_.span_of(pages.back());
    if (grow_span) {
      if (fenced_.contains(span)) {
        fenced_.grow(span, entry.pages);
      } else if constexpr (TakesBack<Replacement>) {
        policy_.on_grow(span);
      }
      return;
    }
    bool const taken_back = take_back(entry, span);
    if (std::uint32_t const by = fences_.who(pages.front()); by != detail::Fences::nobody) {
      fenced_.put(span, by, entry.pages, place_of(span, entry.newer, by));
    } else if (taken_back) {  // the steps that kept it are over
      policy_.on_idle(span, this->facts(span));
    } else {
      policy_.restore(span, this->facts(span));
    }
  }
  /// No step that came in between keeps one of `pages`, last page first, for longer than the page before it.
  [[nodiscard]] bool is_covered(PageId parent, std::span<PageId const> pages) const noexcept
  {
    bool all = parent == zero_page || fences_.covers(parent, pages.back());
    for (std::size_t i = 1; i < pages.size(); ++i) {
      all = all && fences_.covers(pages[i], pages[i - 1]);
    }
    return all;
  }
  /// What `span` stood before in `list`: the span that ends with `newer`, or nothing, if that is so still; it must stand
  /// before its parent.
  [[nodiscard]] SpanId place_of(SpanId span, PageId newer, std::uint32_t list) const noexcept
  {
    auto const listed = [&](SpanId at) {
      return at.value != nil && fenced_.contains(at) && fenced_.list_of(at) == list;
    };
    if (newer == zero_page) {
      return listed(tree_.parent(span)) ? fenced_.oldest(list) : SpanId{nil};
    }
    SpanId const at = tree_.contains(newer) ? tree_.span_of(newer) : SpanId{nil};
    return listed(at) && tree_.last_page(at) == newer ? at : fenced_.oldest(list);
  }

  /// Takes exactly `pages`, listed last freed last page first, and turns the list into the order of the
  /// sequence; false, and nothing changed, where others took or freed pages in between.
  [[nodiscard]] bool retake(std::span<PageId> pages) noexcept
  {
    std::size_t const n = pages.size();
    std::size_t got = 0;
    while (got < n && retake(pages[n - 1 - got])) {
      ++got;
    }
    if (got < n) {
      for (; got > 0; --got) {
        give_back(pages[n - got]);
      }
      return false;
    }
    for (std::size_t i = 0; i < n / 2; ++i) {
      std::swap(pages[i], pages[n - 1 - i]);
    }
    return true;
  }
  /// Takes `page` if it was the last to be freed, or the last to wait.
  [[nodiscard]] bool retake(PageId page) noexcept
  {
    if (fences_.active(page)) {
      return fences_.pop_if_last(page);
    }
    PageId top{};
    if (!allocator_.take(std::span(&top, 1))) {
      return false;
    }
    if (top != page) {
      allocator_.untake(std::span<PageId const>(&top, 1));
    }
    return top == page;
  }
  /// A page that nobody used, back to where pages come from.
  void give_back(PageId page) noexcept
  {
    if (fences_.active(page)) {
      fences_.push(page);
    } else {
      allocator_.untake(std::span<PageId const>(&page, 1));
    }
  }

  std::uint64_t evicted_ = 0;
};

}  // namespace kvcache::inline v0_1
