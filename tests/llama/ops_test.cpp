// SPDX-License-Identifier: Apache-2.0
#include "llama/ops.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "llama/ops_kernels.hpp"
#include "support/catch.hpp"

namespace {

using llama::Weights;
using llama::WeightType;
using Random = std::mersenne_twister_engine<std::uint32_t,
                                            32,
                                            624,
                                            397,
                                            31,
                                            0x9908b0df,
                                            11,
                                            0xffffffff,
                                            7,
                                            0x9d2c5680,
                                            15,
                                            0xefc60000,
                                            18,
                                            1812433253>;

constexpr WeightType all_types[] = {WeightType::f32,
                                    WeightType::f16,
                                    WeightType::bf16,
                                    WeightType::q8_0,
                                    WeightType::q4_0,
                                    WeightType::q4_1};

std::vector<llama::Kernels const*> all_kernels()
{
  std::vector<llama::Kernels const*> all{&llama::portable_kernels()};
  if (llama::avx2_kernels() != nullptr) {
    all.push_back(llama::avx2_kernels());
  }
  return all;
}

/// Encoded random weights, and the values that the format's definition gives them, in double precision.
struct Matrix {
  std::vector<std::byte> bytes;
  std::vector<double> values;
  Weights weights;
};

void put(std::vector<std::byte>& out, void const* from, std::size_t bytes)
{
  auto const* first = static_cast<std::byte const*>(from);
  out.insert(out.end(), first, first + bytes);
}

/// A half with the given exponent, and its value by the definition of the format.
std::uint16_t random_half(Random& random, double& value)
{
  unsigned const fraction = random() & 1023u;
  unsigned const exponent = 8u + random() % 6u;
  bool const negative = random() % 2 == 0;
  value = std::ldexp(1024.0 + fraction, static_cast<int>(exponent) - 25) * (negative ? -1 : 1);
  return static_cast<std::uint16_t>((negative ? 0x8000u : 0u) | exponent << 10 | fraction);
}

Matrix random_matrix(WeightType type, std::size_t rows, std::size_t cols, Random& random)
{
  Matrix m;
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < rows * cols; ++i) {
    double value = 0;
    if (type == WeightType::f32) {
      float const f = normal(random);
      put(m.bytes, &f, 4);
      m.values.push_back(static_cast<double>(f));
    } else if (type == WeightType::f16) {
      std::uint16_t const h = random_half(random, value);
      put(m.bytes, &h, 2);
      m.values.push_back(value);
    } else if (type == WeightType::bf16) {
      float f = normal(random);
      std::uint32_t bits;
      std::memcpy(&bits, &f, 4);
      auto const high = static_cast<std::uint16_t>(bits >> 16);
      bits &= 0xffff0000u;
      std::memcpy(&f, &bits, 4);
      put(m.bytes, &high, 2);
      m.values.push_back(static_cast<double>(f));
    } else if (i % 32 == 0) {
      double d = 0;
      std::uint16_t const hd = random_half(random, d);
      put(m.bytes, &hd, 2);
      if (type == WeightType::q8_0) {
        for (int k = 0; k < 32; ++k) {
          auto const q = static_cast<std::int8_t>(random() % 256u - 128u);
          put(m.bytes, &q, 1);
          m.values.push_back(d * q);
        }
      } else {
        double lowest = -8 * d;
        if (type == WeightType::q4_1) {
          std::uint16_t const hm = random_half(random, lowest);
          put(m.bytes, &hm, 2);
        }
        std::uint8_t pairs[16];
        for (auto& pair : pairs) {
          pair = static_cast<std::uint8_t>(random());
        }
        put(m.bytes, pairs, 16);
        for (int k = 0; k < 32; ++k) {
          int const q = k < 16 ? pairs[k] % 16 : pairs[k - 16] / 16;
          m.values.push_back(d * q + lowest);
        }
      }
    }
  }
  m.weights = {m.bytes.data(), rows, cols, type};
  return m;
}

std::vector<float> random_floats(std::size_t n, Random& random)
{
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  std::generate(out.begin(), out.end(), [&] { return normal(random); });
  return out;
}

/// The sum and the sum of magnitudes: rounding errors are a share of the latter.
std::pair<double, double> exact_dot(double const* w, float const* x, std::size_t cols)
{
  double sum = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < cols; ++i) {
    sum += w[i] * static_cast<double>(x[i]);
    magnitude += std::fabs(w[i] * static_cast<double>(x[i]));
  }
  return {sum, magnitude};
}

