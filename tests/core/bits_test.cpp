// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/bits.hpp>

#include <bit>
#include <cstdint>
#include <random>

#include "support/catch.hpp"

using kvcache::count_bits;
using kvcache::highest_bit;

namespace {

bool agrees(std::uint64_t x)
{
  return count_bits(x) == std::popcount(x) && highest_bit(x) == 63 - std::countl_zero(x);
}

}  // namespace

TEST_CASE("bits: count and highest of every run of ones", "[core][bits]")
{
  CHECK(count_bits(0) == 0);
  CHECK(highest_bit(0) == -1);
  for (int from = 0; from < 64; ++from) {
    for (int length = 1; from + length <= 64; ++length) {
      std::uint64_t const run = (length == 64 ? ~0ULL : (1ULL << length) - 1) << from;
      REQUIRE(count_bits(run) == length);
      REQUIRE(highest_bit(run) == from + length - 1);
    }
  }
}

TEST_CASE("bits: agree with the standard library on random words", "[core][bits]")
{
  constexpr std::uint64_t seed = 64;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::uint64_t const x = random() & random() >> random() % 64;
    CAPTURE(x);
    REQUIRE(agrees(x));
  }
}
