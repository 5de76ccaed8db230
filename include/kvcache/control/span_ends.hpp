// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Makes the cached `page`, the `index`-th of its sequence, the last one of its span where a table is cut, and is perhaps cut
/// again and again. A split moves the ids before it. So what is kept of a span that was cut before is divided into pieces of
/// about the root of its pages, and a piece that is cut likewise: n cuts by a page move each id O(log log n) times and not O(n).
/// **Errors** `std::bad_alloc`, nothing changed but that spans may have ended there.
template <class Ledger>
void end_span_for_cut(Ledger& ledger, PageId page, Index index, Index page_tokens)
{
  auto const& tree = ledger.tree();
  SpanId const span = tree.span_of(page);  // what follows the ends keeps the id
  auto const first = [&] { return static_cast<PageCount>(tree.first_token(span) / page_tokens); };
  auto const kept = [&] { return static_cast<PageCount>(index + 1) - first(); };
  PageCount const gone = tree.size(span) - kept();
  std::uint64_t piece = 4;
  while (piece * piece < kept()) {
    piece *= 2;
  }
  while (tree.children(span) != 0 && kept() > gone + piece) {
    ledger.end_span_at(tree.pages(span)[piece - 1],
                       static_cast<Index>(first() + static_cast<PageCount>(piece) - 1));
  }
  ledger.end_span_at(page, index);
}

}  // namespace kvcache::inline v0_1::detail
