// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file Rounding to a small float format, to nearest and ties to even, by integers alone.

namespace kvcache::inline v0_1::isa::detail {

/// The code of `magnitude`, the bits of a wide binary float without its sign, in a format of `Exponent` and `Fraction` bits.
/// Values too large give codes above every finite one, in order, so the caller clamps to what its format says.
/// **Pre** `magnitude` is no NaN, and a subnormal one lies below half of the format's least value.
/// **Cost** about fifteen instructions, no branch but on the result.
template <int Exponent, int Fraction, int WideExponent, int WideFraction, class Bits>
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::uint32_t round_magnitude(Bits magnitude)
{
  static_assert(sizeof(Bits) * 8 == 1 + WideExponent + WideFraction,
                "kvcache: these are not the bits of that format");
  constexpr int bias_change = (1 << (WideExponent - 1)) - (1 << (Exponent - 1));
  constexpr Bits one{1};
  int const exponent = static_cast<int>(magnitude >> WideFraction) - bias_change;
  int const below_normal = exponent < 1 ? 1 - exponent : 0;
  if (below_normal > Fraction + 1) {
    return 0;  // less than half of the least subnormal value
  }
  int const shift = WideFraction - Fraction + below_normal;
  Bits const significand = (magnitude & ((one << WideFraction) - 1)) | one << WideFraction;
  Bits const kept = significand >> shift;
  Bits const rest = significand & ((one << shift) - 1);
  Bits const tie = one << (shift - 1);
  bool const up = rest > tie || (rest == tie && (kept & 1U) != 0);
  std::uint32_t const rounded = static_cast<std::uint32_t>(kept) + (up ? 1U : 0U);
  // The leading bit of a normal significand adds the one that is missing from its exponent.
  return rounded + (exponent < 1 ? 0U : static_cast<std::uint32_t>(exponent - 1) << Fraction);
}

/// `p + c` rounded once to a 16-bit format; NaN gives 0x7fff. **Pre** neither over- nor underflows a double.
template <int Exponent, int Fraction>
[[nodiscard]] inline std::uint32_t round_sum(double p, double c)
{
  double const sum = p + c;
  auto bits = __builtin_bit_cast(std::uint64_t, sum);
  std::uint32_t const sign = static_cast<std::uint32_t>(bits >> 48) & 0x8000U;
  constexpr std::uint32_t infinity = ((1U << Exponent) - 1U) << Fraction;
  if (sum != sum) {
    return 0x7fffU;
  }
  bits &= ~(std::uint64_t{1} << 63);
  if (bits == std::uint64_t{0x7ff} << 52) {
    return sign | infinity;
  }
  // What the sum lost (Knuth's TwoSum). Rounding to odd keeps it visible for the second rounding (Boldo, Melquiond 2008).
  double const from_c = sum - p;
  double const lost = (p - (sum - from_c)) + (c - from_c);
  if (lost != 0.0 && (bits & 1U) == 0) {
    bits += (lost > 0.0) == (sum > 0.0) ? std::uint64_t{1} : ~std::uint64_t{0};
  }
  std::uint32_t const code = round_magnitude<Exponent, Fraction, 11, 52>(bits);
  return sign | (code < infinity ? code : infinity);
}

}  // namespace kvcache::inline v0_1::isa::detail
