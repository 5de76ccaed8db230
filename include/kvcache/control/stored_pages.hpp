// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/events.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Calls `visit(Event const&)` for each page of the ledger's tree that is not pending, parents first.
template <class Ledger, class Visit>
void visit_stored(Ledger const& ledger, std::size_t page_tokens, Visit&& visit)
{
  auto const& tree = ledger.tree();
  ZeroArray<bool> seen(tree.span_id_bound());
  List<SpanId> path;
  for (std::uint32_t value = 1; value <= ledger.allocator().capacity(); ++value) {
    if (!tree.contains(PageId{value})) {
      continue;
    }
    for (SpanId at = tree.span_of(PageId{value}); at.value != nil && !seen[at.value];
         at = tree.parent(at)) {
      seen[at.value] = true;
      path.push_back(at);
    }
    for (; !path.empty(); path.pop_back()) {
      SpanId const span = path.back();
      auto const pages = tree.pages(span);
      for (std::size_t i = 0; i < pages.size() && ledger.tag(span).step.value == 0; ++i) {
        visit(Event{.number = ledger.events().next() - 1,
                    .kind = EventKind::stored,
                    .domain = tree.domain(span),
                    .page = pages[i],
                    .parent = tree.previous_page(pages[i]),
                    .tokens = tree.tokens(span).subspan(i * page_tokens, page_tokens)});
      }
    }
  }
}

}  // namespace kvcache::inline v0_1::detail
