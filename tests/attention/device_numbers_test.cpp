// SPDX-License-Identifier: Apache-2.0
// Rows that a bias leaves out, on the device.

#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "attention/attention_checks.hpp"
#include "attention/device_checks.hpp"
#include "support/catch.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using Pool = PagedPool<kvcache::PagedHeads<kvcache::half>>;

namespace {

constexpr std::uint64_t seed = 20261130;

/// Rows `every` - 1, 2 `every` - 1, .. are left out by `out`.
struct LeavesOut {
  Index every;
  float out;
  KVCACHE_HOST_DEVICE float operator()(kvcache::ScoreAt at) const
  {
    return at.row % every == every - 1 ? out : 0.0F;
  }
};

}  // namespace

TEST_CASE(
  "AttendKernel: a bias as low as floats go leaves a row out, whatever its K and V, and of no row "
  "0",
  "[attention][device_attend][numbers]")
{
  float const infinity = std::numeric_limits<float>::infinity();
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 4, .kv_heads = 1};
  // A narrow item and a wide one, cut and whole.
  for (Index const tokens : {1, 9}) {
    for (std::int32_t const blocks : {1, 4}) {
      for (float const out : {-infinity, -std::numeric_limits<float>::max(), -0x1.fep127F}) {
        INFO("tokens " << tokens << ", blocks " << blocks << ", out " << out);
        Pool pool(geometry, {150}, {{0, tokens}}, Poison::nan, seed);
        std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
        auto const run = [&](Index every) {
          return run_on_device<64, float, float>(
            pool, shape, 0, q, limits_of(pool, blocks), {}, LeavesOut{every, out});
        };
        Attended const clean = run(5);
        auto const bias = [&](kvcache::ScoreAt at) {
          return at.row % 5 == 4 ? -std::numeric_limits<double>::infinity() : 0.0;
        };
        CHECK(error_against_double(pool, shape, 0, q, clean, {.bias = bias}) <= 1e-3);
        float const nan = std::numeric_limits<float>::quiet_NaN();
        float const pairs[][2] = {{nan, 0.5F}, {0.5F, nan}, {nan, nan}, {infinity, -infinity}};
        for (auto const& [k, v] : pairs) {
          for (Index row = 4; row < 150; row += 5) {
            pool.put(0, 0, 0, row, k, v);
          }
          INFO("K " << k << ", V " << v);
          CHECK(same_bits(run(5), clean));
        }
        CHECK_FALSE(same_bits(run(7), clean));  // which sees some of them
        Attended const none = run(1);
        CHECK(std::all_of(none.out.begin(), none.out.end(), [](float x) { return x == 0.0F; }));
        CHECK(
          std::all_of(none.lse.begin(), none.lse.end(), [&](float x) { return x == -infinity; }));
      }
    }
  }
}

TEST_CASE("AttendKernel: the error over 65,536 rows is that over a thousand",
          "[attention][device_attend][numbers]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 64};
  AttentionShape const shape{.query_heads = 2, .kv_heads = 1};
  constexpr Index period = 1024;
  for (bool const equal : {false, true}) {  // or all rows the same, whose roundings have one sign
    for (Index const rows : {1024, 65'536}) {
      for (std::int32_t const blocks : {1, 4}) {
        Pool pool(geometry, {period}, {{0, 1}}, Poison::nan, seed);
        for (Index i = 0; equal && i < period; ++i) {
          pool.put(0, 0, 0, i, 0.25F, 0x1.998p-4F);  // a tenth in half
        }
        std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
        pool.repeat(rows);
        Attended got = run_on_device<64, float, float>(pool, shape, 0, q, limits_of(pool, blocks));
        for (float& log : got.lse) {  // of a sum of the same weights, so many times
          log -= std::log(static_cast<float>(rows / period));
        }
        pool.repeat(period);
        double const error = error_against_double(pool, shape, 0, q, got);
        INFO("rows " << rows << ", blocks " << blocks << ", equal " << equal);
        CHECK(error <= 1e-4);
        std::printf("AttendKernel: %d rows, %d blocks, %s: error %.2g\n",
                    rows,
                    blocks,
                    equal ? "equal" : "random",
                    error);
      }
    }
  }
}
