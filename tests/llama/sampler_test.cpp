// SPDX-License-Identifier: Apache-2.0
#include "llama/sampler.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/catch.hpp"

using llama::Sampler;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("Pcg32: the published numbers", "[llama][sampler]")
{
  llama::Pcg32 random(42, 54);  // the demo of the reference implementation
  for (std::uint32_t const expected :
       {0xa15c02b7U, 0x7b47f409U, 0xba1d3330U, 0x83d2f293U, 0xbfa4784bU, 0xcbed606eU}) {
    CHECK(random.next() == expected);
  }
}

TEST_CASE("greedy: the largest logit, the lowest id among equals, never a NaN", "[llama][sampler]")
{
  CHECK(llama::greedy(std::vector<float>{1, 3, 2, 3}) == 1);
  CHECK(llama::greedy(std::vector<float>{not_a_number, -5, not_a_number, -4}) == 3);
  CHECK(llama::greedy(std::vector<float>{not_a_number, not_a_number}) == 0);
  CHECK(llama::greedy(std::vector<float>{-infinity, -infinity}) == 0);
  Sampler sampler({});
  CHECK(sampler.pick(std::vector<float>{0, 1, 0.5F}) == 1);
}

TEST_CASE("Sampler: frequencies follow softmax of logits over temperature", "[llama][sampler]")
{
  auto const temperature = GENERATE(0.5F, 1.0F, 2.0F);
  std::vector<float> const logits = {0.0F, 1.0F, 2.0F, not_a_number, -infinity};
  std::array<double, 3> expected{};
  double total = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    total += expected[i] = std::exp(static_cast<double>(logits[i] / temperature));
  }
  Sampler sampler({.temperature = temperature, .seed = 11});
  std::array<int, 5> counts{};
  constexpr int rounds = 20'000;
  for (int i = 0; i < rounds; ++i) {
    ++counts[static_cast<std::size_t>(sampler.pick(logits))];
  }
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::abs(counts[i] / static_cast<double>(rounds) - expected[i] / total) < 0.015);
  }
  CHECK(counts[3] + counts[4] == 0);
}

TEST_CASE("Sampler: top-p keeps the smallest set that reaches p", "[llama][sampler]")
{
  // Probabilities 0.5, 0.3, 0.2 in an order that is not sorted.
  std::vector<float> const logits = {std::log(0.3F), std::log(0.5F), std::log(0.2F)};
  auto const seen = [&](float top_p) {
    Sampler sampler({.temperature = 1.0F, .top_p = top_p, .seed = 3});
    std::array<bool, 3> out{};
    for (int i = 0; i < 500; ++i) {
      out[static_cast<std::size_t>(sampler.pick(logits))] = true;
    }
    return out;
  };
  CHECK(seen(0.1F) == std::array{false, true, false});
  CHECK(seen(0.49F) == std::array{false, true, false});
  CHECK(seen(0.51F) == std::array{true, true, false});
  CHECK(seen(0.79F) == std::array{true, true, false});
  CHECK(seen(0.81F) == std::array{true, true, true});
  CHECK(seen(1.0F) == std::array{true, true, true});
}

TEST_CASE("Sampler: a seed repeats, another seed or stream does not", "[llama][sampler]")
{
  std::vector<float> const logits(100, 0.0F);
  auto const draw = [&](std::uint64_t seed, std::uint64_t stream) {
    Sampler sampler({.temperature = 1.0F, .top_p = 0.95F, .seed = seed, .stream = stream});
    std::vector<std::int32_t> out;
    for (int i = 0; i < 20; ++i) {
      out.push_back(sampler.pick(logits));
    }
    return out;
  };
  CHECK(draw(1, 0) == draw(1, 0));
  CHECK(draw(1, 0) != draw(2, 0));
  CHECK(draw(1, 0) != draw(1, 1));
}
