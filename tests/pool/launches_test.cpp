// SPDX-License-Identifier: Apache-2.0
// What a plan costs in calls and bytes, and what its moves and trees do.

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;
using kvcache_test::add_chunk;
using kvcache_test::bytes_of;
using kvcache_test::fill;
using kvcache_test::pool_sizes;
using kvcache_test::set_table;

using Layout = PagedHeads<half>;
constexpr Geometry geometry{.layers = 2, .kv_heads = 3, .head_dim = 24, .page_tokens = 5};

Plan plan_of(std::uint32_t chunks, Index tokens)
{
  Plan plan;
  for (std::uint32_t row = 0; row < chunks; ++row) {
    set_table(plan, row, 0, {1 + row % 8, 1 + (row + 1) % 8});
    if (chunks > 1) {
      plan.copies.push_back({PageId{1}, PageId{9 + row}, 3});
      plan.moves.push_back({PageId{7}, PageId{8}, static_cast<Index>(row % 5), 2});
    }
    add_chunk(plan, row, 0, tokens);
  }
  return plan;
}

std::vector<std::uint64_t> masks_of(Pool<Layout> const& pool, std::uint32_t slot, std::size_t n)
{
  std::uint64_t const* const masks = pool.view(slot).token_mask;
  return {masks, masks + n};
}

void add_tree(Plan& plan, std::uint32_t row, Index first_index, std::vector<Index> const& parents)
{
  add_chunk(plan, row, first_index, static_cast<Index>(parents.size()));
  plan.chunks.back().parents_at = static_cast<std::uint32_t>(plan.parents.size());
  plan.parents.append(parents);
}

}  // namespace

TEST_CASE("Pool: a plan of 200 chunks makes the calls of a plan of one", "[pool][launches]")
{
  kvcache_test::CountingDevice device;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 208, 200, 600), {}, &device);
  REQUIRE(pool);
  REQUIRE(
    pool->apply(kvcache_test::in_order(plan_of(1, 1))));  // the slot's first plan takes its memory
  auto const calls_of = [&](Plan const& plan) {
    int const before = device.calls();
    int const allocations = device.allocations;
    int const uploads = device.upload_calls;
    REQUIRE(pool->apply(kvcache_test::in_order(plan)));
    CHECK(device.allocations == allocations);
    CHECK(device.upload_calls == uploads + 1);
    return device.calls() - before;
  };
  CHECK(calls_of(plan_of(1, 1)) == 5);
  kvcache::LaunchCell const cell = device.last_cell;
  CHECK(calls_of(plan_of(200, 3)) == 5);
  CHECK(calls_of(Plan{}) == 5);
  CHECK(device.last_cell == cell);  // what a graph captured still holds
}

TEST_CASE("Pool: a slot's memory grows with the largest plan, and its launches are told the same",
          "[pool][launches]")
{
  kvcache_test::CountingDevice device;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 4000, 2, 8), {}, &device);
  REQUIRE(pool);
  REQUIRE(pool->apply(kvcache_test::in_order(plan_of(1, 1))));
  auto const view = pool->view();
  kvcache::LaunchCell const cell = device.last_cell;
  Plan large;
  set_table(large, 1, 0, {1});
  large.tables[0].count = 4000;
  large.ids.resize(4000);
  for (std::uint32_t i = 0; i < 4000; ++i) {
    large.ids[i] = PageId{4000 - i};
  }
  add_chunk(large, 1, 3, 1);

  for (int const succeed : {0, 1}) {  // no memory: nothing is changed
    device.fail_after = succeed;
    auto const refused = pool->apply(kvcache_test::in_order(large));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().why == Why::no_memory);
    CHECK(std::string(refused.error().field) == "plan bytes");
    CHECK(refused.error().value > 16000);
    CHECK(view.index(0) == 0);
    device.fail_after = -1;
    CHECK(device.staging_blocks() == 1);
    CHECK(device.live_bytes == pool->bytes());
  }
  int const uploads = device.upload_calls;
  REQUIRE(pool->apply(kvcache_test::in_order(large)));
  CHECK(device.upload_calls == uploads + 2);
  CHECK(device.last_cell == cell);
  CHECK(device.staging_blocks() == 1);
  CHECK(device.live_bytes == pool->bytes());
  for (std::uint32_t const p : {0U, 1234U, 3999U}) {
    CHECK(pool->view().segment.entry(0, 0, 1, p) == 4000 - p);
  }
  CHECK(view.index(0) == 3);
  REQUIRE(pool->apply(kvcache_test::in_order(large)));
  CHECK(device.upload_calls == uploads + 3);
}

