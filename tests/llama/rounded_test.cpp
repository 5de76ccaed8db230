// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "llama/ops.hpp"
#include "llama/rounded_rows.hpp"
#include "random_weights.hpp"
#include "support/catch.hpp"

using llama::RoundedRows;
using llama::WeightType;
using llama_test::all_kernels;
using llama_test::columns_for;
using llama_test::Matrix;
using llama_test::Random;

namespace {

/// One row, rounded by one set of kernels.
struct Rounded {
  Rounded(llama::Kernels const& kernels, std::vector<float> const& x, std::size_t n = 1)
      : q(x.size()),
        planes(2 * x.size()),
        scales(x.size() / 32),
        sums(x.size() / 32),
        cols(x.size() / n),
        many(n)
  {
    for (std::size_t t = 0; t < n; ++t) {
      std::size_t const at = t * cols;
      kernels.round(&x[at], cols, {&q[at], &planes[2 * at], &scales[t], &sums[t], n});
    }
  }

  [[nodiscard]] llama::RoundedView view() const
  {
    return {q.data(), planes.data(), scales.data(), sums.data(), cols, many};
  }

  std::vector<std::int16_t> q;
  std::vector<std::int8_t> planes;
  std::vector<float> scales;
  std::vector<float> sums;
  std::size_t cols;
  std::size_t many;
};

/// How far a product may be off because activations are rounded: half a scale times the weights' sizes.
double bound(double const* w, Rounded const& x, std::size_t row)
{
  double sum = 0;
  for (std::size_t i = 0; i < x.cols; ++i) {
    sum += std::fabs(w[i]) * static_cast<double>(x.scales[i / 32 * x.many + row]) / 2;
  }
  return sum;
}

constexpr WeightType block_types[] = {WeightType::q8_0,
                                      WeightType::q4_0,
                                      WeightType::q4_1,
                                      WeightType::q5_0,
                                      WeightType::q4_k,
                                      WeightType::q6_k};

}  // namespace

TEST_CASE("Rounded rows: each value is half a scale away at most, planes and sums are of it",
          "[llama][rounded]")
{
  unsigned const seed = 21;
  INFO("seed " << seed);
  Random random(seed);
  auto x = llama_test::random_floats(160, random);
  std::fill_n(x.begin() + 32, 32, 0.0f);
  std::fill_n(x.begin() + 64, 32, std::numeric_limits<float>::denorm_min());
  x[96] = 3e38f;
  x[97] = -3e38f;
  for (auto const* kernels : all_kernels()) {
    INFO(kernels->name);
    Rounded const rounded(*kernels, x);
    for (std::size_t b = 0; b < x.size() / 32; ++b) {
      double const scale = static_cast<double>(rounded.scales[b]);
      float largest = 0;
      double sum = 0;
      for (std::size_t i = 32 * b; i < 32 * b + 32; ++i) {
        double const back = scale * rounded.q[i];
        double const slack = 1e-6 * std::fabs(static_cast<double>(x[i])) + 1e-29;
        REQUIRE(std::fabs(back - static_cast<double>(x[i])) <= scale / 2 + slack);
        REQUIRE(std::abs(int{rounded.q[i]}) <= 32639);
        REQUIRE(256 * rounded.planes[32 * b + i] + rounded.planes[32 * b + i + 32] == rounded.q[i]);
        largest = std::max(largest, std::fabs(x[i]));
        sum += back;
      }
      CHECK(scale == kvcache_test::Approx(static_cast<double>(largest) / 32639).margin(1e-29));
      CHECK(static_cast<double>(rounded.sums[b]) ==
            kvcache_test::Approx(sum).margin(1e-6 * 32 * static_cast<double>(largest)));
    }
  }
}

