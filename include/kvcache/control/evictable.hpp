// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/fences.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Cached pages that a step of `stream` could have evicted now: a span's tail that no other stream may still read, and the
/// whole of it only where nothing below it stays. What hangs above pages that a step in flight writes is cached, and stays.
/// `stuck` is for its use: it grows to a byte a span. **Cost** O(pages). **Errors** `std::bad_alloc`.
template <class Tree, class Policy>
[[nodiscard]] PageCount count_evictable(Tree const& tree,
                                        Policy const& policy,
                                        Fences const& fences,
                                        PageCount pages,
                                        StreamId stream,
                                        List<bool>& stuck)
{
  auto const for_each_span = [&](auto&& visit) {
    for (std::uint32_t value = 1; value <= pages; ++value) {
      PageId const page{value};
      if (tree.contains(page) && tree.last_page(tree.span_of(page)) == page) {
        visit(tree.span_of(page));
      }
    }
  };
  auto const tail = [&](SpanId span) {
    auto const of_span = tree.pages(span);
    PageCount n = 0;
    while (policy.is_candidate(span) && n < of_span.size() &&
           !fences.blocks(of_span[of_span.size() - 1 - n], stream)) {
      ++n;
    }
    return n;
  };
  if (stuck.capacity() < tree.span_id_bound()) {
    stuck.reserve(std::size_t{tree.span_id_bound()} * 2 + 1024);
  }
  stuck.clear();
  stuck.resize(tree.span_id_bound());  // something below the span stays
  for_each_span([&](SpanId span) {
    if (tail(span) < tree.size(span)) {
      for (SpanId at = tree.parent(span); at.value != nil && !stuck[at.value];
           at = tree.parent(at)) {
        stuck[at.value] = true;
      }
    }
  });
  PageCount sum = 0;
  for_each_span([&](SpanId span) { sum += stuck[span.value] ? 0 : tail(span); });
  return sum;
}

}  // namespace kvcache::inline v0_1::detail
