// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file Scores that count for nothing, and the log of a sum of nothing.
///
/// All of it looks at bits: a compiler that is told that no infinities exist (-ffinite-math-only, a part of -ffast-math) takes
/// a comparison with one for false, and what is made from one for anything.

namespace kvcache::inline v0_1::detail::inline KVCACHE_FLAGS {

/// A score, in units of log2, as of which a row counts for nothing.
inline constexpr float lowest_score = -1.0e38F;

[[nodiscard]] KVCACHE_HOST_DEVICE constexpr bool is_minus_infinity(float x) noexcept
{
  return __builtin_bit_cast(std::uint32_t, x) == 0xff800000U;
}

/// Whether a bias leaves its row out: -infinity, and what is as low as floats go, or those of 16 bits with a float's exponent.
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr bool leaves_out(float bias) noexcept
{
  std::uint32_t const bits = __builtin_bit_cast(std::uint32_t, bias);
  return bits >= __builtin_bit_cast(std::uint32_t, -0x1.6p127F) && bits <= 0xff800000U;
}

/// -infinity, or else `x`.
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr float or_no_score(bool none, float x) noexcept
{
  return __builtin_bit_cast(float, none ? 0xff800000U : __builtin_bit_cast(std::uint32_t, x));
}

}  // namespace kvcache::inline v0_1::detail::inline KVCACHE_FLAGS
