// SPDX-License-Identifier: Apache-2.0

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/hand_plan.hpp"

namespace {

using namespace kvcache;
using kvcache_test::add_chunk;
using kvcache_test::bytes_of;
using kvcache_test::set_table;

using Layout = PagedHeads<float>;
constexpr Geometry geometry{.layers = 1, .kv_heads = 2, .head_dim = 8, .page_tokens = 4};
constexpr std::uint32_t top = std::numeric_limits<std::uint32_t>::max();

/// 4 pages, 3 table rows of 4 pages, 10 tokens a step.
struct Fixture {
  Pool<Layout> pool = make();
  std::vector<std::byte> before;
  std::vector<std::int32_t> table_before;

  Fixture()
  {
    std::memset(pool.page(PageId{1}), 0x3c, pool.footprint().page_bytes() * 4);
    REQUIRE(pool.apply(kvcache_test::in_order(good())));
    before = bytes_of(pool);
    table_before = tables();
  }

  static Pool<Layout> make()
  {
    auto made = Pool<Layout>::create(geometry, kvcache_test::pool_sizes(geometry, 4, 3, 10));
    REQUIRE(made);
    return std::move(*made);
  }
  static Plan good()
  {
    Plan plan;
    for (std::uint32_t row = 0; row < 3; ++row) {
      set_table(plan, row, 0, {1, 2, 3, 4});
    }
    add_chunk(plan, 0, 0, 5);
    add_chunk(plan, 2, 15, 1);
    return plan;
  }
  std::vector<std::int32_t> tables() const
  {
    auto const* const table = pool.view().segment.table;
    return {table, table + 12};
  }

