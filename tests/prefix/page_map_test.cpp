// SPDX-License-Identifier: Apache-2.0
#include <kvcache/core/check.hpp>
#include <kvcache/prefix/page_map.hpp>

#include <vector>

#include "support/catch.hpp"

using namespace kvcache;
using detail::PageMap;
using Pages = std::vector<PageId>;

TEST_CASE("PageMap: knows span and depth, and a move keeps the depth", "[prefix][page_map]")
{
  PageMap map(8);
  map.enter(Pages{{3}, {8}, {1}}, 5, 10);
  CHECK(map.size() == 3);
  CHECK(map.span(PageId{8}) == 5);
  CHECK(map.depth(PageId{1}) == 12);
  CHECK(map.span(PageId{2}) == nil);
  CHECK(map.span(zero_page) == nil);
  CHECK(map.span(PageId{9}) == nil);
  map.move(Pages{{8}}, 6);
  CHECK(map.span(PageId{8}) == 6);
  CHECK(map.depth(PageId{8}) == 11);
  map.leave(Pages{{8}, {1}});
  CHECK(map.size() == 1);
  CHECK(map.span(PageId{1}) == nil);
}

TEST_CASE("PageMap: a wrong page is refused and nothing is left behind", "[prefix][page_map]")
{
  PageMap map(8);
  map.enter(Pages{{4}}, 0, 0);
  CHECK_THROWS_AS(map.enter(Pages{{1}, {4}}, 1, 0), LogicError);       // there already
  CHECK_THROWS_AS(map.enter(Pages{{2}, {5}, {2}}, 1, 0), LogicError);  // twice
  CHECK_THROWS_AS(map.enter(Pages{{1}, {9}}, 1, 0), LogicError);       // no page of the pool
  CHECK_THROWS_AS(map.enter(Pages{{0}}, 1, 0), LogicError);            // the page of zeros
  CHECK(map.size() == 1);
  for (std::uint32_t page : {1U, 2U, 5U}) {
    CHECK(map.span(PageId{page}) == nil);
  }
  CHECK(map.span(PageId{4}) == 0);
}
