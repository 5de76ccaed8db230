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
/// So a pool of 16 million pages is ready at once: memory of the arrays that is not reached yet is
/// never touched. The order is a function of the calls alone, so every rank gives the same ids.
///
/// A count has a byte, so that those of 32,768 pages fit in a core's nearest cache: pages come back in any order, and a
/// call for thousands of them would wait for most of their counts. A count that a byte is too small for lies elsewhere.
///
/// Cost: a few instructions a page; 5 bytes for each page that was ever in use, 9 for one that had more than 126
/// holders. No call allocates.

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
      : counts_(std::size_t{pages} + 1),
        large_(std::size_t{pages} + 1),
        stack_(std::size_t{pages} + block),
        capacity_(pages)
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
    Count* const counts = counts_.data();
    std::size_t const recycled = out.size() < depth_ ? out.size() : depth_;
    auto const reuse_two = [=](std::size_t i) {
      std::uint64_t const two = load_two(top - 2 - i);
      store_two(out.data() + i, two << 32 | two >> 32);
      counts[two >> 32] = returned | 1;
      counts[static_cast<std::uint32_t>(two)] = returned | 1;
    };
    auto const reuse = [=](std::size_t i) {
      reuse_two(i);
      reuse_two(i + 2);
    };
    auto const ask = [=](std::size_t i) { __builtin_prefetch(counts + (top - 1 - i)->value, 1); };
    std::size_t i = 0;
    for (std::size_t const until = num_prefetched(recycled); i + block <= until; i += block) {
      ask(i + ahead);
      ask(i + ahead + 1);
      ask(i + ahead + 2);
      ask(i + ahead + 3);
      reuse(i);
    }
    for (; i + block <= recycled; i += block) {
      reuse(i);
    }
    for (; i < recycled; ++i) {
      out[i] = *(top - 1 - i);
      counts[out[i].value] = returned | 1;
    }
    depth_ -= static_cast<PageCount>(recycled);
    PageCount fresh = fresh_;
    for (; i < out.size(); ++i) {
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
    std::uint32_t const holders = small_count(page);
    if (holders - 1 < large - 2) [[likely]] {  // not none, and one more fits
      ++counts_[page.value];
      return;
    }
    KVCACHE_EXPECTS(holders != 0, "kvcache: share needs a page that somebody holds");
    if (holders == large) {
      ++large_[page.value];
    } else {
      ++counts_[page.value];
      large_[page.value] = large;
    }
  }

  /// One holder less; returns how many are left. At 0 the page is free and next to be given out.
  /// **Pre** `count(page) >= 1`: giving back a free page, or page 0, ends the program. **Cost** O(1).
  std::uint32_t release(PageId page) noexcept
  {
    std::uint32_t const holders = small_count(page);
    KVCACHE_EXPECTS(holders != 0, "kvcache: release needs a page that somebody holds");
    if (holders == large) [[unlikely]] {
      return release_large(page);
    }
    --counts_[page.value];
    if (holders == 1) {
      push(page);
    }
    return holders - 1;
  }

  /// `release` of each page, the first one first: the last of them is the next to be given out.
  /// **Cost** O(pages.size()).
  void release(std::span<PageId const> pages) noexcept
  {
    Count* const counts = counts_.data();
    PageId* top = stack_.data() + depth_;
    PageCount const capacity = capacity_;
    // Whether the caller was its only holder, and not for the first time: then its count is that of a free page now.
    auto const release_lone = [=](PageId page) {
      if (page.value > capacity || counts[page.value] != (returned | 1)) [[unlikely]] {
        return false;
      }
      counts[page.value] = returned;
      return true;
    };
    auto const release_one = [&](PageId page) {
      if (release_lone(page)) [[likely]] {
        *top++ = page;
        return;
      }
      std::uint32_t const holders = small_count(page);
      KVCACHE_EXPECTS(holders != 0, "kvcache: release needs a page that somebody holds");
      if (holders == large) {
        (void)release_large(page);
      } else if (holders == 1) {
        counts[page.value] = returned;
        *top++ = page;
      } else {
        --counts[page.value];
      }
    };
    // Writes all of a block onto the stack, as if nobody else held any of them, and keeps what is true of it.
    auto const release_block = [&](PageId const* some) {
      store_two(top, load_two(some));
      store_two(top + 2, load_two(some + 2));
      std::size_t const lone = !release_lone(some[0])   ? 0
                               : !release_lone(some[1]) ? 1
                               : !release_lone(some[2]) ? 2
                               : !release_lone(some[3]) ? 3
                                                        : block;
      top += lone;
      for (std::size_t j = lone; j < block; ++j) {
        release_one(some[j]);
      }
    };
    auto const ask = [=](std::size_t i) { __builtin_prefetch(counts + pages[i].value, 1); };
    std::size_t i = 0;
    for (std::size_t const until = num_prefetched(pages.size()); i + block <= until; i += block) {
      ask(i + ahead);
      ask(i + ahead + 1);
      ask(i + ahead + 2);
      ask(i + ahead + 3);
      release_block(pages.data() + i);
    }
    for (; i + block <= pages.size(); i += block) {
      release_block(pages.data() + i);
    }
    for (; i < pages.size(); ++i) {
      release_one(pages[i]);
    }
    depth_ = static_cast<PageCount>(top - stack_.data());
  }

  /// How many holders `page` has; 0 for a free page, page 0, and ids that do not exist.
  [[nodiscard]] std::uint32_t count(PageId page) const noexcept
  {
    std::uint32_t const holders = small_count(page);
    return holders != large ? holders : large_[page.value];
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
  using Count = std::uint8_t;
  /// Set in a page's count once it has been on the stack: `untake` must know where a page came from.
  static constexpr Count returned = 0x80;
  /// All other bits: so many holders or more, and `large_` says how many.
  static constexpr Count large = 0x7f;
  /// Ids go to and from the stack so many at a time.
  static constexpr std::size_t block = 4;
  /// Counts are asked for so many pages before their turn.
  static constexpr std::size_t ahead = 24;

  /// How many of `n` pages ask for a count ahead of them: few pages find theirs in the cache.
  [[nodiscard]] static constexpr std::size_t num_prefetched(std::size_t n) noexcept
  {
    return n > 512 ? n - ahead : 0;
  }
  /// Two ids that lie side by side: a core stores them in the time of one, and it is the stores that a page waits for.
  [[nodiscard]] static std::uint64_t load_two(PageId const* from) noexcept
  {
    std::uint64_t two = 0;
    __builtin_memcpy(&two, from, sizeof two);
    return two;
  }
  static void store_two(PageId* to, std::uint64_t two) noexcept
  {
    __builtin_memcpy(static_cast<void*>(to), &two, sizeof two);
  }
  [[nodiscard]] std::uint32_t small_count(PageId page) const noexcept
  {
    return page.value <= capacity_ ? counts_[page.value] & large : 0U;
  }
  void push(PageId page) noexcept
  {
    counts_[page.value] = static_cast<Count>(counts_[page.value] | returned);
    stack_[depth_++] = page;
  }
  /// One holder less of a page whose count is in `large_`.
  std::uint32_t release_large(PageId page) noexcept
  {
    std::uint32_t const left = --large_[page.value];
    if (left < large) {
      --counts_[page.value];
    }
    return left;
  }

  ZeroArray<Count> counts_;         // by page id
  ZeroArray<std::uint32_t> large_;  // by page id, of those with many holders
  ZeroArray<PageId> stack_;  // pages given back, the latest on top, and room for a block above
  PageCount capacity_;
  PageCount depth_ = 0;  // of the stack
  PageCount fresh_ = 0;  // the highest id ever given out
};

}  // namespace kvcache::inline v0_1