TEST_CASE("Rounded rows: products stay within what rounding explains", "[llama][rounded]")
{
  unsigned const seed = 22;
  INFO("seed " << seed);
  Random random(seed);
  llama::Threads threads(2);
  double of_magnitude = 0;
  for (WeightType type : block_types) {
    for (std::size_t wanted : {32u, 96u, 544u, 1536u}) {
      std::size_t const cols = columns_for(type, wanted);
      for (std::size_t rows : {1u, 8u, 21u, 48u}) {
        Matrix const m = llama_test::random_matrix(type, rows, cols, random);
        for (std::size_t n : {1u, 2u, 7u, 17u}) {
          INFO("type " << static_cast<int>(type) << ", " << rows << " x " << cols << ", n " << n);
          std::vector<float> const x = llama_test::random_floats(n * cols, random);
          Rounded const by_hand(llama::kernels(), x, n);
          RoundedRows rounded;
          rounded.round(x.data(), cols, n, cols, threads);
          std::vector<float> y(n * (rows + 1), 99.0f);
          llama::Product const product{&m.weights, y.data(), rows + 1};
          llama::multiply({&product, 1}, rounded, threads);
          for (std::size_t t = 0; t < n; ++t) {
            for (std::size_t r = 0; r < rows; ++r) {
              double const* w = &m.values[r * cols];
              auto const exact = llama_test::exact_dot(w, &x[t * cols], cols);
              double const off = std::fabs(static_cast<double>(y[t * (rows + 1) + r]) - exact.sum);
              REQUIRE(off <= bound(w, by_hand, t) + 4e-6 * exact.magnitude);
              of_magnitude = std::max(of_magnitude, off / exact.magnitude);
            }
            CHECK(y[t * (rows + 1) + rows] == 99.0f);  // the gap between rows is not written
          }
        }
      }
    }
  }
  CHECK(of_magnitude <= 1e-4);
}

TEST_CASE("Rounded rows: one row and many rows give the same bits", "[llama][rounded]")
{
  unsigned const seed = 23;
  INFO("seed " << seed);
  Random random(seed);
  for (auto const* kernels : all_kernels()) {
    for (WeightType type : block_types) {
      std::size_t const cols = columns_for(type, 800);
      std::size_t const rows = 149;
      Matrix const m = llama_test::random_matrix(type, rows, cols, random);
      llama::EncodedRows const w{type, m.bytes.data(), rows, cols};
      std::size_t const n = 45;  // tiles of every size: 16 tokens, 12, 4, 3 and 1
      Rounded const x(*kernels, llama_test::random_floats(n * cols, random), n);
      std::vector<float> many(n * (rows + 1), 99.0f);
      kernels->rounded_times_many(w, x.view(), n, {many.data(), rows + 1});
      for (std::size_t t = 0; t < n; ++t) {
        std::vector<float> one(rows);
        kernels->rounded_times_one(w, x.view().from(t), one.data());
        INFO(kernels->name << ", type " << static_cast<int>(type) << ", row " << t);
        auto const from = many.begin() + static_cast<long>(t * (rows + 1));
        CHECK(std::equal(one.begin(), one.end(), from));
        CHECK(from[rows] == 99.0f);  // the gap between rows is not written
      }
    }
  }
}

TEST_CASE("Rounded rows: all kernels agree", "[llama][rounded]")
{
  unsigned const seed = 24;
  INFO("seed " << seed);
  Random random(seed);
  llama::Kernels const& portable = llama::portable_kernels();
  for (WeightType type : block_types) {
    std::size_t const cols = columns_for(type, 512);
    Matrix const m = llama_test::random_matrix(type, 24, cols, random);
    llama::EncodedRows const w{type, m.bytes.data(), 24, cols};
    Rounded const x(portable, llama_test::random_floats(cols, random));
    std::vector<float> expected(24);
    portable.rounded_times_one(w, x.view(), expected.data());
    for (auto const* kernels : all_kernels()) {
      std::vector<float> y(24);
      kernels->rounded_times_one(w, x.view(), y.data());
      for (std::size_t r = 0; r < y.size(); ++r) {
        INFO(kernels->name << ", type " << static_cast<int>(type) << ", row " << r);
        CHECK(y[r] == kvcache_test::Approx(expected[r]).epsilon(1e-4).margin(1e-2));
      }
    }
  }
}
