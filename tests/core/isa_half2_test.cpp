// SPDX-License-Identifier: Apache-2.0
// Packed half and bfloat16: conversions against the formats' definition, arithmetic against integers of 640 bits that hold
// every product and sum exactly.

#include <kvcache/core/isa/half2.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/naive_float.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

template <class Element>
FloatFormat const& format_of()
{
  return std::is_same_v<Element, half> ? half_format : bfloat16_format;
}

/// A whole number of 2^-300, in two's complement: products of two elements and sums of those are exact.
class Exact {
 public:
  static constexpr int unit = -300;

  /// `scale` 2^`exponent`. **Pre** `exponent` >= -300.
  Exact(std::int64_t scale, int exponent)
  {
    auto const magnitude = static_cast<std::uint64_t>(scale < 0 ? -scale : scale);
    auto const shift = static_cast<std::size_t>(exponent - unit);
    words_[shift / 64] = magnitude << (shift % 64);
    words_[shift / 64 + 1] = shift % 64 == 0 ? 0 : magnitude >> (64 - shift % 64);
    if (scale < 0) {
      negate();
    }
  }
  [[nodiscard]] bool negative() const { return words_.back() >> 63 != 0; }
  [[nodiscard]] bool zero() const { return words_ == std::array<std::uint64_t, 10>{}; }
  void negate()
  {
    std::uint64_t carry = 1;
    for (std::uint64_t& word : words_) {
      word = ~word + carry;
      carry = carry != 0 && word == 0 ? 1 : 0;
    }
  }
  Exact& operator+=(Exact const& other)
  {
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      std::uint64_t const sum = words_[i] + other.words_[i];
      std::uint64_t const with = sum + carry;
      carry = sum < words_[i] || with < sum ? 1 : 0;
      words_[i] = with;
    }
    return *this;
  }
  /// -1, 0, 1.
  [[nodiscard]] int compare(Exact other) const
  {
    other.negate();
    other += *this;
    return other.negative() ? -1 : (other.zero() ? 0 : 1);
  }

 private:
  std::array<std::uint64_t, 10> words_{};
};

/// An element as `scale` 2^`exponent`.
struct Scaled {
  std::int64_t scale;
  int exponent;
};

Scaled scaled(std::uint32_t code, FloatFormat const& format)
{
  std::uint32_t const magnitude = code & 0x7fffU;
  int const exponent = static_cast<int>(magnitude >> format.fraction_bits);
  auto scale = static_cast<std::int64_t>(magnitude & ((1U << format.fraction_bits) - 1U));
  scale += exponent == 0 ? 0 : std::int64_t{1} << format.fraction_bits;
  int const bias = (1 << (format.exponent_bits - 1)) - 1;
  return {(code & 0x8000U) != 0 ? -scale : scale,
          (exponent == 0 ? 1 : exponent) - bias - format.fraction_bits};
}

/// a b + c by its definition.
std::uint32_t naive_fma(std::uint32_t a,
                        std::uint32_t b,
                        std::uint32_t c,
                        FloatFormat const& format)
{
  // Doubles know all about NaN, infinities and signs of zero.
  double const rough = value_of(a, format) * value_of(b, format) + value_of(c, format);
  if (std::isnan(rough)) {
    return 0x7fffU;
  }
  if (std::isinf(rough)) {
    return round_to(rough, format);
  }
  Scaled const x = scaled(a, format);
  Scaled const y = scaled(b, format);
  Scaled const z = scaled(c, format);
  Exact sum(x.scale * y.scale, x.exponent + y.exponent);
  sum += Exact(z.scale, z.exponent);
  if (sum.zero()) {
    return std::signbit(rough) ? 0x8000U : 0U;
  }
  std::uint32_t const sign = sum.negative() ? 0x8000U : 0U;
  if (sum.negative()) {
    sum.negate();
  }
  std::uint32_t low = 0;
  std::uint32_t high = format.largest + 1U;
  auto const exact = [&](std::uint32_t code) {
    Scaled const value = scaled(code, format);
    return Exact(value.scale, value.exponent);
  };
  while (high - low > 1) {
    std::uint32_t const middle = (low + high) / 2;
    (exact(middle).compare(sum) <= 0 ? low : high) = middle;
  }
  Exact twice = sum;
  twice += sum;
  Exact tie = exact(low);
  tie += exact(high);
  int const beside = twice.compare(tie);
  return sign | (beside > 0 || (beside == 0 && low % 2 != 0) ? high : low);
}

std::uint32_t naive_max(std::uint32_t a, std::uint32_t b, FloatFormat const& format)
{
  double const x = value_of(a, format);
  double const y = value_of(b, format);
  if (std::isnan(x) || std::isnan(y)) {
    return std::isnan(x) && std::isnan(y) ? 0x7fffU : (std::isnan(x) ? b : a);
  }
  bool const y_larger = y > x || (y == x && std::signbit(x));
  return y_larger ? b : a;
}

