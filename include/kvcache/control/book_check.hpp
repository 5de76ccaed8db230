// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// The first thing of a `PageBook` that a recount finds wrong, or null. **Cost** O(pages).
template <class Book>
[[nodiscard]] char const* broken_book(Book const& book)
{
  if (!book.allocator().check_invariants()) {
    return "I1: the free list and the counts disagree";
  }
  if (!book.tree().check_invariants()) {
    return "I7: the prefix tree is damaged";
  }
  if (!book.policy().check_invariants()) {
    return "the replacement policy is damaged";
  }
  PageCount cached = 0;
  PageCount fenced = 0;
  std::uint32_t idle = 0;
  for (std::uint32_t value = 1; value <= book.allocator().capacity(); ++value) {
    PageId const page{value};
    if (!book.tree().contains(page)) {
      continue;
    }
    SpanId const span = book.tree().span_of(page);
    bool const unused = book.allocator().count(page) == 1;
    cached += unused ? 1U : 0U;
    if ((book.allocator().count(book.tree().last_page(span)) == 1) != unused) {
      return "a span is used in part";
    }
    if (PageId const above = book.tree().previous_page(page); unused && above != zero_page &&
                                                              book.allocator().count(above) == 1 &&
                                                              !book.fences().covers(above, page)) {
      return "a page is fenced for longer than the one before it";
    }
    if (unused && book.pending(page)) {
      return "I4: a pending page is not held by its step";
    }
    if (book.tree().last_page(span) == page) {
      bool const candidate = book.policy().is_candidate(span);
      if (candidate == book.fenced().contains(span) ? candidate || unused : !unused) {
        return "I6: a span is a candidate though used, or unused and no candidate";
      }
      SpanId const parent = book.tree().parent(span);
      if (candidate ? book.fences().active(book.tree().pages(span)[0])
                    : parent.value != nil && book.policy().is_candidate(parent)) {
        return "a span is a candidate though a step in flight needs it, or what hangs below it";
      }
      if (book.fenced().contains(span) &&
          book.fenced().list_of(span) != book.fences().who(book.tree().pages(span)[0])) {
        return "a fenced span waits for another stream than its first page";
      }
      fenced += book.fenced().contains(span) ? book.tree().size(span) : 0;
      idle += unused ? 1U : 0U;
    }
  }
  if (cached != book.num_cached() || idle != book.policy().size() + book.fenced().size() ||
      fenced != book.fenced().pages()) {
    return "I6: evictable pages were miscounted";
  }
  return nullptr;
}

}  // namespace kvcache::inline v0_1::detail