  void refused(Plan const& plan, char const* field, std::int64_t value, std::int64_t limit)
  {
    auto const applied = pool.apply(kvcache_test::in_order(plan));
    REQUIRE_FALSE(applied);
    CHECK(applied.error().why == Why::bad_config);
    CHECK(std::string(applied.error().field) == field);
    CHECK(applied.error().value == value);
    CHECK(applied.error().limit == limit);
    CHECK(bytes_of(pool) == before);
    CHECK(tables() == table_before);
    CHECK(pool.view().num_tokens() == 6);
    CHECK(pool.view().index(5) == 15);
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture,
                 "Pool: a plan with a bad table delta is refused whole",
                 "[pool][plan_check]")
{
  auto const with = [](TableDelta delta) {
    Plan plan;
    set_table(plan, 0, 0, {4, 3});
    plan.copies.push_back({PageId{1}, PageId{2}, 1});
    plan.tables.push_back(delta);
    return plan;
  };
  refused(with({RowId{3}, 0, 1, 0}), "plan.tables.row", 3, 3);
  refused(with({RowId{top}, 0, 1, 0}), "plan.tables.row", top, 3);
  refused(with({RowId{0}, 4, 1, 0}), "plan.tables.first", 4, 4);
  refused(with({RowId{0}, 3, 2, 0}), "plan.tables.first", 3, 4);
  refused(with({RowId{0}, top, 2, 0}), "plan.tables.first", top, 4);
  refused(with({RowId{0}, 0, 1, 2}), "plan.tables.ids_at", 2, 2);
  refused(with({RowId{0}, 0, 2, 1}), "plan.tables.ids_at", 1, 2);
  refused(with({RowId{0}, 0, 2, top}), "plan.tables.ids_at", top, 2);
  CHECK(pool.apply(kvcache_test::in_order(good())));
}

TEST_CASE_METHOD(Fixture,
                 "Pool: a plan that names no page of the pool is refused whole",
                 "[pool][plan_check]")
{
  for (std::uint32_t const id : {0U, 5U, top}) {
    Plan plan;
    set_table(plan, 0, 0, {4, id});
    refused(plan, "plan.ids", id, 4);
    for (PageCopy const copy : {PageCopy{PageId{id}, PageId{1}, 1}, {PageId{1}, PageId{id}, 1}}) {
      Plan copies;
      copies.copies = {{PageId{3}, PageId{2}, 1}, copy};
      refused(copies, "plan.copies", id, 4);
    }
  }
  CHECK(pool.apply(kvcache_test::in_order(good())));
}

TEST_CASE_METHOD(Fixture, "Pool: a plan with a bad copy is refused whole", "[pool][plan_check]")
{
  Plan plan;
  plan.copies = {{PageId{3}, PageId{2}, 1}, {PageId{4}, PageId{4}, 1}};
  refused(plan, "plan.copies", 4, 0);
  plan.copies[1] = {PageId{4}, PageId{3}, 5};
  refused(plan, "plan.copies.rows", 5, 4);
  plan.copies[1] = {PageId{4}, PageId{3}, -1};
  refused(plan, "plan.copies.rows", -1, 4);
  CHECK(pool.apply(kvcache_test::in_order(good())));
}

TEST_CASE_METHOD(Fixture, "Pool: a plan with a bad chunk is refused whole", "[pool][plan_check]")
{
  auto const with = [](std::uint32_t row, Index first, Index tokens) {
    Plan plan;
    set_table(plan, 0, 0, {4});
    add_chunk(plan, 1, 0, 1);
    add_chunk(plan, row, first, tokens);
    return plan;
  };
  constexpr Index most = std::numeric_limits<Index>::max();
  refused(with(3, 0, 1), "plan.chunks.row", 3, 3);
  refused(with(top, 0, 1), "plan.chunks.row", top, 3);
  refused(with(0, 0, 0), "plan.chunks.tokens", 0, 10);
  refused(with(0, 0, -3), "plan.chunks.tokens", -3, 10);
  refused(with(0, 0, 11), "plan.chunks.tokens", 11, 10);
  refused(with(0, 0, most), "plan.chunks.tokens", most, 10);
  refused(with(0, -1, 1), "plan.chunks.first_index", -1, 16);
  refused(with(0, 16, 1), "plan.chunks.first_index", 16, 16);
  refused(with(0, 10, 7), "plan.chunks.first_index", 10, 16);
  refused(with(0, most, 1), "plan.chunks.first_index", most, 16);
  refused(with(0, 0, 10), "plan.chunks.tokens", 11, 10);  // together one too many
  Plan slack = with(0, 3, 1);
  slack.chunks[1].slack = 4;
  refused(slack, "plan.chunks.slack", 4, 3);
  slack.chunks[1].slack = -1;
  refused(slack, "plan.chunks.slack", -1, 3);
  CHECK(pool.apply(kvcache_test::in_order(good())));
}

TEST_CASE_METHOD(Fixture, "Pool: a plan with a bad move is refused whole", "[pool][plan_check]")
{
  auto const with = [](RowMove move) {
    Plan plan;
    set_table(plan, 0, 0, {4});
    plan.moves = {{PageId{1}, PageId{2}, 0, 3}, move};
    return plan;
  };
  for (std::uint32_t const id : {0U, 5U, top}) {
    refused(with({PageId{id}, PageId{1}, 0, 1}), "plan.moves", id, 4);
    refused(with({PageId{1}, PageId{id}, 0, 1}), "plan.moves", id, 4);
  }
  for (Index const row : {-1, 4, std::numeric_limits<Index>::min()}) {
    refused(with({PageId{1}, PageId{2}, row, 1}), "plan.moves.row", row, 4);
    refused(with({PageId{1}, PageId{2}, 1, row}), "plan.moves.row", row, 4);
  }
  CHECK(pool.apply(kvcache_test::in_order(with({PageId{4}, PageId{4}, 3, 0}))));
}

TEST_CASE_METHOD(Fixture, "Pool: a plan with a bad tree is refused whole", "[pool][plan_check]")
{
  auto const with = [](Index tokens, std::uint32_t at, std::vector<Index> const& parents) {
    Plan plan;
    set_table(plan, 0, 0, {4});
    add_chunk(plan, 1, 0, 1);
    add_chunk(plan, 0, 2, tokens);
    plan.chunks[1].parents_at = at;
    plan.parents.assign(parents);
    return plan;
  };
  refused(with(3, 0, {-1, 0}), "plan.chunks.parents_at", 0, 2);
  refused(with(3, 1, {-1, 0, 0}), "plan.chunks.parents_at", 1, 3);
  refused(with(1, top - 1, {-1, 0, 0}), "plan.chunks.parents_at", top - 1, 3);
  refused(with(3, 0, {-1, 0, 2}), "plan.parents", 2, 2);
  refused(with(3, 0, {0, 0, 0}), "plan.parents", 0, 0);
  refused(with(3, 0, {-1, -2, 0}), "plan.parents", -2, 1);
  refused(with(3, 1, {-1, -1, 0, 7}), "plan.parents", 7, 2);
  refused(with(3, 0, {-1, std::numeric_limits<Index>::max(), 0}),
          "plan.parents",
          std::numeric_limits<Index>::max(),
          1);
  Plan slack = with(3, 0, {-1, 0, 0});
  slack.chunks[1].slack = 1;  // behind open drafts
  CHECK(pool.apply(kvcache_test::in_order(slack)));
  CHECK(pool.apply(
    kvcache_test::in_order(with(3, 1, {9, -1, 0, 1}))));  // what no chunk names may be anything
}

TEST_CASE("Pool: a tree of more tokens than a mask has bits is refused", "[pool][plan_check]")
{
  auto pool = Pool<Layout>::create(geometry, kvcache_test::pool_sizes(geometry, 40, 2, 100));
  REQUIRE(pool);
  Plan plan;
  add_chunk(plan, 0, 0, 64);
  plan.chunks[0].parents_at = 0;
  plan.parents.assign(std::vector<Index>(100, -1));
  CHECK(pool->apply(kvcache_test::in_order(plan)));
  plan.chunks[0].tokens = 65;
  auto const applied = pool->apply(kvcache_test::in_order(plan));
  REQUIRE_FALSE(applied);
  CHECK(std::string(applied.error().field) == "plan.chunks.tokens");
  CHECK(applied.error().value == 65);
  CHECK(applied.error().limit == 64);
}

TEST_CASE_METHOD(Fixture,
                 "Pool: a plan of another version or for more rows is refused whole",
                 "[pool][plan_check]")
{
  Plan plan = good();
  plan.version = 2;
  refused(plan, "plan.version", 2, 1);
  plan = good();
  plan.slot = Plan::num_slots;
  refused(plan, "plan.slot", Plan::num_slots, Plan::num_slots);
  plan = good();
  add_chunk(plan, 1, 0, 1);
  add_chunk(plan, 1, 0, 1);
  refused(plan, "plan.chunks", 4, 3);
  CHECK(pool.apply(kvcache_test::in_order(good())));
}
