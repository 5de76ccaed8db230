// SPDX-License-Identifier: Apache-2.0
// The plain functor against double precision, alone and as a team.

#include <kvcache/attention/reference.hpp>
#include <kvcache/core/dtype.hpp>

#include <cmath>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/catch.hpp"
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
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  PagedPool<PagedHeads<kvcache::half>> pool(
    geometry, {37, 8}, {{0, 9}, {1, 1}, {-1, 1}}, Poison::nan, 5);
  std::vector<float> const q = random_queries(query_floats(pool, shape), 5);
  auto const view = pool.view();
  float const scale = 1.0F / std::sqrt(24.0F);
  for (int const members : {1, 3}) {
    Attended got{std::vector<float>(q.size(), 77.0F), std::vector<float>(q.size() / 24, 77.0F)};
    for (Index token = 0; token < pool.num_tokens(); ++token) {
      for (std::int32_t head = 0; head < shape.query_heads; ++head) {
        auto const row = static_cast<std::size_t>(token * shape.query_heads + head);
        for (int lane = 0; lane < members; ++lane) {
          got.lse[row] = kvcache::reference_attention(kvcache::Lanes{lane, members},
                                                      view,
                                                      1,
                                                      head / shape.group(),
                                                      token,
                                                      scale,
                                                      q.data() + row * 24,
                                                      got.out.data() + row * 24);
        }
      }
    }
    INFO(members << " members");
    CHECK(error_against_double(pool, shape, 1, q, got) <= 1e-5);
  }
}
