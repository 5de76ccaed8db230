// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/check_tree.hpp>

#include <cstdint>
#include <vector>

#include "support/catch.hpp"

using namespace kvcache;
using detail::ChildIndex;
using detail::SpanBuffer;

namespace {

constexpr std::size_t page_tokens = 2;

/// A small tree by hand: 0 -> 1, 0 -> 2 where 1 and 2 start with the same token.
struct Parts {
  detail::SpanStore spans{8, page_tokens};
  ChildIndex index{page_tokens, 0, 8};
  detail::PageMap map{8};
  detail::DomainTable domains;

  Parts()
  {
    domains.intern(Domain());
    add(nil, 0, {1, 2}, 1);
    add(0, 1, {5, 6}, 2);
    add(0, 1, {5, 7}, 3);
    spans[0].children = 2;
  }

  void add(std::uint32_t parent, PageCount first, std::vector<Token> const& page, std::uint32_t id)
  {
    std::vector<PageId> const pages = {{id}};
    spans.reserve_buffer(1);
    SpanBuffer buffer = spans.make_buffer(1);
    buffer.append(page.data(), pages.data(), 1, page_tokens);
    std::uint32_t const span = spans.reserve_one();
    index.reserve(spans.size() + 1U);
    map.enter(pages, span, first);
    detail::Span& node = spans.use(span, std::move(buffer));
    node.parent = parent;
    node.first = first;
    node.hash = index.hash(ChildIndex::place_of(node), page.data());
    index.link(spans, span);
  }

  bool check() const
  {
    return check_links(spans, domains) && check_blocks(spans) &&
           check_index(spans, index, page_tokens) && check_map(spans, map, page_tokens);
  }
};

}  // namespace

TEST_CASE("check_tree: a whole tree passes", "[prefix][check_tree]")
{
  CHECK(Parts().check());
  CHECK(Parts().map.size() == 3);
}

TEST_CASE("check_tree: each kind of damage is seen", "[prefix][check_tree]")
{
  Parts parts;
  SECTION("a wrong count of children")
  {
    parts.spans[0].children = 1;
  }
  SECTION("a parent that does not exist")
  {
    parts.spans[1].parent = 7;
  }
  SECTION("a parent that ends elsewhere")
  {
    parts.spans[1].first = 2;
  }
  SECTION("a root that starts elsewhere")
  {
    parts.spans[0].first = 1;
  }
  SECTION("a cycle")
  {
    parts.spans[0].parent = 1;
  }
  SECTION("a domain that does not exist")
  {
    parts.spans[1].domain = DomainId{4};
  }
  SECTION("a stale hash: fault B-023, filed under the old key")
  {
    parts.spans[2].hash ^= 1;
  }
  SECTION("a child that is not in the table")
  {
    parts.index.unlink(parts.spans, 2);
  }
  SECTION("a broken list of siblings")
  {
    parts.spans[1].previous = 0;
  }
  SECTION("a sibling lost from the list")
  {
    parts.spans[2].next = nil;
  }
  SECTION("a page that the map does not know")
  {
    parts.map.leave(std::vector<PageId>{{3}});
  }
  SECTION("a page that the map has elsewhere")
  {
    parts.map.move(std::vector<PageId>{{3}}, 1);
  }
  SECTION("a page that only the map knows")
  {
    parts.map.enter(std::vector<PageId>{{8}}, 1, 2);
  }
  CHECK_FALSE(parts.check());
}
