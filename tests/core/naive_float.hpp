// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Small binary float formats by their definition, in double: the oracle of every conversion.

#include <cmath>
#include <cstdint>
#include <limits>

namespace kvcache_test {

/// A code is a sign, `exponent_bits` and `fraction_bits`. Magnitudes above `largest`, the largest finite one, are infinity
/// where the format has one and the fraction is zero, and NaN otherwise.
struct FloatFormat {
  int exponent_bits;
  int fraction_bits;
  std::uint32_t largest;
  bool has_infinity;

  [[nodiscard]] std::uint32_t sign_bit() const { return 1U << (exponent_bits + fraction_bits); }
};

inline constexpr FloatFormat half_format{5, 10, 0x7bffU, true};
inline constexpr FloatFormat bfloat16_format{8, 7, 0x7f7fU, true};
inline constexpr FloatFormat e4m3_format{4, 3, 0x7eU, false};
inline constexpr FloatFormat e5m2_format{5, 2, 0x7bU, true};
inline constexpr FloatFormat e2m1_format{2, 1, 0x7U, false};

/// The value of `magnitude` as if every exponent were that of a number.
inline double number_of(std::uint32_t magnitude, FloatFormat const& format)
{
  std::uint32_t const exponent = magnitude >> format.fraction_bits;
  std::uint32_t const fraction = magnitude & ((1U << format.fraction_bits) - 1U);
  int const bias = (1 << (format.exponent_bits - 1)) - 1;
  if (exponent == 0) {
    return std::ldexp(static_cast<double>(fraction), 1 - bias - format.fraction_bits);
  }
  return std::ldexp(static_cast<double>((1U << format.fraction_bits) | fraction),
                    static_cast<int>(exponent) - bias - format.fraction_bits);
}

inline double value_of(std::uint32_t code, FloatFormat const& format)
{
  std::uint32_t const magnitude = code & (format.sign_bit() - 1U);
  double value = number_of(magnitude, format);
  if (magnitude > format.largest) {
    bool const infinite = format.has_infinity && magnitude == format.largest + 1U;
    value =
      infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (code & format.sign_bit()) != 0 ? -value : value;
}

/// The magnitude nearest to that of `x`, ties to even, its neighbours searched by bisection; `largest + 1`, where the next
/// number would lie, for what is too large. **Pre** `x` is no NaN.
inline std::uint32_t nearest_magnitude(double x, FloatFormat const& format)
{
  double const magnitude = std::fabs(x);
  std::uint32_t low = 0;
  std::uint32_t high = format.largest + 1U;
  while (high - low > 1) {
    std::uint32_t const middle = (low + high) / 2;
    (number_of(middle, format) <= magnitude ? low : high) = middle;
  }
  double const to_below = magnitude - number_of(low, format);
  double const to_above = number_of(high, format) - magnitude;
  bool const up = to_above < to_below || (to_above == to_below && low % 2 != 0);
  return up || std::isinf(magnitude) ? high : low;
}

/// The code of `x`; what is too large becomes infinity. **Pre** the format has one.
inline std::uint32_t round_to(double x, FloatFormat const& format)
{
  return (std::signbit(x) ? format.sign_bit() : 0U) | nearest_magnitude(x, format);
}

/// The code of `x`; what is too large becomes the largest finite value.
inline std::uint32_t saturate_to(double x, FloatFormat const& format)
{
  std::uint32_t const magnitude = nearest_magnitude(x, format);
  return (std::signbit(x) ? format.sign_bit() : 0U) |
         (magnitude < format.largest ? magnitude : format.largest);
}

}  // namespace kvcache_test
