// SPDX-License-Identifier: Apache-2.0
// Contexts of up to four million rows: the error does not grow with them.

#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::bfloat16;
using kvcache::Geometry;
using kvcache::Index;
using Pool = PagedPool<kvcache::PagedHeads<bfloat16>>;

namespace {

constexpr std::uint64_t seed = 20261130;
constexpr double bound = 2e-6;  // attend.hpp
constexpr Index period = 1024;  // rows that differ

struct Errors {
  double out = 0;  // relative to sum(w |v|)
  double lse = 0;
};

/// Of the one token of `pool`, whose rows are the first `period` again and again.
Errors errors(Pool const& pool,
              AttentionShape shape,
              Index rows,
              std::vector<float> const& q,
              Attended const& got)
{
  auto const dim = static_cast<std::size_t>(pool.geometry().head_dim);
  Errors worst;
  for (std::size_t h = 0; h < static_cast<std::size_t>(shape.query_heads); ++h) {
    std::vector<double> out(dim);
    std::vector<double> size(dim);
    double sum = 0;
    for (Index i = 0; i < std::min(period, rows); ++i) {
      double x = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        x += double{q[h * dim + d]} * double{pool.key(0, 0, 0, i)[d]};
      }
      auto const times = static_cast<double>(rows / period + (i < rows % period ? 1 : 0));
      double const w = times * std::exp(x / std::sqrt(static_cast<double>(dim)));
      sum += w;
      for (std::size_t d = 0; d < dim; ++d) {
        double const v{pool.value(0, 0, 0, i)[d]};
        out[d] += w * v;
        size[d] += w * std::abs(v);
      }
    }
    for (std::size_t d = 0; d < dim; ++d) {
      double const error = std::abs(out[d] / sum - double{got.out[h * dim + d]}) * sum / size[d];
      worst.out = error <= worst.out ? worst.out : error;
    }
    double const error = std::abs(std::log(sum) - double{got.lse[h]});
    worst.lse = error <= worst.lse ? worst.lse : error;
  }
  return worst;
}

}  // namespace

TEST_CASE("attend: the error of a sum over four million rows is that over a thousand",
          "[attention][numbers]")
{
  bool const few = cases_of(4) == 1;  // with sanitizers
  Errors most;
  for (std::int32_t const dim : {8, 128}) {
    Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = dim, .page_tokens = 64};
    for (bool const equal :
         {false, true}) {  // random rows; or all the same, whose roundings have one sign
      for (Index const rows : {1000, 10'001, 131'072, 4'000'000}) {
        // The longest where roundings add up most; 128 numbers wide up to where that is soon done.
        if (rows > (few ? 20'000 : dim == 128 ? 200'000 : equal ? rows : 200'000)) {
          continue;
        }
        // Sixteen rows are a group.
        AttentionShape const shape{.query_heads = rows > 20'000 ? 1 : 17, .kv_heads = 1};
        Pool pool(geometry, {period}, {{0, 1}}, Poison::nan, seed);
        for (Index i = 0; equal && i < period; ++i) {
          pool.put(0, 0, 0, i, 0.25F, 0x1.9ap-4F);  // a tenth in bfloat16
        }
        pool.repeat(rows);
        std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
        for (kvcache::AttentionOptions const options :
             {kvcache::AttentionOptions{.workers = 1},
              kvcache::AttentionOptions{.workers = 64},
              kvcache::AttentionOptions{.workers = 2, .split_rows = 32}}) {
          for (Path const path : paths()) {
            INFO(name(path) << ", head_dim " << dim << ", rows " << rows << ", equal " << equal
                            << ", workers " << options.workers << ", split_rows "
                            << options.split_rows);
            Errors const error =
              errors(pool, shape, rows, q, run(pool, shape, options, 0, q, path));
            CHECK(error.out <= bound);
            CHECK(error.lse <= 5e-6);
            most.out = std::max(most.out, error.out);
            most.lse = std::max(most.lse, error.lse);
          }
        }
      }
    }
  }
  std::printf(
    "attend: long sums, worst error %.2g of sum(w |v|), of the log %.2g\n", most.out, most.lse);
}

TEST_CASE("attend: over a long context too, a row has the same bits in any chunk",
          "[attention][numbers]")
{
  // A window that begins between two multiples of 512 rows, and company that begins before it.
  AttentionShape const shape{.query_heads = 17, .kv_heads = 1, .window = 1500};
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 24, .page_tokens = 16};
  constexpr Index length = 2600;
  Pool whole(geometry, {length}, {{0, 700}}, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(whole, shape), seed);
  for (Path const path : paths()) {
    for (Index const split : {0, 1024}) {
      Attended const right = run(whole, shape, {.split_rows = split}, 0, q, path);
      for (Index const tokens : {1, 3}) {
        INFO(name(path) << ", " << tokens << " tokens, split_rows " << split);
        Pool part(geometry, {length}, {{0, tokens}}, Poison::nan, seed);
        std::vector<float> const some(q.end() - std::ptrdiff_t{17} * 24 * tokens, q.end());
        Attended const got = run(part, shape, {.split_rows = split}, 0, some, path);
        CHECK(std::equal(
          got.out.begin(), got.out.end(), right.out.end() - std::ptrdiff_t{17} * 24 * tokens));
        CHECK(std::equal(
          got.lse.begin(), got.lse.end(), right.lse.end() - std::ptrdiff_t{17} * tokens));
      }
    }
  }
}
