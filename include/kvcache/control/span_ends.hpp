// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Makes the cached `page`, the `index`-th of its sequence, the last one of its span where a table is cut, and is perhaps cut
/// again and again. A split moves the ids before it. So a span that was cut before gets an end behind its first sixth, one
/// behind the first sixth of what follows, and so on: n cuts by a page move each id O(log n) times and not O(n).
/// **Errors** `std::bad_alloc`, nothing changed but that spans may have ended there.
template <class Ledger>
void end_span_for_cut(Ledger& ledger, PageId page, Index index, Index page_tokens)
{
  auto const& tree = ledger.tree();
  SpanId const span = tree.span_of(page);  // what follows the ends keeps the id
  auto const first = [&] { return static_cast<PageCount>(tree.first_token(span) / page_tokens); };
  auto const kept = [&] { return static_cast<PageCount>(index + 1) - first(); };
  while (tree.children(span) != 0 && kept() > tree.size(span) / 2 + 4) {
    PageCount const head = kept() / 6 + 1;
    ledger.end_span_at(tree.pages(span)[head - 1], static_cast<Index>(first() + head - 1));
  }
  ledger.end_span_at(page, index);
}

}  // namespace kvcache::inline v0_1::detail
