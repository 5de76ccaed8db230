// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file An allocator of your own: pages come from the two halves of the pool in turn.
///
///   shipped order   1 2 3 4 ..            this one (8 pages)   1 5 2 6 3 7 4 8
///
/// With the first half of the pool's bytes on one memory node and the second half on the other (`.storage` of
/// `Cache::create` takes your own mapping), a sequence's pages then lie on both, and its attention reads both at once.
///
/// An allocator gives out page *ids*; it never sees bytes. What it must hold is in include/kvcache/alloc/concept.hpp:
/// all or nothing, `untake` as the exact undo, the same calls give the same ids. One law comes from dropped steps:
/// they take back what they evicted, so what was released last should be given out first, as from a stack. The
/// shipped allocator has all that, and giving every page another name takes none of it away.

#include <kvcache/alloc/page_allocator.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

class BothHalves {
 public:
  using role = kvcache::role::allocator;

  explicit BothHalves(kvcache::PageCount pages) : pages_(pages), low_((pages + 1) / 2) {}

  [[nodiscard]] kvcache::PageCount capacity() const noexcept { return pages_.capacity(); }
  [[nodiscard]] kvcache::PageCount num_free() const noexcept { return pages_.num_free(); }
  [[nodiscard]] std::uint32_t count(kvcache::PageId page) const noexcept
  {
    return pages_.count(inner(page));
  }
  [[nodiscard]] bool take(std::span<kvcache::PageId> out) noexcept
  {
    if (!pages_.take(out)) {
      return false;
    }
    for (kvcache::PageId& page : out) {
      page = outer(page);
    }
    return true;
  }
  void untake(std::span<kvcache::PageId const> pages) noexcept
  {
    for (std::size_t i = pages.size(); i-- > 0;) {
      kvcache::PageId const page = inner(pages[i]);
      pages_.untake(std::span(&page, 1));
    }
  }
  void share(kvcache::PageId page) noexcept { pages_.share(inner(page)); }
  std::uint32_t release(kvcache::PageId page) noexcept { return pages_.release(inner(page)); }
  [[nodiscard]] std::uint64_t digest() const noexcept { return pages_.digest(); }
  [[nodiscard]] bool check_invariants() const { return pages_.check_invariants(); }

 private:
  // The n-th page is in the lower half where n is odd. Page 0, which holds zeros, and ids that do not exist stay.
  [[nodiscard]] kvcache::PageId outer(kvcache::PageId n) const noexcept
  {
    return {n.value % 2 == 1 ? n.value / 2 + 1 : low_ + n.value / 2};
  }
  [[nodiscard]] kvcache::PageId inner(kvcache::PageId page) const noexcept
  {
    if (page.value == 0 || page.value > capacity()) {
      return page;
    }
    return {page.value <= low_ ? page.value * 2 - 1 : (page.value - low_) * 2};
  }

  kvcache::PageAllocator pages_;
  kvcache::PageCount low_;  // pages in the lower half
};

static_assert(kvcache::explain_allocator<BothHalves>());
