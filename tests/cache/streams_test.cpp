// SPDX-License-Identifier: Apache-2.0
// The cache on a device whose streams run as late as they may.

#include <kvcache/kvcache.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <array>
#include <cstdint>
#include <string>

#include "support/catch.hpp"
#include "support/hand_plan.hpp"
#include "support/streams_device.hpp"
#include "support/streams_scenario.hpp"

namespace {

using kvcache_test::run_streams;
using kvcache_test::StreamsDevice;
using kvcache_test::StreamsTally;

std::array<void*, 2> two_streams()
{
  static std::array<int, 2> places{};
  return {&places[0], &places[1]};
}

/// The sum over some seeds.
StreamsTally run_seeds(std::uint64_t seeds, bool forgets)
{
  StreamsTally sum;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    StreamsDevice device;
    device.forgets = forgets;
    StreamsTally const one = run_streams(seed, device, device.world, two_streams());
    CAPTURE(seed);
    CHECK((forgets || one.wrong == 0));
    sum.wrong += one.wrong;
    sum.steps += one.steps;
    sum.given_up += one.given_up;
    sum.hits += one.hits;
  }
  return sum;
}

}  // namespace

TEST_CASE("KVCache: two streams whose kernels run late, and steps that are given up before",
          "[cache][streams]")
{
  StreamsTally const sum = run_seeds(60, false);
  CHECK(sum.wrong == 0);
  CHECK(sum.steps > 2000);
  CHECK(sum.given_up > 300);
  CHECK(sum.hits > 300);
}

TEST_CASE("KVCache: a device that joins no streams lets given up kernels write in pages of others",
          "[cache][streams]")
{
  CHECK(run_seeds(10, true).wrong > 0);
}

TEST_CASE("Pool: while a graph captures, a plan needs memory that was taken before",
          "[pool][streams]")
{
  using Layout = kvcache::PagedHeads<kvcache::half>;
  constexpr kvcache::Geometry geometry{
    .layers = 2, .kv_heads = 3, .head_dim = 24, .page_tokens = 5};
  StreamsDevice device;
  auto pool = kvcache::Pool<Layout>::create(
    geometry, kvcache_test::pool_sizes(geometry, 3000, 2, 8), {}, &device);
  REQUIRE(pool);
  kvcache::Plan plan;
  kvcache_test::add_chunk(plan, 0, 0, 3);
  kvcache::StreamRef const stream{two_streams()[0], 0};
  device.graph = true;
  auto const refused = pool->apply(kvcache_test::in_order(plan), stream);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().why == kvcache::Why::busy);
  CHECK(std::string(refused.error().right).find("reserved before") != std::string::npos);
  device.graph = false;
  REQUIRE(pool->reserve(stream));
  device.graph = true;
  CHECK(pool->apply(kvcache_test::in_order(plan), stream));
  device.world.finish(stream.handle);
  CHECK(pool->view(0).num_tokens() == 3);

  kvcache::Plan large;
  large.slot = 1;
  for (int i = 0; i < 3000; ++i) {
    large.ids.push_back(kvcache::PageId{1});
  }
  large.tables.push_back({kvcache::RowId{0}, 0, 3000, 0});
  auto const too_large = pool->apply(kvcache_test::in_order(large), stream);
  REQUIRE_FALSE(too_large);
  CHECK(too_large.error().value > 12000);
  device.graph = false;
  REQUIRE(pool->reserve(stream, static_cast<std::size_t>(too_large.error().value)));
  device.graph = true;
  CHECK(pool->apply(kvcache_test::in_order(large), stream));
  device.world.finish(stream.handle);
  CHECK(pool->view(1).segment.entry(0, 0, 0, 2999) == 1);
}

TEST_CASE("Pool: captured launches run again for the plan that was uploaded last",
          "[pool][streams]")
{
  using Layout = kvcache::PagedHeads<kvcache::half>;
  constexpr kvcache::Geometry geometry{
    .layers = 2, .kv_heads = 3, .head_dim = 24, .page_tokens = 5};
  auto const sizes = kvcache_test::pool_sizes(geometry, 8, 4, 32);
  StreamsDevice device;
  auto pool = kvcache::Pool<Layout>::create(geometry, sizes, {}, &device);
  REQUIRE(pool);
  kvcache::StreamRef const stream{two_streams()[0], 0};
  for (kvcache::Index const tokens : {1, 7, 3}) {
    kvcache::Plan plan;
    kvcache_test::set_table(plan, 1, 0, {static_cast<std::uint32_t>(tokens)});
    kvcache_test::add_chunk(plan, 1, tokens, tokens);
    REQUIRE(pool->upload(kvcache_test::in_order(plan), stream));
    pool->launch(plan.slot, stream);  // a replay makes the same calls, with the same cell
    device.world.finish(stream.handle);
    auto const view = pool->view(0);
    CHECK(view.num_tokens() == tokens);
    CHECK(view.index(tokens - 1) == 2 * tokens - 1);
    CHECK(view.index(tokens) == -1);
    CHECK(view.segment.entry(0, 0, 1, 0) == static_cast<std::uint32_t>(tokens));
  }
}
