// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/dtype.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "core/naive_float.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

using kvcache::bfloat16;
using kvcache::half;
using Half = kvcache::ElementTraits<half>;
using Bf16 = kvcache::ElementTraits<bfloat16>;

template <class Traits, class T>
void check_all_patterns(FloatFormat const& format)
{
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    double const want = value_of(bits, format);
    float const got = Traits::to_float(T{static_cast<std::uint16_t>(bits)});
    T const back = Traits::from_float(got);
    if (std::isnan(want)) {
      bool const still_nan = std::isnan(value_of(back.bits, format));
      bool const same_sign = (back.bits >> 15) == (bits >> 15);
      wrong += std::isnan(got) && still_nan && same_sign ? 0U : 1U;
    } else {
      bool const exact = static_cast<double>(got) == want && std::signbit(got) == (bits >> 15 != 0);
      wrong += exact && back.bits == bits ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
}

/// Floats where rounding is delicate: each value of the format, its neighbours, and the ties between.
template <class Traits>
void check_rounding(FloatFormat const& format)
{
  std::uint32_t wrong = 0;
  std::uint32_t first_wrong = 0;
  auto const check = [&](std::uint32_t float_bits) {
    float const x = std::bit_cast<float>(float_bits);
    if (!std::isnan(x) && Traits::from_float(x).bits != round_to(static_cast<double>(x), format)) {
      first_wrong = wrong++ == 0 ? float_bits : first_wrong;
    }
  };
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    auto const low = static_cast<float>(value_of(bits, format));
    auto const high = static_cast<float>(value_of((bits + 1) & 0xffffU, format));
    auto const tie = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    for (float const x : {low, tie}) {
      auto const at = std::bit_cast<std::uint32_t>(x);
      check(at);
      check(at + 1);
      check(at - 1);
    }
  }
  constexpr std::uint32_t seed = 20240607;
  std::mt19937 random(seed);
  for (int i = 0; i < 200000; ++i) {
    check(static_cast<std::uint32_t>(random()));
  }
  CAPTURE(seed, first_wrong);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("half: all 65536 patterns become their value and come back", "[core][dtype]")
{
  check_all_patterns<Half, half>(half_format);
}

TEST_CASE("bfloat16: all 65536 patterns become their value and come back", "[core][dtype]")
{
  check_all_patterns<Bf16, bfloat16>(bfloat16_format);
}

TEST_CASE("half: floats round to nearest, ties to even", "[core][dtype]")
{
  check_rounding<Half>(half_format);
}

TEST_CASE("bfloat16: floats round to nearest, ties to even", "[core][dtype]")
{
  check_rounding<Bf16>(bfloat16_format);
}

TEST_CASE("half and bfloat16: known values at the edges", "[core][dtype]")
{
  CHECK(Half::from_float(1.0F).bits == 0x3c00);
  CHECK(Half::from_float(-2.0F).bits == 0xc000);
  CHECK(Half::from_float(65504.0F).bits == 0x7bff);
  CHECK(Half::from_float(65519.996F).bits == 0x7bff);
  CHECK(Half::from_float(65520.0F).bits == 0x7c00);
  CHECK(Half::from_float(0x1p-24F).bits == 0x0001);
  CHECK(Half::from_float(0x1p-25F).bits == 0x0000);  // a tie: to even, which is zero
  CHECK(Half::from_float(0x1.8p-25F).bits == 0x0001);
  CHECK(Half::from_float(-0.0F).bits == 0x8000);
  CHECK(Bf16::from_float(1.0F).bits == 0x3f80);
  CHECK(Bf16::from_float(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(Bf16::from_float(std::numeric_limits<float>::denorm_min()).bits == 0x0000);
  CHECK(Bf16::from_float(-0.0F).bits == 0x8000);
}

TEST_CASE("half and bfloat16: a NaN stays one, whichever bits carry it", "[core][dtype]")
{
  std::uint32_t lost = 0;
  for (std::uint32_t bit = 0; bit < 23; ++bit) {
    for (std::uint32_t const sign : {0U, 0x80000000U}) {
      float const nan = std::bit_cast<float>(sign | 0x7f800000U | 1U << bit);
      lost += std::isnan(Half::to_float(Half::from_float(nan))) ? 0U : 1U;
      lost += std::isnan(Bf16::to_float(Bf16::from_float(nan))) ? 0U : 1U;
    }
  }
  CHECK(lost == 0);
}

TEST_CASE("dtype: conversions work at compile time", "[core][dtype]")
{
  static_assert(Half::to_float(Half::from_float(0.333251953125F)) == 0.333251953125F);
  static_assert(Bf16::to_float(bfloat16{0x4049}) == 3.140625F);
  static_assert(kvcache::ElementTraits<float>::from_float(0.1F) == 0.1F);
  CHECK(sizeof(half) == 2);
  CHECK(sizeof(bfloat16) == 2);
}
