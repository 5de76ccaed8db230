// SPDX-License-Identifier: Apache-2.0
// The plain functor against double precision, alone and as a team.

#include <kvcache/attention/reference.hpp>
#include <kvcache/core/dtype.hpp>

#include <random>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;

TEST_CASE("reference_attention: equals double precision, alone and as a team of three",
          "[attention][reference]")
{
  Geometry const geometry{.layers = 2, .kv_heads = 2, .head_dim = 24, .page_tokens = 4};
  std::mt19937_64 random(5);
  PagedPool<PagedHeads<kvcache::half>> pool(
    geometry, {37, 8, 20}, {{0, 9}, {1, 1}, {-1, 1}, {2, 12}}, Poison::nan, 5);
  pool.plant(3, random_tree(random, 12, false));
  auto const view = pool.view();
  auto const bias = [](kvcache::ScoreAt at) {
    return 0.01F * static_cast<float>(at.query_head - at.row % 5 + at.token % 3);
  };
  for (AttentionShape const shape :
       {AttentionShape{.query_heads = 6, .kv_heads = 2},
        AttentionShape{
          .query_heads = 6, .kv_heads = 2, .scale = 0.5F, .soft_cap = 2.0F, .window = 5}}) {
    std::vector<float> const q = random_queries(query_floats(pool, shape), 5);
    for (int const members : {1, 3}) {
      Attended got{std::vector<float>(q.size(), 77.0F), std::vector<float>(q.size() / 24, 77.0F)};
      for (Index token = 0; token < pool.num_tokens(); ++token) {
        for (std::int32_t head = 0; head < shape.query_heads; ++head) {
          auto const row = static_cast<std::size_t>(token * shape.query_heads + head);
          for (int lane = 0; lane < members; ++lane) {
            got.lse[row] = kvcache::reference_attention(kvcache::Lanes{lane, members},
                                                        view,
                                                        shape,
                                                        1,
                                                        head,
                                                        token,
                                                        q.data() + row * 24,
                                                        got.out.data() + row * 24,
                                                        bias);
          }
        }
      }
      INFO(members << " members, window " << shape.window);
      CHECK(error_against_double(pool, shape, 1, q, got, {.bias = bias}) <= 1e-5);
    }
  }
}
