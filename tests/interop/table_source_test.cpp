// SPDX-License-Identifier: Apache-2.0

#include <kvcache/interop/table_source.hpp>

#include <cstdint>
#include <vector>

#include "interop/hand_batch.hpp"
#include "support/catch.hpp"
#include "support/hand_plan.hpp"

using namespace kvcache_test;
using kvcache::Index;
using kvcache::nil;
using kvcache::TableSource;

TEST_CASE("TableSource: one that was made before a step tells of the step",
          "[interop][table_source]")
{
  HandBatch batch;
  TableSource const kept = batch.source();  // as a captured graph keeps it
  kvcache::Plan plan;
  set_table(plan, 0, 1, {8});
  add_chunk(plan, 0, 3, 2);
  REQUIRE(batch.pool.apply(kvcache_test::in_order(plan)));
  REQUIRE(kept.num_lines() == 1);
  TableSource::Line const line = kept.line(0);
  CHECK(line.length == 5);
  CHECK(line.pages == 2);
  CHECK(line.last_page_rows == 1);
  CHECK(kept.page(line, 1) == 8);
  CHECK(kept.slot(1) == 32);
  CHECK(kept.slot(2) == -1);
}

TEST_CASE("TableSource: open drafts count as the device has them", "[interop][table_source]")
{
  HandBatch batch;
  auto const kv = batch.pool.view();
  kv.set_length(0, 10);  // of a's two tokens one was accepted
  kvcache::Plan plan;
  add_chunk(plan, 2, 11, 1);  // control does not know yet
  plan.chunks.back().slack = 2;
  REQUIRE(batch.pool.apply(kvcache_test::in_order(plan)));
  CHECK(batch.source().line(0).length == 11);
  CHECK(batch.source().slot(0) == 5 * 4 + 2);
}

TEST_CASE("TableSource: no length that a kernel may write leads out of the table",
          "[interop][table_source]")
{
  HandBatch const batch;
  std::vector<std::uint32_t> const rows{2, nil, 0};
  TableSource const source = TableSource::of(batch.pool.view(), rows.data(), 3);
  CHECK(source.num_lines() == 3);
  CHECK(source.line(0).length == 11);
  CHECK(source.line(1).length == 0);
  CHECK(source.line(2).length == 3);
  CHECK(source.line(3).row == nil);
  CHECK(source.most_pages() == 9);
  Index* const lengths = batch.pool.view().lengths;
  for (Index const wild : {-1, -0x7fffffff - 1}) {
    lengths[2] = wild;
    CHECK(source.line(0).pages == 0);
  }
  for (Index const wild : {36, 37, 0x7fffffff}) {
    lengths[2] = wild;
    CHECK(source.line(0).pages == 9);
    CHECK(source.line(0).length == 36);
    CHECK(source.line(0).last_page_rows == 4);
  }
}

TEST_CASE("TableSource: entries that are no page of the pool are the page of zeros",
          "[interop][table_source]")
{
  HandBatch const batch;
  std::vector<std::int32_t> const table{10, -1, 9, 0};
  TableSource source = batch.source();
  source.segment.table = table.data();
  source.segment.row_stride = 4;
  TableSource::Line const line{0, 16, 4, 4};
  CHECK(source.page(line, 0) == 0);  // pages 1 to 9
  CHECK(source.page(line, 1) == 0);
  CHECK(source.page(line, 2) == 9);
  CHECK(source.page(line, 3) == 0);
}
