// SPDX-License-Identifier: Apache-2.0
// A caller's number on each score. One element type: the kernels take the functor outside their inner loops.

#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionPlan;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::ScoreAt;

namespace {

constexpr std::uint64_t seed = 20261130;
using Pool = PagedPool<kvcache::PagedHeads<kvcache::half>>;

/// Tells every token, head and row apart, so that one taken for another is seen.
struct Told {
  std::uint64_t salt;
  Index left_out;  // rows from here on weigh nothing; 0: none
  float size = 1.0F;
  Index every =
    0;  // rows every - 1, 2 every - 1, .. are left out too, and of query head 1 those before; 0: none
  float out = -std::numeric_limits<float>::infinity();  // what leaves a row out
  float operator()(ScoreAt at) const
  {
    if (every > 0 &&
        (at.row % every == every - 1 || (at.query_head == 1 && at.row % every == every - 2))) {
      return out;
    }
    std::uint64_t const x = (static_cast<std::uint64_t>(at.token) << 40 ^
                             static_cast<std::uint64_t>(at.query_head) << 20 ^
                             static_cast<std::uint64_t>(at.row) ^ salt) *
                            std::uint64_t{0x9e3779b97f4a7c15};
    return left_out > 0 && at.row >= left_out
             ? out
             : size * (static_cast<float>(x >> 48) * 0x1p-15F - 1.0F);
  }
};

/// `wide`: by the portable vectors of sixteen, whose query rows go in groups.
Attended run_told(
  Pool& pool, AttentionPlan const& plan, std::vector<float> const& q, Told told, bool wide = false)
{
  Attended got{std::vector<float>(q.size(), 77.0F),
               std::vector<float>(q.size() / static_cast<std::size_t>(plan.head_dim()), 77.0F)};
  std::vector<float> scratch(plan.scratch_floats(), std::numeric_limits<float>::quiet_NaN());
  kvcache::AttentionTensors const io{
    .q = q.data(), .out = got.out.data(), .lse = got.lse.data(), .scratch = scratch.data()};
  if (!wide) {
    kvcache::attend_all(pool.view(), plan, 0, io, told);
    return got;
  }
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    using Wide = kvcache::detail::portable::Kernel<kvcache::detail::portable::Vector<16>>;
    Wide::run(pool.view(), plan, 0, io, plan.item(i), told);
  }
  for (std::size_t i = 0; i < plan.num_merges(); ++i) {
    kvcache::merge(plan, io, i);
  }
  return got;
}

}  // namespace

TEST_CASE("attend: a bias reaches the score of its token, head and row, and no other",
          "[attention][bias]")
{
  std::mt19937_64 random(seed);
  double worst = 0;
  int const cases = cases_of(40);
  for (int i = 0; i < cases; ++i) {
    auto const group = static_cast<std::int32_t>(1 + random() % 9);
    Geometry const geometry{.layers = 1,
                            .kv_heads = 2,
                            .head_dim = 24,
                            .page_tokens = static_cast<std::int32_t>(1 + random() % 20)};
    AttentionShape const shape{.query_heads = 2 * group,
                               .kv_heads = 2,
                               .soft_cap = i % 2 == 0 ? 0.0F : 4.0F,
                               .window = static_cast<Index>(i % 3 == 0 ? 0 : 1 + random() % 60)};
    Pool pool(geometry, {150, 170, 40, 90}, {{0, 1}, {1, 2}, {2, 17}, {3, 12}}, Poison::nan, seed);
    pool.share(1, 0, static_cast<std::uint32_t>(128 / geometry.page_tokens));
    pool.plant(3, random_tree(random, 12, true));
    std::vector<kvcache::TwoWaySpan> const spans{{5, 9}};
    std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
    Told const told{random(), i % 4 == 3 ? 20 : 0};
    for (Path const path : paths()) {
      AttentionPlan plan;
      REQUIRE(plan
                .make(pool.view(),
                      shape,
                      {.workers = static_cast<std::int32_t>(1 + random() % 4),
                       .split_rows = i % 5 == 0 ? 32 : 0,
                       .shared_rows = 32,
                       .two_way = spans,
                       .instructions = set_of(path)})
                .has_value());
      double const error = error_against_double(
        pool,
        shape,
        0,
        q,
        run_told(pool, plan, q, told, path == Path::wide),
        {.two_way = spans, .bias = [&](ScoreAt at) { return static_cast<double>(told(at)); }});
      INFO(name(path) << ", case " << i << ", group " << group << ", page_tokens "
                      << geometry.page_tokens << ", window " << shape.window);
      CHECK(error <= 1e-5);
      worst = std::max(worst, error);
    }
  }
  std::printf("attend: %d biased steps from seed %llu, worst error against double %.1e\n",
              cases,
              static_cast<unsigned long long>(seed),
              worst);
}