TEST_CASE(
  "Pool: a decode step uploads a few bytes a sequence, and masks only where there are trees",
  "[pool][launches]")
{
  kvcache_test::CountingDevice device;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 208, 64, 600), {}, &device);
  REQUIRE(pool);
  auto const bytes = [&](Plan const& plan) {
    std::size_t const before = device.uploaded_bytes;
    REQUIRE(pool->apply(kvcache_test::in_order(plan)));
    return device.uploaded_bytes - before;
  };
  auto const decode = [] {
    Plan plan;
    for (std::uint32_t row = 0; row < 64; ++row) {
      add_chunk(plan, row, 3, 1);
    }
    return plan;
  }();
  (void)bytes(decode);
  std::size_t const plain = bytes(decode);
  CHECK(plain < 64 * 48);
  Plan tree = decode;
  tree.chunks[9].parents_at = 0;
  tree.parents = {-1};
  CHECK(bytes(tree) == plain + 10 * sizeof(std::uint64_t));
  CHECK(masks_of(*pool, 0, 64)[9] == 1);
  CHECK(bytes(decode) == plain + 10 * sizeof(std::uint64_t));  // takes the mask back
  CHECK(masks_of(*pool, 0, 64) == std::vector<std::uint64_t>(64, 0));
  CHECK(bytes(decode) == plain);
}

TEST_CASE("Pool: moves run one after the other, in both sections of every tile", "[pool][launches]")
{
  constexpr std::uint64_t seed = 77;
  CAPTURE(seed);
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 6));
  REQUIRE(pool);
  kvcache_test::Random random(seed);
  Footprint const& f = pool->footprint();
  std::size_t const row_bytes = 24 * 2;
  for (int round = 0; round < 60; ++round) {
    fill(*pool, seed + static_cast<std::uint64_t>(round), 6);
    auto want = bytes_of(*pool);
    Plan plan;
    for (std::uint32_t i = random.below(7); i > 0; --i) {
      RowMove const move{PageId{random.between(1, 3)},
                         PageId{random.between(1, 3)},
                         static_cast<Index>(random.below(5)),
                         static_cast<Index>(random.below(5))};
      plan.moves.push_back(move);
      for (std::size_t tile = 0; tile < f.tiles_per_page; ++tile) {
        for (std::size_t const section : {std::size_t{0}, std::size_t{24 * 5 * 2}}) {
          auto const at = [&](PageId page, Index row) {
            return want.data() + page.value * f.page_bytes() + tile * f.tile_bytes + section +
                   static_cast<std::size_t>(row) * row_bytes;
          };
          std::memmove(
            at(move.target, move.target_row), at(move.source, move.source_row), row_bytes);
        }
      }
    }
    REQUIRE(pool->apply(kvcache_test::in_order(plan)));
    REQUIRE(bytes_of(*pool) == want);
  }
}

TEST_CASE("Pool: rows move before pages are copied, and entries are written before either",
          "[pool][launches]")
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 3));
  REQUIRE(pool);
  fill(*pool, 5, 3);
  std::vector<std::byte> const moved(pool->page(PageId{1}) + 3 * 48,
                                     pool->page(PageId{1}) + 4 * 48);
  Plan plan;
  set_table(plan, 0, 0, {2});
  plan.moves = {{PageId{1}, PageId{2}, 3, 0}};
  plan.copies = {{PageId{2}, PageId{3}, 1}};
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  CHECK(std::vector<std::byte>(pool->page(PageId{3}), pool->page(PageId{3}) + 48) == moved);
}

TEST_CASE("Pool: a token of a tree sees itself and its ancestors", "[pool][launches]")
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 40, 4, 200));
  REQUIRE(pool);
  auto const view = pool->view(0);
  Plan plan;
  set_table(plan, 1, 0, {1, 2, 3});
  add_chunk(plan, 0, 0, 2);
  //   0 - 1 - 3      and a second tree beside it: 4 - 6
  //     \ 2 - 5
  add_tree(plan, 1, 7, {-1, 0, 0, 1, -1, 2, 4});
  add_chunk(plan, 2, 0, 1);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  CHECK(masks_of(*pool, 0, 12) ==
        std::vector<std::uint64_t>{
          0, 0, 0b1, 0b11, 0b101, 0b1011, 0b10000, 0b100101, 0b1010000, 0, 0, 0});
  CHECK(view.lengths[1] == 14);  // all its rows, as for other chunks
  CHECK(view.index(2) == 7);
  CHECK(view.index(8) == 13);

  Plan chain;  // of the most tokens
  std::vector<Index> parents(64);
  std::iota(parents.begin(), parents.end(), -1);
  add_tree(chain, 1, 0, parents);
  chain.slot = 1;
  REQUIRE(pool->apply(kvcache_test::in_order(chain)));
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(masks_of(*pool, 1, 64)[i] == ~std::uint64_t{0} >> (63 - i));
  }
  CHECK(masks_of(*pool, 0, 4)[3] == 0b11);  // each slot has its own

  Plan plain;
  add_chunk(plain, 0, 2, 1);
  REQUIRE(pool->apply(kvcache_test::in_order(plain)));
  CHECK(masks_of(*pool, 0, 200) == std::vector<std::uint64_t>(200, 0));
  CHECK(masks_of(*pool, 2, 200) == std::vector<std::uint64_t>(200, 0));  // a slot without a step
  CHECK(pool->view(0).token_mask == view.token_mask);
}
