// SPDX-License-Identifier: Apache-2.0

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
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

std::vector<std::uint32_t> row_entries(Pool<Layout> const& pool, std::uint32_t row, std::uint32_t n)
{
  std::vector<std::uint32_t> out;
  for (std::uint32_t p = 0; p < n; ++p) {
    out.push_back(pool.view().segment.entry(0, 0, row, p));
  }
  return out;
}

}  // namespace

TEST_CASE("Pool: table entries persist from plan to plan, and deltas change only theirs",
          "[pool][apply]")
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 8));
  REQUIRE(pool);
  Plan plan;
  set_table(plan, 0, 0, {1, 2, 3});
  set_table(plan, 3, 0, {4});
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  Plan more;
  set_table(more, 0, 2, {7, 8});
  set_table(more, 3, 1, {5});
  REQUIRE(pool->apply(kvcache_test::in_order(more)));
  REQUIRE(pool->apply(kvcache_test::in_order(Plan{})));
  CHECK(row_entries(*pool, 0, 4) == std::vector<std::uint32_t>{1, 2, 7, 8});
  CHECK(row_entries(*pool, 3, 2) == std::vector<std::uint32_t>{4, 5});
}

TEST_CASE("Pool: a copy moves the first rows of K and V of every tile, and nothing else",
          "[pool][apply]")
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 6));
  REQUIRE(pool);
  fill(*pool, 1, 6);
  Footprint const& f = pool->footprint();
  for (Index rows = 0; rows <= geometry.page_tokens; ++rows) {
    CAPTURE(rows);
    auto want = bytes_of(*pool);
    for (std::size_t tile = 0; tile < f.tiles_per_page; ++tile) {
      for (std::size_t const section : {std::size_t{0}, std::size_t{24 * 5 * 2}}) {
        std::size_t const inside = tile * f.tile_bytes + section;
        std::memcpy(&want[5 * f.page_bytes() + inside],
                    &want[2 * f.page_bytes() + inside],
                    static_cast<std::size_t>(rows) * 24 * 2);
      }
    }
    Plan plan;
    plan.copies.push_back({PageId{2}, PageId{5}, rows});
    REQUIRE(pool->apply(kvcache_test::in_order(plan)));
    CHECK(bytes_of(*pool) == want);
    fill(*pool, 2, 6);
  }
}

TEST_CASE("Pool: one plan copies one page to several, and chains of plans run in order",
          "[pool][apply]")
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 6));
  REQUIRE(pool);
  fill(*pool, 3, 6);
  Plan plan;
  plan.copies = {{PageId{1}, PageId{2}, 5}, {PageId{1}, PageId{3}, 2}, {PageId{6}, PageId{4}, 5}};
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  Plan next;
  next.copies = {{PageId{2}, PageId{5}, 5}};
  REQUIRE(pool->apply(kvcache_test::in_order(next)));
  std::size_t const rows = 24 * 5 * 2 * 2;  // K and V of the first tile
  CHECK(std::memcmp(pool->page(PageId{1}), pool->page(PageId{5}), rows) == 0);
  CHECK(std::memcmp(pool->page(PageId{6}), pool->page(PageId{4}), rows) == 0);
  CHECK(std::memcmp(pool->page(PageId{1}), pool->page(PageId{3}), 24 * 2 * 2) == 0);
  CHECK(std::memcmp(pool->page(PageId{1}), pool->page(PageId{3}), rows) != 0);
}