TEST_CASE("attend: a bias left out, or of the next row, is noticed", "[attention][bias]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 24, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  Pool pool(geometry, {70}, {{0, 3}}, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  AttentionPlan plan;
  REQUIRE(plan.make(pool.view(), shape).has_value());
  Told const told{seed, 0};
  Attended const got = run_told(pool, plan, q, told);
  CHECK(error_against_double(pool, shape, 0, q, got) > 1e-2);
  auto const next = [&](ScoreAt at) {
    ++at.row;
    return static_cast<double>(told(at));
  };
  CHECK(error_against_double(pool, shape, 0, q, got, {.bias = next}) > 1e-2);
  // Adding nothing has the bits of no functor.
  CHECK(same_bits(run_told(pool, plan, q, {seed, 0, 0.0F}),
                  run_plan(pool, plan, 0, q, Path::portable)));
}

TEST_CASE("attend: nothing of a row that a bias leaves out reaches a result, whatever its K and V",
          "[attention][bias][numbers]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 24, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 20, .kv_heads = 1};
  float const lowest = -std::numeric_limits<float>::max();
  float const infinity = std::numeric_limits<float>::infinity();
  float const nan = std::numeric_limits<float>::quiet_NaN();
  auto const with = [&](float k, float v) {
    auto pool = std::make_unique<Pool>(geometry,
                                       std::vector<Index>{150, 170},
                                       std::vector<StepChunk>{{0, 1}, {1, 3}},
                                       Poison::nan,
                                       seed);
    pool->share(1, 0, 8);
    for (Index row = 6; row < 147; row += 7) {
      pool->put(0, 0, 0, row, k, v);
      pool->put(1, 0, 0, row, k, v);
    }
    return pool;
  };
  auto const clean = with(0.5F, 0.5F);
  std::vector<float> const q = random_queries(query_floats(*clean, shape), seed);
  // bfloat16's lowest, too.
  for (float const out : {-infinity, lowest, -0x1.fep127F}) {
    Told const told{seed, 0, 1.0F, 7, out};
    auto const bias = [&](ScoreAt at) {
      float const x = told(at);
      return x == out ? -std::numeric_limits<double>::infinity() : static_cast<double>(x);
    };
    for (Path const path : paths()) {
      for (bool const cut : {false, true}) {
        INFO(name(path) << ", out " << out << ", cut " << cut);
        AttentionPlan plan;
        REQUIRE(plan
                  .make(clean->view(),
                        shape,
                        {.workers = cut ? 3 : 1,
                         .split_rows = cut ? 32 : 0,
                         .shared_rows = cut ? 32 : 0,
                         .instructions = set_of(path)})
                  .has_value());
        Attended const right = run_told(*clean, plan, q, told, path == Path::wide);
        CHECK(error_against_double(*clean, shape, 0, q, right, {.bias = bias}) <= 1e-5);
        auto const same = [&](float k, float v) {
          return same_bits(right, run_told(*with(k, v), plan, q, told, path == Path::wide));
        };
        CHECK(same(0.5F, nan));
        CHECK(same(nan, 0.5F));
        CHECK(same(infinity, -infinity));
        // The check sees what is not left out.
        Told const seen{seed, 0, 1.0F, 0, out};
        CHECK_FALSE(
          same_bits(right, run_told(*with(0.5F, nan), plan, q, seen, path == Path::wide)));
      }
    }
  }
}

TEST_CASE("attend: a query of which a bias leaves nothing gives 0 and minus infinity",
          "[attention][bias][numbers]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 24, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 20, .kv_heads = 1};
  Pool pool(geometry, {150}, {{0, 2}}, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  for (float const out : {-std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::max(),
                          -0x1.fep127F,
                          -1.0e38F}) {
    for (Path const path : paths()) {
      for (bool const cut : {false, true}) {
        INFO(name(path) << ", out " << out << ", cut " << cut);
        AttentionPlan plan;
        REQUIRE(plan
                  .make(pool.view(),
                        shape,
                        {.workers = 3, .split_rows = cut ? 32 : 0, .instructions = set_of(path)})
                  .has_value());
        Attended const got =
          run_told(pool, plan, q, Told{seed, 0, 1.0F, 1, out}, path == Path::wide);
        CHECK(std::all_of(got.out.begin(), got.out.end(), [](float x) { return x == 0.0F; }));
        CHECK(std::all_of(got.lse.begin(), got.lse.end(), [](float x) {
          return x == -std::numeric_limits<float>::infinity();
        }));
      }
    }
  }
}