/// Checks all functions on two triples at once: the halves of the words must not meet.
template <class Element>
std::uint32_t wrong_results(std::array<std::uint32_t, 3> const& lo,
                            std::array<std::uint32_t, 3> const& hi)
{
  FloatFormat const& format = format_of<Element>();
  std::uint32_t const one = std::is_same_v<Element, half> ? 0x3c00U : 0x3f80U;
  std::uint32_t const a = hi[0] << 16 | lo[0];
  std::uint32_t const b = hi[1] << 16 | lo[1];
  std::uint32_t const c = hi[2] << 16 | lo[2];
  std::uint32_t wrong = 0;
  auto const check = [&](std::uint32_t got, std::uint32_t want_lo, std::uint32_t want_hi) {
    wrong += got == (want_hi << 16 | want_lo) ? 0U : 1U;
  };
  check(isa::packed_fma<Element>(a, b, c),
        naive_fma(lo[0], lo[1], lo[2], format),
        naive_fma(hi[0], hi[1], hi[2], format));
  check(isa::packed_add<Element>(a, b),
        naive_fma(lo[0], one, lo[1], format),
        naive_fma(hi[0], one, hi[1], format));
  check(isa::packed_mul<Element>(a, b),
        naive_fma(lo[0], lo[1], 0x8000U, format),
        naive_fma(hi[0], hi[1], 0x8000U, format));
  check(isa::packed_max<Element>(a, b),
        naive_max(lo[0], lo[1], format),
        naive_max(hi[0], hi[1], format));
  return wrong;
}

template <class Element>
void check_arithmetic(std::uint64_t seed)
{
  FloatFormat const& format = format_of<Element>();
  std::uint32_t const infinity = format.largest + 1U;
  std::uint32_t const implicit = 1U << format.fraction_bits;
  std::uint32_t const one = std::is_same_v<Element, half> ? 0x3c00U : 0x3f80U;
  std::vector<std::uint32_t> special{0,
                                     1,
                                     2,
                                     implicit - 1,
                                     implicit,
                                     implicit + 1,
                                     one - 1,
                                     one,
                                     one + 1,
                                     one + implicit,
                                     format.largest - 1,
                                     format.largest,
                                     infinity,
                                     infinity + 1,
                                     0x7fffU};
  for (std::size_t i = special.size(); i-- > 0;) {
    special.push_back(special[i] | 0x8000U);
  }
  std::uint32_t wrong = 0;
  for (std::uint32_t const a : special) {
    for (std::uint32_t const b : special) {
      for (std::uint32_t const c : special) {
        wrong += wrong_results<Element>({a, b, c}, {c, a, b});
      }
    }
  }
  CHECK(wrong == 0);

  Random random(seed);
  for (int i = 0; i < 20000; ++i) {
    auto const draw = [&]() -> std::array<std::uint32_t, 3> {
      std::uint32_t const a = random.below(65536);
      std::uint32_t const b = random.below(65536);
      std::uint32_t c = random.below(65536);
      if (random.below(2) == 0) {  // near the product, where sums cancel and ties lie
        double const product = value_of(a, format) * value_of(b, format);
        std::uint32_t const near = std::isnan(product) ? c : round_to(-product, format);
        c = (near + random.below(3) - 1U) & 0xffffU;
      } else if (random.below(2) == 0) {  // far below it, where only the sticky bit tells
        c = (c & 0x8000U) | random.below(4);
      }
      return {a, b, c};
    };
    std::array<std::uint32_t, 3> const lo = draw();
    std::array<std::uint32_t, 3> const hi = draw();
    wrong += wrong_results<Element>(lo, hi);
  }
  CAPTURE(seed);
  CHECK(wrong == 0);
}

/// Floats of any kind, and such as lie at and beside the values of the format and the ties between them.
template <class Element>
void check_pack(std::uint64_t seed)
{
  FloatFormat const& format = format_of<Element>();
  std::uint32_t wrong = 0;
  auto const check = [&](float lo, float hi) {
    auto const want = [&](float x) {
      return std::isnan(x) ? 0x7fffU : round_to(static_cast<double>(x), format);
    };
    wrong += isa::pack<Element>(lo, hi) == (want(hi) << 16 | want(lo)) ? 0U : 1U;
  };
  for (std::uint32_t code = 0; code < 65536; ++code) {
    auto const x = static_cast<float>(value_of(code, format));
    auto const next = static_cast<float>(value_of((code + 1) & 0xffffU, format));
    auto const tie = static_cast<float>((static_cast<double>(x) + static_cast<double>(next)) / 2);
    check(x, tie);
    check(std::nextafter(tie, x), std::nextafter(tie, next));
  }
  Random random(seed);
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t const bits = random.next();
    check(std::bit_cast<float>(static_cast<std::uint32_t>(bits)),
          std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32)));
  }
  CAPTURE(seed);
  CHECK(wrong == 0);
}

template <class Element>
void check_unpack()
{
  std::uint32_t wrong = 0;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    std::uint32_t const other = (code * 7919U + 1U) & 0xffffU;
    isa::Float2 const got = isa::unpack<Element>(other << 16 | code);
    auto const is = [](float x, std::uint32_t bits) {
      double const want = value_of(bits, format_of<Element>());
      if (std::isnan(want)) {
        std::uint32_t const nan = std::is_same_v<Element, half> ? 0x7fffffffU : bits << 16;
        return std::bit_cast<std::uint32_t>(x) == nan;
      }
      return static_cast<double>(x) == want && std::signbit(x) == std::signbit(want);
    };
    wrong += is(got.lo, code) && is(got.hi, other) ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("isa: pairs of half and bfloat16 unpack exactly", "[core][isa]")
{
  check_unpack<half>();
  check_unpack<bfloat16>();
}

TEST_CASE("isa: floats pack to the nearest, ties to even", "[core][isa]")
{
  check_pack<half>(1);
  check_pack<bfloat16>(2);
}

TEST_CASE("isa: packed arithmetic rounds the exact result once", "[core][isa]")
{
  check_arithmetic<half>(3);
  check_arithmetic<bfloat16>(4);
}
