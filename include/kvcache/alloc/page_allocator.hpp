// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Page ids: who holds which, and which is next.
///
///   id      1    2    3    4    5    6    7 ... N
///   count   2    1    0    1    0  | never given out yet
///                                  ^ next fresh id
///   free    [ 5, 3 ]  <- the latest page given back leaves first
///
/// A page has a count of holders: tables, the tree, copies in flight. It is free when nobody holds it.
/// Pages that came back lie on a stack, so the page most lately used (and most likely still in a cache)
/// goes out first; only when the stack is empty does a page that was never used go out, in order of id.
/// So a pool of 16 million pages is ready at once: memory of the two arrays that is not reached yet is
/// never touched. The order is a function of the calls alone, so every rank gives the same ids.
///
/// Cost: a few instructions a page; 8 bytes for each page that was ever in use. No call allocates.

#include <kvcache/alloc/concept.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcache::inline v0_1 {

/// Gives out page ids 1 to `capacity()` and counts their holders; see the file comment.
/// **Threads** one thread owns it.
class PageAllocator {
 public:
  using role = role::allocator;

  /// **Cost** O(1), whatever the number of pages. **Errors** `std::bad_alloc`.
  explicit PageAllocator(PageCount pages)
      : counts_(std::size_t{pages} + 1), stack_(pages), capacity_(pages)
  {
  }

  /// How many pages there are, free and held.
  [[nodiscard]] PageCount capacity() const noexcept { return capacity_; }

  /// How many pages a `take` could get now.
  [[nodiscard]] PageCount num_free() const noexcept { return depth_ + (capacity_ - fresh_); }

  /// Fills `out` with free pages, each with count 1, or changes nothing and returns false.
  /// **Cost** O(out.size()).
  [[nodiscard]] bool take(std::span<PageId> out) noexcept
  {
    if (out.size() > num_free()) {
      return false;
    }
    // Counts are numbers as the members are: in registers these need not be read anew after each count.
    PageId const* const top = stack_.data() + depth_;
    std::uint32_t* const counts = counts_.data();
    std::size_t const recycled = out.size() < depth_ ? out.size() : depth_;
    for (std::size_t i = 0; i < recycled; ++i) {
      PageId const page = *(top - 1 - i);
      out[i] = page;
      counts[page.value] = returned | 1;
    }
    depth_ -= static_cast<PageCount>(recycled);
    PageCount fresh = fresh_;
    for (std::size_t i = recycled; i < out.size(); ++i) {
      out[i] = PageId{++fresh};
      counts[fresh] = 1;
    }
    fresh_ = fresh;
    return true;
  }

  /// Undoes the latest `take` that was not undone yet, given exactly what it filled in.
  /// **Pre** each page has count 1. **Post** later takes give what they would have given before.
  /// **Cost** O(pages.size()).
  void untake(std::span<PageId const> pages) noexcept
  {
    for (std::size_t i = pages.size(); i-- > 0;) {
      PageId const page = pages[i];
      KVCACHE_EXPECTS(count(page) == 1, "kvcache: untake needs pages that only their taker holds");
      --counts_[page.value];
      if ((counts_[page.value] & returned) == 0 && page.value == fresh_) {
        --fresh_;
      } else {
        push(page);
      }
    }
  }

  /// One more holder. **Pre** `count(page) >= 1`. **Cost** O(1).
  void share(PageId page) noexcept
  {
    KVCACHE_EXPECTS(count(page) != 0, "kvcache: share needs a page that somebody holds");
    ++counts_[page.value];
  }

  /// One holder less; returns how many are left. At 0 the page is free and next to be given out.
  /// **Pre** `count(page) >= 1`: giving back a free page, or page 0, ends the program. **Cost** O(1).
  std::uint32_t release(PageId page) noexcept
  {
    KVCACHE_EXPECTS(count(page) != 0, "kvcache: release needs a page that somebody holds");
    --counts_[page.value];
    std::uint32_t const left = count(page);
    if (left == 0) {
      push(page);
    }
    return left;
  }

  /// `release` of each page, the first one first: the last of them is the next to be given out.
  /// **Cost** O(pages.size()).
  void release(std::span<PageId const> pages) noexcept
  {
    std::uint32_t* const counts = counts_.data();
    PageId* top = stack_.data() + depth_;
    PageCount const capacity = capacity_;
    for (PageId const page : pages) {
      std::uint32_t const before = page.value <= capacity ? counts[page.value] : 0;
      if (before == (returned | 1)) [[likely]] {  // its only holder, and not for the first time
        counts[page.value] = returned;
        *top++ = page;
        continue;
      }
      KVCACHE_EXPECTS((before & ~returned) != 0,
                      "kvcache: release needs a page that somebody holds");
      counts[page.value] = before == 1 ? returned : before - 1;
      if (before == 1) {
        *top++ = page;
      }
    }
    depth_ = static_cast<PageCount>(top - stack_.data());
  }

  /// How many holders `page` has; 0 for a free page, page 0, and ids that do not exist.
  [[nodiscard]] std::uint32_t count(PageId page) const noexcept
  {
    return page.value <= capacity_ ? counts_[page.value] & ~returned : 0;
  }

  /// One number for the counts of all held pages and the order of the free ones.
  /// **Cost** O(pages ever in use).
  [[nodiscard]] std::uint64_t digest() const noexcept
  {
    std::uint64_t h = mix(capacity_, fresh_);
    for (std::uint32_t page = 1; page <= fresh_; ++page) {
      h = mix(h, count(PageId{page}));
    }
    for (PageCount i = 0; i < depth_; ++i) {
      h = mix(h, stack_[i].value);
    }
    return h;
  }

  /// Recounts free and held pages from scratch. **Cost** O(capacity), for tests.
  [[nodiscard]] bool check_invariants() const
  {
    if (depth_ > fresh_ || fresh_ > capacity_ || counts_[0] != 0) {
      return false;
    }
    ZeroArray<bool> free(std::size_t{capacity_} + 1);
    for (PageCount i = 0; i < depth_; ++i) {
      std::uint32_t const page = stack_[i].value;
      if (page == 0 || page > fresh_ || free[page] || counts_[page] != returned) {
        return false;
      }
      free[page] = true;
    }
    PageCount held = 0;
    for (std::uint32_t page = 1; page <= capacity_; ++page) {
      bool const is_held = count(PageId{page}) != 0;
      if (page > fresh_ ? counts_[page] != 0 : is_held == free[page]) {
        return false;
      }
      held += is_held ? 1U : 0U;
    }
    return held + num_free() == capacity_;
  }

 private:
  /// Set in a page's count once it has been on the stack: `untake` must know where a page came from.
  static constexpr std::uint32_t returned = std::uint32_t{1} << 31;

  void push(PageId page) noexcept
  {
    counts_[page.value] |= returned;
    stack_[depth_++] = page;
  }

  ZeroArray<std::uint32_t> counts_;  // by page id
  ZeroArray<PageId> stack_;          // pages given back, the latest on top
  PageCount capacity_;
  PageCount depth_ = 0;  // of the stack
  PageCount fresh_ = 0;  // the highest id ever given out
};

static_assert(explain_allocator<PageAllocator>());

}  // namespace kvcache::inline v0_1
