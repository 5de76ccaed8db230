// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>
#include <kvcache/prefix/child_index.hpp>
#include <kvcache/prefix/domain_table.hpp>
#include <kvcache/prefix/page_map.hpp>
#include <kvcache/prefix/span_store.hpp>

#include <cstddef>
#include <cstdint>

/// \file What the tree can say about itself from scratch: its digest, and whether its parts agree.

namespace kvcache::inline v0_1::detail {

/// The page before the first one of `span`; `zero_page` at the root.
[[nodiscard]] inline PageId page_before(SpanStore const& spans,
                                        Span const& span,
                                        std::size_t page_tokens) noexcept
{
  if (span.parent == nil) {
    return zero_page;
  }
  SpanBuffer const& above = spans[span.parent].buffer;
  return above.pages(page_tokens)[above.size() - 1];
}

/// A sum over pages, so that neither the order of arrival nor the cuts between spans show.
[[nodiscard]] inline std::uint64_t digest_pages(SpanStore const& spans,
                                                DomainTable const& domains,
                                                std::size_t page_tokens) noexcept
{
  std::uint64_t sum = 0;
  for (std::uint32_t id = 0; id < spans.bound(); ++id) {
    if (!spans.in_use(id)) {
      continue;
    }
    Span const& span = spans[id];
    PageId before = page_before(spans, span, page_tokens);
    for (PageCount i = 0; i < span.buffer.size(); ++i) {
      PageId const page = span.buffer.pages(page_tokens)[i];
      std::uint64_t const names = std::uint64_t{before.value} << 32 | page.value;
      sum += hash_words(mix(domains.digest(span.domain), names),
                        span.buffer.tokens() + i * page_tokens,
                        page_tokens);
      before = page;
    }
  }
  return sum;
}

/// Parents exist, lie in the same domain and end where their children start; counts of children are right;
/// free ids and used ones are all ids.
[[nodiscard]] inline bool check_links(SpanStore const& spans, DomainTable const& domains)
{
  ZeroArray<std::uint32_t> children(spans.bound());
  std::uint32_t used = 0;
  for (std::uint32_t id = 0; id < spans.bound(); ++id) {
    if (!spans.in_use(id)) {
      continue;
    }
    ++used;
    Span const& span = spans[id];
    if (!domains.knows(span.domain)) {
      return false;
    }
    if (span.parent == nil) {
      if (span.first != 0) {
        return false;
      }
      continue;
    }
    if (span.parent >= spans.bound() || !spans.in_use(span.parent)) {
      return false;
    }
    Span const& parent = spans[span.parent];
    if (parent.domain != span.domain || parent.first + parent.buffer.size() != span.first) {
      return false;  // depth grows from parent to child, so there is no cycle either
    }
    ++children[span.parent];
  }
  for (std::uint32_t id = 0; id < spans.bound(); ++id) {
    if (spans[id].children != children[id]) {
      return false;
    }
  }
  return used == spans.size();
}

/// Each span has a block, which knows it, and no block lies about.
[[nodiscard]] inline bool check_blocks(SpanStore const& spans) noexcept
{
  for (std::uint32_t id = 0; id < spans.bound(); ++id) {
    if (spans.in_use(id) && spans[id].buffer.owner() != id) {
      return false;
    }
  }
  return spans.blocks().check_invariants() && spans.blocks().num_blocks() == spans.size();
}

/// Each span is found by its first page, and is in the list of its first token exactly once.
[[nodiscard]] inline bool check_index(SpanStore const& spans,
                                      ChildIndex const& index,
                                      std::size_t page_tokens)
{
  std::size_t listed = 0;
  for (std::uint32_t id = 0; id < spans.bound(); ++id) {
    if (!spans.in_use(id)) {
      continue;
    }
    Span const& span = spans[id];
    Place const place = ChildIndex::place_of(span);
    Token const* const page = span.buffer.tokens();
    if (span.hash != index.hash(place, page) || index.find(spans, place, page, span.hash) != id) {
      return false;
    }
    if (page_tokens == 1) {
      ++listed;
      continue;
    }
    if (span.previous != nil) {
      if (spans[span.previous].next != id) {
        return false;
      }
      continue;
    }
    if (index.newest(spans, place, page[0]) != id) {
      return false;
    }
    for (std::uint32_t at = id; at != nil; at = spans[at].next, ++listed) {
      Span const& sibling = spans[at];
      if (listed == spans.size() || sibling.parent != span.parent ||
          sibling.domain != span.domain || sibling.buffer.tokens()[0] != page[0]) {
        return false;
      }
    }
  }
  return listed == spans.size() && index.size() == spans.size();
}

/// The map names exactly the pages of the spans, each where it is.
[[nodiscard]] inline bool check_map(SpanStore const& spans,
                                    PageMap const& map,
                                    std::size_t page_tokens)
{
  PageCount mapped = 0;
  for (std::uint32_t page = 0; page <= map.capacity(); ++page) {
    mapped += map.span(PageId{page}) != nil ? 1U : 0U;
  }
  PageCount held = 0;
  for (std::uint32_t id = 0; id < spans.bound(); ++id) {
    SpanBuffer const& buffer = spans[id].buffer;
    for (PageCount i = 0; i < buffer.size(); ++i, ++held) {
      PageId const page = buffer.pages(page_tokens)[i];
      if (page == zero_page || map.span(page) != id || map.depth(page) != spans[id].first + i) {
        return false;
      }
    }
  }
  return mapped == held && mapped == map.size();
}

}  // namespace kvcache::inline v0_1::detail