TEST_CASE("Pool: the same plans give two pools the same tables and bytes", "[pool][apply]")
{
  constexpr std::uint64_t seed = 41;
  CAPTURE(seed);
  kvcache_test::CountingDevice device;
  auto first = Pool<Layout>::create(geometry, pool_sizes(geometry, 7));
  auto second = Pool<Layout>::create(geometry, pool_sizes(geometry, 7), {}, &device);
  REQUIRE(first);
  REQUIRE(second);
  fill(*first, seed, 7);
  fill(*second, seed, 7);
  kvcache_test::Random random(seed);
  for (int step = 0; step < 40; ++step) {
    Plan plan;
    std::uint32_t const row = random.below(4);
    set_table(plan, row, 0, {random.between(1, 7), random.between(1, 7), random.between(1, 7)});
    std::uint32_t const source = random.between(1, 7);
    plan.copies.push_back(
      {PageId{source}, PageId{source % 7 + 1}, static_cast<Index>(random.below(6))});
    add_chunk(
      plan, row, static_cast<Index>(random.below(7)), static_cast<Index>(random.between(1, 8)));
    REQUIRE(first->apply(kvcache_test::in_order(plan)));
    REQUIRE(second->apply(kvcache_test::in_order(plan)));
    std::vector<float> k(24);
    for (float& x : k) {
      x = static_cast<float>(random.below(100));
    }
    for (auto const& view : {first->view(), second->view()}) {
      for (Index token = 0; token < view.num_tokens(); ++token) {
        view.append(Solo{}, 1, 2, token, k.data(), k.data());
      }
    }
    REQUIRE(bytes_of(*first) == bytes_of(*second));
    REQUIRE(row_entries(*first, row, 3) == row_entries(*second, row, 3));
  }
  CHECK(bytes_of(*first)[0] == std::byte{0});
  CHECK(device.copy_calls == 40);  // one launch a plan
}

TEST_CASE("Pool: the page of zeros is zeros from the start, whatever the memory held",
          "[pool][apply]")
{
  kvcache_test::CountingDevice device;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 2), {}, &device);
  REQUIRE(pool);
  std::size_t const page = pool->footprint().page_bytes();
  CHECK(std::vector<std::byte>(pool->page(zero_page), pool->page(zero_page) + page) ==
        std::vector<std::byte>(page, std::byte{0}));
  CHECK(*pool->page(PageId{1}) == std::byte{0xcd});  // only that page is touched
}

TEST_CASE("Pool: work is ordered on the caller's stream", "[pool][apply]")
{
  kvcache_test::CountingDevice device;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 8), {}, &device);
  REQUIRE(pool);
  int tag = 0;
  Plan plan;
  set_table(plan, 0, 0, {1});
  add_chunk(plan, 0, 0, 1);
  REQUIRE(pool->apply(kvcache_test::in_order(plan), StreamRef{&tag}));
  CHECK(device.last_stream == &tag);
}

TEST_CASE("Pool: behind open drafts the rows begin at the length that the device holds",
          "[pool][apply]")
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 8));
  REQUIRE(pool);
  Plan draft;
  set_table(draft, 0, 0, {1, 2, 3});
  set_table(draft, 1, 0, {4});
  add_chunk(draft, 0, 2, 3);
  REQUIRE(pool->apply(kvcache_test::in_order(draft)));
  auto const first = pool->view(0);
  bool const rejects = GENERATE(false, true);
  if (rejects) {
    first.set_length(0, 3);  // one of the three
  }
  Index const start = rejects ? 3 : 5;
  Plan next;
  next.slot = 1;
  add_chunk(next, 1, 0, 2);
  add_chunk(next, 0, 5, 2);
  next.chunks[1].slack = 3;
  REQUIRE(pool->apply(kvcache_test::in_order(next)));
  auto const second = pool->view(1);
  CHECK(second.index(1) == 1);
  CHECK(second.index(2) == start);
  CHECK(second.index(3) == start + 1);
  CHECK(first.index(0) == 2);  // each slot has its own
  CHECK(second.lengths[1] == 2);
  CHECK(second.lengths[0] == start + 2);  // nobody rejected: it is all accepted

  Plan last;  // the step after it may lie behind open drafts too
  last.slot = 2;
  add_chunk(last, 0, 7, 1);
  last.chunks[0].slack = 2;
  REQUIRE(pool->apply(kvcache_test::in_order(last)));
  CHECK(pool->view(2).index(0) == start + 2);
}

TEST_CASE("Pool: the view's addresses hold for the pool's life, a move included", "[pool][apply]")
{
  auto made = Pool<Layout>::create(geometry, pool_sizes(geometry, 3));
  REQUIRE(made);
  auto const before = made->view();
  Plan plan;
  set_table(plan, 0, 0, {1, 2});
  add_chunk(plan, 0, 0, 7);
  REQUIRE(made->apply(kvcache_test::in_order(plan)));
  Pool<Layout> pool(std::move(*made));
  add_chunk(plan, 1, 0, 1);
  REQUIRE(pool.apply(kvcache_test::in_order(plan)));
  auto const after = pool.view();
  CHECK(std::memcmp(&before, &after, sizeof before) == 0);
  CHECK(before.num_tokens() == 8);
}
