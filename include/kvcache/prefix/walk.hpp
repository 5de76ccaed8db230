// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/child_index.hpp>
#include <kvcache/prefix/compare.hpp>
#include <kvcache/prefix/match.hpp>
#include <kvcache/prefix/span_store.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file The walk from a root along the tokens of a prompt.

namespace kvcache::inline v0_1::detail {

/// How many siblings a partial hit looks at, newest first.
inline constexpr int max_siblings = 16;

/// Enters into `match` the child of `place` whose first page has most rows in common with `ahead`.
/// **Cost** O(max_siblings * page_tokens) at most.
inline void walk_into_page(SpanStore const& spans,
                           ChildIndex const& index,
                           std::size_t page_tokens,
                           Place place,
                           std::span<Token const> ahead,
                           Match& match) noexcept
{
  if (page_tokens == 1 || ahead.empty()) {
    return;
  }
  std::size_t const most = ahead.size() < page_tokens ? ahead.size() : page_tokens;
  std::uint32_t id = index.newest(spans, place, ahead[0]);
  for (int seen = 0; id != nil && seen < max_siblings; id = spans[id].next, ++seen) {
    SpanBuffer const& buffer = spans[id].buffer;
    auto const common = static_cast<Index>(common_tokens(buffer.tokens(), ahead.data(), most));
    if (common > match.partial_rows) {
      match.partial_rows = common;
      match.partial_page = *buffer.pages(page_tokens);
    }
  }
}

/// The longest cached prefix of `tokens` in `domain`, all of them wanted; the reason is left open.
/// **Cost** O(rows matched) to compare tokens, O(1) for each span on the way.
[[nodiscard]] inline Match walk(SpanStore const& spans,
                                ChildIndex const& index,
                                std::size_t page_tokens,
                                DomainId domain,
                                std::span<Token const> tokens) noexcept
{
  Match match{.domain = domain};
  Place place{.parent = nil, .domain = domain};
  std::span<Token const> ahead = tokens;
  while (ahead.size() >= page_tokens) {
    std::uint32_t const id =
      index.find(spans, place, ahead.data(), index.hash(place, ahead.data()));
    if (id == nil) {
      break;
    }
    SpanBuffer const& buffer = spans[id].buffer;
    std::size_t const here = buffer.size() * page_tokens;
    std::size_t const reach = here < ahead.size() ? here : ahead.size();
    std::size_t const common =
      page_tokens +
      common_tokens(buffer.tokens() + page_tokens, ahead.data() + page_tokens, reach - page_tokens);
    auto const full = static_cast<PageCount>(common / page_tokens);
    match.span = SpanId{id};
    match.span_pages = full;
    match.full_pages += static_cast<Index>(full);
    if (full < buffer.size()) {  // inside a span nothing but its next page can follow
      match.partial_rows = static_cast<Index>(common - full * page_tokens);
      match.partial_page = match.partial_rows != 0 ? buffer.pages(page_tokens)[full] : zero_page;
      return match;
    }
    ahead = ahead.subspan(common);
    place.parent = id;
  }
  walk_into_page(spans, index, page_tokens, place, ahead, match);
  return match;
}

}  // namespace kvcache::inline v0_1::detail
