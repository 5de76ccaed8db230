// SPDX-License-Identifier: Apache-2.0

#include <kvcache/interop/page_lists.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interop/hand_batch.hpp"
#include "support/catch.hpp"
#include "support/hand_plan.hpp"

using namespace kvcache_test;
using kvcache::TableSource;
using Numbers = std::vector<std::int32_t>;

TEST_CASE("PageLists: the picture's batch, and what lies behind the last page id stays",
          "[interop][page_lists]")
{
  HandBatch const batch;
  Numbers indptr(4, -7);
  Numbers indices(6, -7);
  Numbers last(2, -7);
  REQUIRE(
    kvcache::fill({.indptr = indptr, .indices = indices, .last_page_len = last}, batch.source()));
  CHECK(indptr == Numbers{0, 3, 4, -7});
  CHECK(indices == Numbers{7, 3, 5, 1, -7, -7});
  CHECK(last == Numbers{3, 3});
  CHECK(kvcache::num_indices(batch.source(), 2) == 4);
}

TEST_CASE(
  "PageLists: lines of a captured batch that are not in use have no page, or the page of zeros",
  "[interop][page_lists]")
{
  HandBatch const batch;
  TableSource source = batch.source();
  Numbers indptr(5, -7);
  Numbers indices(6, -7);
  Numbers last(4, -7);
  REQUIRE(kvcache::fill({.indptr = indptr, .indices = indices, .last_page_len = last}, source));
  CHECK(indptr == Numbers{0, 3, 4, 4, 4});
  CHECK(last == Numbers{3, 3, 4, 4});  // 4 * (0 - 1) + 4 is length 0

  source.empty_rows = 1;
  CHECK(kvcache::num_indices(source, 4) == 6);
  REQUIRE(kvcache::fill({.indptr = indptr, .indices = indices, .last_page_len = last}, source));
  CHECK(indptr == Numbers{0, 3, 4, 5, 6});
  CHECK(indices == Numbers{7, 3, 5, 1, 0, 0});
  CHECK(last == Numbers{3, 3, 1, 1});
}

TEST_CASE("PageLists: no line at all", "[interop][page_lists]")
{
  HandBatch batch;
  REQUIRE(batch.pool.apply(kvcache_test::in_order(kvcache::Plan{})));
  Numbers indptr(1, -7);
  REQUIRE(kvcache::fill({.indptr = indptr, .indices = {}, .last_page_len = {}}, batch.source()));
  CHECK(indptr == Numbers{0});
}

TEST_CASE("PageLists: a span that is too small is refused with the figure, and nothing is written",
          "[interop][page_lists]")
{
  HandBatch const batch;
  Numbers indptr(3, -7);
  Numbers indices(4, -7);
  Numbers last(2, -7);
  auto const filled = [&](std::size_t ptrs, std::size_t ids, std::size_t lasts) {
    return refusal(kvcache::fill({.indptr = std::span(indptr).first(ptrs),
                                  .indices = std::span(indices).first(ids),
                                  .last_page_len = std::span(last).first(lasts)},
                                 batch.source()));
  };
  CHECK(filled(3, 3, 2) == "indices = 3 (bad configuration): must have at least 4");
  CHECK(filled(2, 4, 2) == "indptr = 2 (bad configuration): must have at least 3");
  CHECK(filled(3, 4, 1) == "last_page_len = 1 (bad configuration): must have at least 2");
  CHECK(indptr == Numbers(3, -7));
  CHECK(indices == Numbers(4, -7));
  CHECK(last == Numbers(2, -7));
  CHECK(filled(3, 4, 2).empty());
}

TEST_CASE("PageLists: pages of single layers or heads have no such form", "[interop][page_lists]")
{
  HandBatch const batch;
  Numbers indptr(3);
  Numbers indices(4);
  Numbers last(2);
  kvcache::PageLists const out{.indptr = indptr, .indices = indices, .last_page_len = last};
  TableSource source = batch.source();
  source.segment.head_rows = 5;
  CHECK(refusal(kvcache::fill(out, source)) ==
        "head_rows = 5 (bad configuration): must be 0: other engines have one page table for all "
        "layers and heads");
  source.segment.layer_stride = 40;
  CHECK(refusal(kvcache::fill(out, source)).substr(0, 17) == "layer_stride = 40");
}
