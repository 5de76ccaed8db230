// SPDX-License-Identifier: Apache-2.0
// A caller's number on each score. One element type: the kernels take the functor outside their inner loops.

#include <kvcache/core/dtype.hpp>

#include <cmath>
#include <cstdio>
#include <limits>
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
  float operator()(ScoreAt at) const
  {
    std::uint64_t const x = (static_cast<std::uint64_t>(at.token) << 40 ^
                             static_cast<std::uint64_t>(at.query_head) << 20 ^
                             static_cast<std::uint64_t>(at.row) ^ salt) *
                            std::uint64_t{0x9e3779b97f4a7c15};
    return left_out > 0 && at.row >= left_out
             ? -std::numeric_limits<float>::infinity()
             : size * (static_cast<float>(x >> 48) * 0x1p-15F - 1.0F);
  }
};

Attended run_told(Pool& pool, AttentionPlan const& plan, std::vector<float> const& q, Told told)
{
  Attended got{std::vector<float>(q.size(), 77.0F),
               std::vector<float>(q.size() / static_cast<std::size_t>(plan.head_dim()), 77.0F)};
  std::vector<float> scratch(plan.scratch_floats(), std::numeric_limits<float>::quiet_NaN());
  kvcache::attend_all(
    pool.view(),
    plan,
    0,
    {.q = q.data(), .out = got.out.data(), .lse = got.lse.data(), .scratch = scratch.data()},
    told);
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
      if (path == Path::wide) {
        continue;  // the portable vector at another width
      }
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
        run_told(pool, plan, q, told),
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