std::size_t columns_for(WeightType type, std::size_t wanted)
{
  bool const blocks = type >= WeightType::q8_0;
  return blocks ? (wanted + 31) / 32 * 32 : wanted;
}

}  // namespace

TEST_CASE("ops: halves of every bit pattern decode by the definition", "[llama][ops]")
{
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
  }
  std::vector<float> out(halves.size());
  for (auto const* kernels : all_kernels()) {
    INFO(kernels->name);
    kernels->decode(WeightType::f16,
                    reinterpret_cast<std::byte const*>(halves.data()),
                    halves.size(),
                    out.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < halves.size(); ++i) {
      int const exponent = static_cast<int>(i >> 10 & 31u);
      double const fraction = static_cast<double>(i & 1023u);
      double value =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
      bool const nan = exponent == 31 && fraction != 0;
      if (exponent == 31) {
        value = std::numeric_limits<double>::infinity();
      }
      value = i >= 32768 ? -value : value;
      bool const good =
        nan ? std::isnan(out[i])
            : static_cast<double>(out[i]) == value && std::signbit(out[i]) == (i >= 32768);
      wrong += good ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("ops: decoded weights are those of the format's definition", "[llama][ops]")
{
  unsigned const seed = 11;
  INFO("seed " << seed);
  Random random(seed);
  for (WeightType type : all_types) {
    for (std::size_t wanted : {1u, 7u, 8u, 31u, 32u, 96u, 577u}) {
      std::size_t const cols = columns_for(type, wanted);
      Matrix const m = random_matrix(type, 3, cols, random);
      REQUIRE(m.bytes.size() == 3 * llama::row_bytes(type, cols));
      for (auto const* kernels : all_kernels()) {
        INFO(kernels->name << ", type " << static_cast<int>(type) << ", " << cols << " columns");
        std::vector<float> out(cols + llama::pad_floats, 5.0f);
        kernels->decode(type, m.bytes.data() + llama::row_bytes(type, cols), cols, out.data());
        double worst = 0;
        for (std::size_t i = 0; i < cols; ++i) {
          double const wanted_value = m.values[cols + i];
          worst = std::max(worst, std::fabs(static_cast<double>(out[i]) - wanted_value));
        }
        // Only d q + m rounds, and at most twice; every value here is below 16.
        CHECK(worst <= (type >= WeightType::q8_0 ? 4e-6 : 0.0));
        for (std::size_t i = cols; i % llama::pad_floats != 0; ++i) {
          CHECK(out[i] == 0.0f);
        }
      }
      std::vector<float> row(cols);
      llama::decode_row(m.weights, 2, row.data());
      for (std::size_t i = 0; i < cols; ++i) {
        REQUIRE(row[i] == kvcache_test::Approx(m.values[2 * cols + i]).epsilon(1e-5).margin(4e-6));
      }
    }
  }
}

TEST_CASE("ops: products agree with double precision for every type and shape", "[llama][ops]")
{
  unsigned const seed = 12;
  INFO("seed " << seed);
  Random random(seed);
  llama::Threads threads(2);
  for (WeightType type : all_types) {
    for (std::size_t wanted : {5u, 32u, 100u, 576u}) {
      std::size_t const cols = columns_for(type, wanted);
      for (std::size_t rows : {1u, 3u, 16u, 45u}) {
        Matrix const a = random_matrix(type, rows, cols, random);
        Matrix const b = random_matrix(type, 2 * rows + 1, cols, random);
        for (std::size_t n : {1u, 2u, 3u, 7u, 12u}) {
          INFO("type " << static_cast<int>(type) << ", " << rows << " x " << cols << ", n " << n);
          std::size_t const x_stride = cols + 3;
          std::vector<float> const x = random_floats(n * x_stride, random);
          std::size_t const strides[] = {rows + 2, 2 * rows + 1};
          std::vector<float> ya(n * strides[0], 99.0f);
          std::vector<float> yb(n * strides[1], 99.0f);
          llama::Product const products[] = {{&a.weights, ya.data(), strides[0]},
                                             {&b.weights, yb.data(), strides[1]}};
          llama::multiply(products, x.data(), x_stride, n, threads);
          double worst = 0;
          for (std::size_t t = 0; t < n; ++t) {
            for (std::size_t r = 0; r < 3 * rows + 1; ++r) {
              bool const first = r < rows;
              double const* w = first ? &a.values[r * cols] : &b.values[(r - rows) * cols];
              float const got = first ? ya[t * strides[0] + r] : yb[t * strides[1] + r - rows];
              auto const [sum, magnitude] = exact_dot(w, &x[t * x_stride], cols);
              worst = std::max(worst, std::fabs(static_cast<double>(got) - sum) / magnitude);
            }
            CHECK(ya[t * strides[0] + rows] == 99.0f);  // the gap between rows is not written
          }
          CHECK(worst <= 2e-6);
        }
      }
    }
  }
}

TEST_CASE("ops: one row and many rows give the same bits", "[llama][ops]")
{
  unsigned const seed = 13;
  INFO("seed " << seed);
  Random random(seed);
  for (auto const* kernels : all_kernels()) {
    for (WeightType type : all_types) {
      std::size_t const cols = columns_for(type, 203);
      std::size_t const rows = 21;
      Matrix const m = random_matrix(type, rows, cols, random);
      std::size_t const stride = (cols + 7) / 8 * 8;
      std::vector<float> decoded(rows * stride);
      for (std::size_t r = 0; r < rows; ++r) {
        kernels->decode(type,
                        m.bytes.data() + r * llama::row_bytes(type, cols),
                        cols,
                        decoded.data() + r * stride);
      }
      std::size_t const n = 8;
      std::vector<float> const x = random_floats(n * cols, random);
      std::vector<float> many(n * rows);
      kernels->times_many(
        {decoded.data(), stride}, rows, cols, {x.data(), cols}, n, many.data(), rows);
      for (std::size_t t = 0; t < n; ++t) {
        std::vector<float> one(rows);
        kernels->times_one(type, m.bytes.data(), rows, cols, &x[t * cols], one.data());
        INFO(kernels->name << ", type " << static_cast<int>(type) << ", row " << t);
        CHECK(std::equal(one.begin(), one.end(), many.begin() + static_cast<long>(t * rows)));
      }
    }
  }
}

TEST_CASE("ops: blocks written by ggml decode to what ggml decodes", "[llama][ops][data]")
{
  auto const read = [](std::filesystem::path const& path) {
    std::ifstream in(path, std::ios::binary);
    std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
    std::vector<std::byte> bytes(chars.size());
    std::transform(
      chars.begin(), chars.end(), bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
    return bytes;
  };
  std::filesystem::path const folder =
    std::filesystem::path(KVCACHE_TEST_DATA_DIR) / "vectors" / "ggml-blocks";
  struct Case {
    char const* name;
    WeightType type;
  };
  std::size_t files = 0;
  for (Case const& c : {Case{"q4_1", WeightType::q4_1},
                        Case{"q4_0", WeightType::q4_0},
                        Case{"q8_0", WeightType::q8_0},
                        Case{"f16", WeightType::f16},
                        Case{"bf16", WeightType::bf16}}) {
    for (char const* tensor : {"K0", "K4", "V0", "V4"}) {
      std::string const stem = std::string(tensor) + "." + c.name;
      auto const blocks = read(folder / (stem + ".blk"));
      auto const values = read(folder / (stem + ".f32"));
      if (blocks.empty() || values.empty()) {
        continue;
      }
      ++files;
      std::size_t const count = values.size() / 4;
      REQUIRE(blocks.size() == llama::row_bytes(c.type, count));
      for (auto const* kernels : all_kernels()) {
        INFO(stem << ", " << kernels->name);
        std::vector<float> out(count + llama::pad_floats);
        kernels->decode(c.type, blocks.data(), count, out.data());
        double worst = 0;
        for (std::size_t i = 0; i < count; ++i) {
          float const wanted = llama::load<float>(values.data() + 4 * i);
          double const miss = std::fabs(static_cast<double>(out[i]) - static_cast<double>(wanted));
          worst = std::max(worst, miss / (1e-3 + std::fabs(static_cast<double>(wanted))));
        }
        CHECK(worst <= 1e-4);  // ggml rounds d q before it adds m, we do not
      }
    }
  }
  if (files == 0) {
    std::cout << "ggml's blocks are not here (" << folder.string() << "): that part was not run\n";
  }
  // The same by hand: d = 0.5, m = -1, so the nibbles 3 and 15 mean 0.5 and 6.5.
  std::vector<std::byte> block(llama::q4_1_bytes, std::byte{0xf3});
  block[0] = std::byte{0x00};
  block[1] = std::byte{0x38};
  block[2] = std::byte{0x00};
  block[3] = std::byte{0xbc};
  for (auto const* kernels : all_kernels()) {
    float out[32];
    kernels->decode(WeightType::q4_1, block.data(), 32, out);
    CHECK(out[0] == 0.5f);
    CHECK(out[15] == 0.5f);
    CHECK(out[16] == 6.5f);
    CHECK(out[31] == 6.5f);
  }
}
