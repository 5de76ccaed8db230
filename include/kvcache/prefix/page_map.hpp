// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcache::inline v0_1::detail {

/// Where each page of the pool is in the tree: its span, and how many pages lie before it in its prompt.
/// The depth of a page never changes while it is cached, so a split rewrites the span alone.
/// **Cost** 8 bytes a page of the pool, untouched until the page is cached; each call O(1) a page.
class PageMap {
 public:
  /// **Errors** `std::bad_alloc`.
  explicit PageMap(PageCount pages) : entries_(std::size_t{pages} + 1) {}

  /// The span that holds `page`, or nil.
  [[nodiscard]] std::uint32_t span(PageId page) const noexcept
  {
    return page.value < entries_.size() ? entries_[page.value].span_plus_1 - 1 : nil;
  }

  /// How many pages lie before `page`. **Pre** it is in the tree.
  [[nodiscard]] std::uint32_t depth(PageId page) const noexcept
  {
    return entries_[page.value].depth;
  }

  [[nodiscard]] PageCount size() const noexcept { return size_; }
  [[nodiscard]] PageCount capacity() const noexcept
  {
    return static_cast<PageCount>(entries_.size() - 1);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return entries_.bytes(); }

  /// Enters `pages` as consecutive pages of `span`, the first at `depth`.
  /// **Errors** `LogicError` when one is no page of the pool, is there already or comes twice; nothing
  /// changed.
  void enter(std::span<PageId const> pages, std::uint32_t span, std::uint32_t depth)
  {
    for (std::size_t i = 0; i < pages.size(); ++i) {
      std::uint32_t const page = pages[i].value;
      if (page == 0 || page >= entries_.size() || entries_[page].span_plus_1 != 0) [[unlikely]] {
        leave(pages.first(i));
        fail("kvcache: insert needs pages of the pool that are not in the tree, each once");
      }
      entries_[page] = {.span_plus_1 = span + 1, .depth = depth + static_cast<std::uint32_t>(i)};
      ++size_;
    }
  }

  /// `pages`, which are in the tree, belong to `span` now.
  void move(std::span<PageId const> pages, std::uint32_t span) noexcept
  {
    for (PageId const page : pages) {
      entries_[page.value].span_plus_1 = span + 1;
    }
  }

  /// Takes `pages` out.
  void leave(std::span<PageId const> pages) noexcept
  {
    for (PageId const page : pages) {
      entries_[page.value] = {};
    }
    size_ -= static_cast<PageCount>(pages.size());
  }

 private:
  struct Entry {
    std::uint32_t span_plus_1;  // 0: not in the tree, so that fresh memory means just that
    std::uint32_t depth;
  };
  ZeroArray<Entry> entries_;  // by page id
  PageCount size_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
