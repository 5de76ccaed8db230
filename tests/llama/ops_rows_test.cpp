// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "llama/ops.hpp"
#include "llama/ops_kernels.hpp"
#include "random_weights.hpp"
#include "support/catch.hpp"

using llama_test::all_kernels;
using llama_test::Random;
using llama_test::random_floats;

TEST_CASE("ops: norm, swiglu and add agree with double precision", "[llama][ops]")
{
  unsigned const seed = 14;
  INFO("seed " << seed);
  Random random(seed);
  for (std::size_t width : {1u, 7u, 8u, 192u, 579u}) {
    auto const x = random_floats(width, random);
    auto const gain = random_floats(width, random);
    double squares = 0;
    for (float v : x) {
      squares += static_cast<double>(v) * static_cast<double>(v);
    }
    double const scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    std::vector<float> out(width);
    std::vector<float> portable(width);
    llama::portable_kernels().rms_norm(x.data(), gain.data(), width, 1e-5f, portable.data());
    for (auto const* kernels : all_kernels()) {
      INFO(kernels->name);
      kernels->rms_norm(x.data(), gain.data(), width, 1e-5f, out.data());
      for (std::size_t i = 0; i < width; ++i) {
        double const wanted = static_cast<double>(x[i]) * scale * static_cast<double>(gain[i]);
        REQUIRE(out[i] == kvcache_test::Approx(wanted).epsilon(4e-7));
      }
      CHECK(out == portable);

      auto sum = x;
      kernels->add(sum.data(), gain.data(), width);
      for (std::size_t i = 0; i < width; ++i) {
        REQUIRE(sum[i] == x[i] + gain[i]);
      }

      auto gate = random_floats(width, random);
      for (float& v : gate) {
        v *= 8.0f;
      }
      gate[0] = width % 2 == 0 ? -300.0f : 300.0f;
      auto const before = gate;
      kernels->swiglu(gate.data(), x.data(), width);
      for (std::size_t i = 0; i < width; ++i) {
        double const g = static_cast<double>(before[i]);
        INFO(kernels->name << ", gate " << g);
        REQUIRE(gate[i] ==
                kvcache_test::Approx(g / (1.0 + std::exp(-g)) * static_cast<double>(x[i]))
                  .epsilon(1e-6)
                  .margin(1e-30));
      }
    }
  }
}

TEST_CASE("ops: rotations keep their precision at position 8191", "[llama][ops]")
{
  unsigned const seed = 15;
  INFO("seed " << seed);
  Random random(seed);
  std::vector<std::int64_t> const positions{0, 1, 500, 8191};
  std::size_t const dims = 48;  // of a head of 64: the rest must not turn
  llama::Rope rope(dims, 100000.0);
  rope.set_positions(positions);
  for (std::size_t row = 0; row < positions.size(); ++row) {
    auto const x = random_floats(64, random);
    auto turned = x;
    rope.rotate(turned.data(), row);
    for (std::size_t i = 0; i < 64; i += 2) {
      double const a = static_cast<double>(x[i]);
      double const b = static_cast<double>(x[i + 1]);
      double const turn = std::pow(100000.0, -static_cast<double>(i) / dims);
      double const angle = i < dims ? static_cast<double>(positions[row]) * turn : 0.0;
      double const limit = 4e-7 * (std::fabs(a) + std::fabs(b));
      double const first = a * std::cos(angle) - b * std::sin(angle);
      double const second = a * std::sin(angle) + b * std::cos(angle);
      CHECK(std::fabs(static_cast<double>(turned[i]) - first) <= limit);
      CHECK(std::fabs(static_cast<double>(turned[i + 1]) - second) <= limit);
    }
  }
}
