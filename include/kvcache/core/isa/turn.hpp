// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cmath>

/// \file Quotients, sines and cosines to which -use_fast_math does no harm.
///
/// It takes a quotient, and the sine of any angle but a small one, too lightly for the angle of a far position, and it defines
/// no macro by which to refuse it. On a host these are the plain ones.

namespace kvcache::inline v0_1::isa {

[[nodiscard]] KVCACHE_HOST_DEVICE inline float quotient(float a, float b)
{
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// `angle` less whole turns, to 4e-7: about -pi to pi, near 2^24 somewhat more. By multiply-adds of one rounding and three parts
/// of 2 pi, whose products with the whole number of turns lose nothing that counts. **Pre** `0 <= angle <= 2^24`.
[[nodiscard]] KVCACHE_HOST_DEVICE inline float within_a_turn(float angle)
{
  float const turns = ::rintf(angle * 0.159154943F);
  float rest = ::fmaf(-turns, 6.28318548202514648F, angle);
  rest = ::fmaf(-turns, -1.74845553146951715e-7F, rest);
  return ::fmaf(-turns, -6.86049804e-15F, rest);
}

/// **Pre** as `within_a_turn`.
KVCACHE_HOST_DEVICE inline void sine_and_cosine(float angle, float& sine, float& cosine)
{
#if defined(__CUDA_ARCH__)
  float const rest = within_a_turn(angle);  // where the fast ones, too, are within 5e-7
  sine = ::sinf(rest);
  cosine = ::cosf(rest);
#else
  sine = ::sinf(angle);
  cosine = ::cosf(angle);
#endif
}

}  // namespace kvcache::inline v0_1::isa
