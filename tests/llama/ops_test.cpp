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
#include <string>
#include <vector>

#include "llama/ops_kernels.hpp"
#include "random_weights.hpp"
#include "support/catch.hpp"

using llama::WeightType;
using llama_test::all_kernels;
using llama_test::all_types;
using llama_test::columns_for;
using llama_test::exact_dot;
using llama_test::Matrix;
using llama_test::Random;
using llama_test::random_floats;
using llama_test::random_matrix;

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
        double largest = 0;
        for (std::size_t i = 0; i < cols; ++i) {
          double const wanted_value = m.values[cols + i];
          worst = std::max(worst, std::fabs(static_cast<double>(out[i]) - wanted_value));
          largest = std::max(largest, std::fabs(wanted_value));
        }
        // Only d q + m rounds, and at most twice.
        CHECK(worst <= (llama::has_blocks(type) ? 2.5e-7 * std::max(16.0, largest) : 0.0));
        for (std::size_t i = cols; i % llama::pad_floats != 0; ++i) {
          CHECK(out[i] == 0.0f);
        }
      }
      std::vector<float> row(cols);
      llama::decode_row(m.weights, 2, row.data());
      for (std::size_t i = 0; i < cols; ++i) {
        REQUIRE(row[i] == kvcache_test::Approx(m.values[2 * cols + i]).epsilon(1e-5).margin(1e-4));
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
              auto const dot = exact_dot(w, &x[t * x_stride], cols);
              worst =
                std::max(worst, std::fabs(static_cast<double>(got) - dot.sum) / dot.magnitude);
            }
            CHECK(ya[t * strides[0] + rows] == 99.0f);  // the gap between rows is not written
          }
          CHECK(worst <= 2e-6);
        }
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
                        Case{"q5_0", WeightType::q5_0},
                        Case{"q4_K", WeightType::q4_k},
                        Case{"q6_K", WeightType::q6_k},
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
  std::vector<std::byte> block(llama::block_size(WeightType::q4_1).bytes, std::byte{0xf3});
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
