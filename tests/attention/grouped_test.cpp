// SPDX-License-Identifier: Apache-2.0
// Query rows by number, from one to more than two items hold: a row must not show in whose company it met a block.

#include <kvcache/core/dtype.hpp>

#include <cstdint>
#include <random>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/engine_types.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;

namespace {

constexpr std::uint64_t seed = 20261131;
constexpr double tolerance = 1e-5;

/// `rows` query heads on each of two KV heads, one token: together against double, then each alone, bit for bit.
template <class T>
void check(char const* type, std::int32_t rows, std::mt19937_64& random, WorstErrors& worst)
{
  static constexpr std::int32_t dims[] = {8, 16, 24, 40, 64, 72, 96, 128, 200, 256};
  Geometry const geometry{.layers = 1,
                          .kv_heads = 2,
                          .head_dim = dims[random() % std::size(dims)],
                          .page_tokens = static_cast<std::int32_t>(1 + random() % 40)};
  auto const length = static_cast<Index>(1 + random() % 110);
  PagedPool<PagedHeads<T>> pool(geometry, {length}, {{0, 1}}, Poison::nan, random());
  AttentionShape shape{.query_heads = 2 * rows,
                       .kv_heads = 2,
                       .soft_cap = random() % 3 == 0 ? 3.0F : 0.0F,
                       .window = random() % 3 == 0 ? static_cast<Index>(1 + random() % 70) : 0};
  std::vector<float> const q = random_queries(query_floats(pool, shape), random());
  auto const dim = static_cast<std::size_t>(geometry.head_dim);
  auto const group = static_cast<std::size_t>(rows);
  for (Path const path : paths()) {
    INFO(name(path) << ", " << rows << " rows, " << type << ", head_dim " << dim << ", page_tokens "
                    << geometry.page_tokens << ", length " << length << ", soft_cap "
                    << shape.soft_cap << ", window " << shape.window << ", seed " << seed);
    Attended const got = run(pool, shape, {}, 0, q, path);
    double const error = error_against_double(pool, shape, 0, q, got);
    CHECK(error <= tolerance);
    worst.add(path, error);
    AttentionShape one = shape;
    one.query_heads = 2;
    int differ = 0;
    for (std::size_t i = 0; i < group; ++i) {
      Attended pair;
      std::vector<float> own;
      for (std::size_t const row : {i, group + i}) {
        own.insert(own.end(), &q[row * dim], &q[row * dim] + dim);
        pair.out.insert(pair.out.end(), &got.out[row * dim], &got.out[row * dim] + dim);
        pair.lse.push_back(got.lse[row]);
      }
      differ += same_bits(pair, run(pool, one, {}, 0, own, path)) ? 0 : 1;
    }
    CHECK(differ == 0);
  }
}

}  // namespace

TEST_CASE("attend: a query row has the same bits alone and with any number of others",
          "[attention][grouped]")
{
  std::mt19937_64 random(seed);
  WorstErrors worst;
  constexpr int most = 72;
  int const cases = cases_of(4 * most);
  for (int i = 0; i < cases; ++i) {
    int const rows = 1 + i % most;
    switch ((i + i / most) % 4) {  // all types of each number, or one of each first
      case 0:
        check<float>("f32", rows, random, worst);
        break;
      case 1:
        check<kvcache::half>("f16", rows, random, worst);
        break;
      case 2:
        check<kvcache::bfloat16>("bf16", rows, random, worst);
        break;
      default:
        check<engine::Bf16>("engine::Bf16", rows, random, worst);
    }
  }
  REQUIRE(worst.report("numbers of query rows", cases, seed));
}
