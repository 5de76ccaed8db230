// SPDX-License-Identifier: Apache-2.0
// Host attention takes a view of any order of rows: tokens first and layers first beside the plain formula.

#include <kvcache/host.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

#include "support/catch.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;

using Layout = PagedHeads<half, 64, dynamic, RowOrder::nhd>;
constexpr std::int32_t query_heads = 6;
constexpr Index tokens = 70;

std::vector<float> random_floats(kvcache_test::Random& random, std::size_t count)
{
  std::vector<float> out(count);
  for (float& x : out) {
    x = static_cast<float>(random.below(256)) / 64.0F - 2.0F;
  }
  return out;
}

}  // namespace

TEST_CASE("BatchView: host attention over rows in token order is attention",
          "[view][attend_orders]")
{
  constexpr std::uint64_t seed = 61;
  CAPTURE(seed);
  kvcache_test::Random random(seed);
  Geometry const g{.layers = 2,
                   .kv_heads = 2,
                   .head_dim = 64,
                   .page_tokens = 12,
                   .arrangement = GENERATE(Arrangement::page_first, Arrangement::layer_first)};
  auto pool = Pool<Layout>::create(g, kvcache_test::pool_sizes(g, 7, 2, 128));
  REQUIRE(pool);
  Plan plan;
  kvcache_test::set_table(plan, 1, 0, {5, 2, 7, 1, 3, 6});
  kvcache_test::add_chunk(plan, 1, 0, tokens);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  auto const view = pool->view();
  std::vector<std::vector<float>> keys;  // of layer 1, by token and head
  std::vector<std::vector<float>> values;
  for (Index token = 0; token < tokens; ++token) {
    for (std::int32_t lh = 0; lh < 4; ++lh) {
      auto const k = random_floats(random, 64);
      auto const v = random_floats(random, 64);
      view.append(Solo{}, lh / 2, lh % 2, token, k.data(), v.data());
      if (lh >= 2) {
        keys.push_back(k);
        values.push_back(v);
      }
    }
  }
  auto const q = random_floats(random, std::size_t{tokens} * query_heads * 64);
  std::vector<float> out(q.size());
  AttentionPlan work;
  REQUIRE(work.make(view, {.query_heads = query_heads, .kv_heads = 2}));
  std::vector<float> scratch(work.scratch_floats());
  AttentionTensors const io{.q = q.data(), .out = out.data(), .scratch = scratch.data()};
  for (std::size_t i = 0; i < work.num_items(); ++i) {
    attend(view, work, 1, io, i);
  }
  for (std::size_t i = 0; i < work.num_merges(); ++i) {
    merge(work, io, i);
  }
  double most = 0.0;
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t head = 0; head < query_heads; ++head) {
      std::size_t const at = (token * query_heads + head) * 64;
      double want[64] = {};
      double sum = 0.0;
      for (std::size_t row = 0; row <= token; ++row) {
        std::size_t const kv = row * 2 + head / 3;
        double dot = 0.0;
        for (std::size_t d = 0; d < 64; ++d) {
          dot += double{q[at + d]} * double{keys[kv][d]};
        }
        double const p = std::exp(dot / 8.0);
        sum += p;
        for (std::size_t d = 0; d < 64; ++d) {
          want[d] += p * double{values[kv][d]};
        }
      }
      for (std::size_t d = 0; d < 64; ++d) {
        most = std::fmax(most, std::fabs(double{out[at + d]} - want[d] / sum));
      }
    }
  }
  CHECK(most < 1e-5);
}
