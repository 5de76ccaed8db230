// SPDX-License-Identifier: Apache-2.0
// A captured graph keeps the view of its slot and the cell of its launches. Here a graph is a list of calls that hold
// copies of both, and what happens between replays is everything that a pool may do.

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/hand_plan.hpp"

namespace {

using namespace kvcache;
using kvcache_test::add_chunk;
using kvcache_test::pool_sizes;
using kvcache_test::set_table;

using Layout = PagedHeads<half, dynamic, dynamic, RowOrder::nhd>;
constexpr Geometry geometry{.layers = 2,
                            .kv_heads = 2,
                            .head_dim = 16,
                            .page_tokens = 4,
                            .arrangement = Arrangement::layer_first};

/// What a kernel of the slot's graph sees when it runs now: nothing comes from the host at replay.
struct Graph {
  BatchView<Layout> view;

  [[nodiscard]] std::vector<Index> replay() const
  {
    std::vector<Index> seen{view.num_tokens(), view.num_chunks()};
    for (Index token = 0; token < 8; ++token) {  // as many as the largest step, padding included
      seen.push_back(view.index(token));
      if (view.index(token) >= 0) {
        auto const p = static_cast<std::uint32_t>(view.index(token) / 4);
        seen.push_back(static_cast<Index>(view.segment.entry(1, 1, view.token_row[token], p)));
      }
    }
    return seen;
  }
};

Plan plan_of(std::uint32_t slot, std::uint32_t row, Index first, Index tokens)
{
  Plan plan;
  plan.slot = slot;
  plan.stream = StreamId{slot / 3};
  set_table(plan, row, 0, {1 + slot, 2 + slot});
  add_chunk(plan, row, first, tokens);
  return plan;
}

}  // namespace

TEST_CASE(
  "Pool: a graph a slot, captured once, sees its own slot's step however many are in flight",
  "[pool][graph_slots]")
{
  kvcache_test::CountingDevice device;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 3000, 12, 8), {}, &device);
  REQUIRE(pool);
  std::vector<Graph> graphs;
  std::vector<LaunchCell> cells;
  for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
    REQUIRE(pool->apply(kvcache_test::in_order(plan_of(slot, slot, 0, 1))));
    graphs.push_back({pool->view(slot)});
    cells.push_back(device.last_cell);
  }
  // All slots have a step in flight: each graph sees its own.
  for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
    auto const n = static_cast<Index>(slot % 4 + 1);
    REQUIRE(pool->apply(kvcache_test::in_order(plan_of(slot, slot, 1, n))));
    CHECK(device.last_cell == cells[slot]);
  }
  for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
    auto const n = static_cast<Index>(slot % 4 + 1);
    std::vector<Index> want{n, 1};
    for (Index token = 0; token < 8; ++token) {
      want.push_back(token < n ? token + 1 : -1);
      if (token < n) {
        want.push_back(static_cast<Index>(token + 1 < 4 ? 1 + slot : 2 + slot));
      }
    }
    CAPTURE(slot);
    CHECK(graphs[slot].replay() == want);
  }
  // A plan that outgrows the slot's buffers moves nothing that a graph holds, nor what other slots see.
  auto const before = graphs[4].replay();
  Plan large = plan_of(5, 5, 0, 2);
  large.tables[0].count = 3000;
  large.ids.resize(3000);
  for (std::uint32_t i = 0; i < 3000; ++i) {
    large.ids[i] = PageId{i + 1};
  }
  int const allocations = device.allocations;
  REQUIRE(pool->apply(kvcache_test::in_order(large)));
  CHECK(device.allocations > allocations);
  CHECK(device.last_cell == cells[5]);
  CHECK(graphs[5].replay()[0] == 2);
  CHECK(graphs[4].replay() == before);
  for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
    auto const now = pool->view(slot);
    auto const& held = graphs[slot].view;
    CHECK(now.segment.base == held.segment.base);
    CHECK(now.segment.table == held.segment.table);
    CHECK(now.segment.layer_offset == held.segment.layer_offset);
    CHECK(now.counts == held.counts);
    CHECK(now.token_row == held.token_row);
    CHECK(now.token_index == held.token_index);
    CHECK(now.chunk_first == held.chunk_first);
    CHECK(now.lengths == held.lengths);
    CHECK(now.token_mask == held.token_mask);
  }
}
