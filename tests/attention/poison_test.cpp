// SPDX-License-Identifier: Apache-2.0
// Rows past the end, whatever their bytes, never reach a result (faults B-085).

#include <kvcache/core/dtype.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/catch.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::bfloat16;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;

namespace {

constexpr std::uint64_t seed = 85;
AttentionShape const shape{.query_heads = 4, .kv_heads = 2};

/// The broken twin: reads whole pages, masks the logits of dead rows, and trusts 0 * V to be 0.
template <class Layout>
std::vector<float> masks_keys_only(PagedPool<Layout>& pool, std::vector<float> const& q)
{
  kvcache::BatchView<Layout> const view = pool.view();
  auto const dim = static_cast<std::size_t>(pool.geometry().head_dim);
  std::vector<float> out(q.size(), 0.0F);
  for (Index token = 0; token < pool.num_tokens(); ++token) {
    for (std::int32_t head = 0; head < shape.query_heads; ++head) {
      std::size_t const at = static_cast<std::size_t>(token * shape.query_heads + head) * dim;
      float sum = 0.0F;
      for (auto const tile : view.tiles(0, head / shape.group(), token)) {
        for (Index r = 0; r < pool.geometry().page_tokens; ++r) {
          float dot = 0.0F;
          for (std::size_t d = 0; d < dim; ++d) {
            dot += q[at + d] * tile.key(r, static_cast<std::int32_t>(d));
          }
          float const p = r < tile.rows() ? std::exp(dot) : 0.0F;
          sum += p;
          for (std::size_t d = 0; d < dim; ++d) {
            out[at + d] += p * tile.value(r, static_cast<std::int32_t>(d));
          }
        }
      }
      for (std::size_t d = 0; d < dim; ++d) {
        out[at + d] /= sum;
      }
    }
  }
  return out;
}

bool all_finite(std::vector<float> const& values)
{
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace

TEST_CASE("attend: dead rows of any bytes leave the bits of a zeroed pool",
          "[attention][poison][B-085]")
{
  for (std::int32_t const dim : {8, 64, 72}) {
    Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = dim, .page_tokens = 4};
    for (Index const length : {1, 4, 5, 8}) {
      for (Index const tokens : {Index{1}, length}) {
        PagedPool<PagedHeads<bfloat16>> clean(
          geometry, {length}, {{0, tokens}}, Poison::zeros, seed);
        std::vector<float> const q = random_queries(query_floats(clean, shape), seed);
        for (Poison const poison : {Poison::nan, Poison::infinity, Poison::ones}) {
          PagedPool<PagedHeads<bfloat16>> dirty(geometry, {length}, {{0, tokens}}, poison, seed);
          for (Path const path : paths()) {
            INFO(name(poison) << ", length " << length << ", tokens " << tokens << ", head_dim "
                              << dim << ", " << name(path));
            Attended const right = run(clean, shape, {}, 0, q, path);
            Attended const got = run(dirty, shape, {}, 0, q, path);
            CHECK(all_finite(got.out));
            CHECK(same_bits(right, got));
          }
          // The same check sees the twin wherever a page has a dead row.
          std::vector<float> const twin = masks_keys_only(dirty, q);
          CHECK(all_finite(twin) == (length % 4 == 0));
        }
        CHECK(all_finite(masks_keys_only(clean, q)));
      }
    }
  }
}

TEST_CASE("attend: a row behind the causal edge never reaches an earlier token",
          "[attention][poison]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  constexpr Index length = 40;
  constexpr Index tokens = 23;
  constexpr Index bad_index = 30;  // inside a block of 16
  PagedPool<PagedHeads<bfloat16>> clean(geometry, {length}, {{0, tokens}}, Poison::nan, seed);
  PagedPool<PagedHeads<bfloat16>> dirty(geometry, {length}, {{0, tokens}}, Poison::nan, seed);
  float const nan = std::numeric_limits<float>::quiet_NaN();
  dirty.put(0, 0, 0, bad_index, nan, nan);
  dirty.put(0, 0, 1, bad_index, nan, nan);
  std::vector<float> const q = random_queries(query_floats(clean, shape), seed);
  auto const before = static_cast<std::ptrdiff_t>((bad_index - (length - tokens)) *
                                                  shape.query_heads * geometry.head_dim);
  for (Path const path : paths()) {
    INFO(name(path));
    std::vector<float> const right = run(clean, shape, {}, 0, q, path).out;
    std::vector<float> const got = run(dirty, shape, {}, 0, q, path).out;
    CHECK(std::equal(got.begin(), got.begin() + before, right.begin()));
    CHECK(std::none_of(got.begin() + before, got.end(), [](float x) { return std::isfinite(x); }));
  }
}

TEST_CASE("attend: a logit of minus infinity weighs nothing", "[attention][poison]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 16, .page_tokens = 4};
  float const infinity = std::numeric_limits<float>::infinity();
  for (Index const bad_rows : {1, 16, 20}) {  // one row; a whole first block; more
    PagedPool<PagedHeads<bfloat16>> pool(geometry, {24}, {{0, 1}}, Poison::nan, seed);
    for (Index i = 0; i < bad_rows; ++i) {
      pool.put(0, 0, 0, i, -infinity, 0.5F);
      pool.put(0, 0, 1, i, -infinity, 0.5F);
    }
    std::vector<float> const q(query_floats(pool, shape), 0.25F);
    for (Path const path : paths()) {
      INFO(bad_rows << " rows, " << name(path));
      Attended const got = run(pool, shape, {}, 0, q, path);
      CHECK(all_finite(got.out));
      CHECK(error_against_double(pool, shape, 0, q, got) <= 1e-5);
    }
  }
}

TEST_CASE("attend: padding gets zeros and minus infinity", "[attention][poison]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 24, .page_tokens = 4};
  PagedPool<PagedHeads<bfloat16>> pool(geometry, {6}, {{0, 2}, {-1, 5}}, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  auto const padded = static_cast<std::ptrdiff_t>(2 * shape.query_heads);
  for (Path const path : paths()) {
    Attended const got = run(pool, shape, {}, 0, q, path);
    INFO(name(path));
    CHECK(std::all_of(got.out.begin() + padded * geometry.head_dim, got.out.end(), [](float x) {
      return x == 0.0F;
    }));
    CHECK(std::all_of(got.lse.begin() + padded, got.lse.end(), [](float x) {
      return x == -std::numeric_limits<float>::infinity();
    }));
    CHECK(all_finite(got.out));
  }
}
