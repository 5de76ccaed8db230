// SPDX-License-Identifier: Apache-2.0
// fp8 and fp4 against the formats' definition: every code, every half and bfloat16, and floats at, beside and between the
// values. The arithmetic under test is also what targets without the instructions run.

#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/small_float.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/naive_float.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

/// fp4 as a type, for the tests that all three formats share.
struct E2M1 {};

template <class Format>
FloatFormat const& format_of()
{
  if constexpr (std::is_same_v<Format, E2M1>) {
    return e2m1_format;
  } else {
    return std::is_same_v<Format, isa::E4M3> ? e4m3_format : e5m2_format;
  }
}

template <class Format>
constexpr std::uint32_t code_bits = std::is_same_v<Format, E2M1> ? 4 : 8;

template <class Format>
std::uint32_t pack(float lo, float hi)
{
  if constexpr (std::is_same_v<Format, E2M1>) {
    return isa::pack_fp4(lo, hi);
  } else {
    return isa::pack_fp8<Format>(lo, hi);
  }
}

template <class Format>
std::uint32_t widen(std::uint32_t codes)
{
  if constexpr (std::is_same_v<Format, E2M1>) {
    return isa::half2_from_fp4(static_cast<std::uint8_t>(codes));
  } else {
    return isa::half2_from_fp8<Format>(static_cast<std::uint16_t>(codes));
  }
}

/// NaN of plus sign; fp4 has none and takes its largest value.
template <class Format>
std::uint32_t want(float x)
{
  std::uint32_t const nan = std::is_same_v<Format, E2M1> ? 7U : 0x7fU;
  return std::isnan(x) ? nan : saturate_to(static_cast<double>(x), format_of<Format>());
}

template <class Format>
std::uint32_t wrong_packs(float lo, float hi)
{
  return pack<Format>(lo, hi) == (want<Format>(hi) << code_bits<Format> | want<Format>(lo)) ? 0U
                                                                                            : 1U;
}

template <class Format>
void check_pack(std::uint64_t seed)
{
  std::uint32_t wrong = 0;
  FloatFormat const& format = format_of<Format>();
  for (std::uint32_t code = 0; code <= format.largest; ++code) {
    for (double const sign : {1.0, -1.0}) {
      double const x = number_of(code, format);
      double const next = number_of(code + 1, format);
      for (double const at : {x, (x + next) / 2, (3 * x + next) / 4, (x + 3 * next) / 4}) {
        auto const f = static_cast<float>(sign * at);
        wrong += wrong_packs<Format>(f, std::nextafter(f, 1e30F));
        wrong += wrong_packs<Format>(std::nextafter(f, -1e30F), f);
      }
    }
  }
  CHECK(wrong == 0);
  for (std::uint32_t code = 0; code < 65536; ++code) {  // every half, every bfloat16
    auto const x = static_cast<float>(value_of(code, half_format));
    wrong += wrong_packs<Format>(x, std::bit_cast<float>(code << 16));
  }
  CHECK(wrong == 0);
  Random random(seed);
  for (int i = 0; i < 200000; ++i) {
    std::uint64_t const bits = random.next();
    wrong += wrong_packs<Format>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)),
                                 static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 3e-7F);
  }
  CAPTURE(seed);
  CHECK(wrong == 0);
}

template <class Format>
void check_widen()
{
  std::uint32_t wrong = 0;
  constexpr std::uint32_t codes = 1U << code_bits<Format>;
  for (std::uint32_t pair = 0; pair < codes * codes; ++pair) {
    std::uint32_t const got = widen<Format>(pair);
    auto const is = [](std::uint32_t bits, std::uint32_t code) {
      double const value = value_of(code, format_of<Format>());
      return bits == (std::isnan(value) ? 0x7fffU : round_to(value, half_format));
    };
    wrong += is(got & 0xffffU, pair % codes) && is(got >> 16, pair / codes) ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

template <class Format>
void check_from_half2()
{
  std::uint32_t wrong = 0;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    std::uint32_t const other = (code * 7919U + 1U) & 0xffffU;
    auto const wanted = [](std::uint32_t bits) {
      return want<Format>(static_cast<float>(value_of(bits, half_format)));
    };
    std::uint32_t const got = isa::fp8_from_half2<Format>(other << 16 | code);
    wrong += got == (wanted(other) << 8 | wanted(code)) ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("isa: floats become fp8 and fp4 to nearest even, and saturate", "[core][isa]")
{
  check_pack<isa::E4M3>(1);
  check_pack<isa::E5M2>(2);
  check_pack<E2M1>(3);
}

TEST_CASE("isa: every pair of fp8 or fp4 codes becomes its halves", "[core][isa]")
{
  check_widen<isa::E4M3>();
  check_widen<isa::E5M2>();
  check_widen<E2M1>();
}

TEST_CASE("isa: every half becomes its fp8", "[core][isa]")
{
  check_from_half2<isa::E4M3>();
  check_from_half2<isa::E5M2>();
}

TEST_CASE("isa: fp8 and fp4 at their edges", "[core][isa]")
{
  float const infinity = std::bit_cast<float>(0x7f800000U);
  float const nan = std::bit_cast<float>(0xffc00000U);
  CHECK(isa::pack_fp8<isa::E4M3>(464.0F, -infinity) == 0xfe7e);
  CHECK(isa::pack_fp8<isa::E4M3>(0x1p-10F, 0x1.8p-10F) == 0x0100);  // a tie with zero, and above
  CHECK(isa::pack_fp8<isa::E4M3>(nan, -0.0F) == 0x807f);
  CHECK(isa::pack_fp8<isa::E5M2>(61440.0F, infinity) == 0x7b7b);
  CHECK(isa::pack_fp8<isa::E5M2>(nan, -1.0F) == 0xbc7f);
  CHECK(isa::pack_fp4(0.25F, 0.75F) == 0x20);  // ties to even
  CHECK(isa::pack_fp4(-5.0F, nan) == 0x7e);
  CHECK(isa::half2_from_fp4(0xf1) == 0xc6003800);
}
