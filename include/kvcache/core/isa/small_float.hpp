// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/isa/bits.hpp>
#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/rounding.hpp>
#include <kvcache/core/isa/target.hpp>

#include <cstdint>
#include <type_traits>

/// \file fp8 (e4m3, e5m2) and fp4 (e2m1), two codes at a time: the lower code is that of the lower address.
///
/// Towards them values round to nearest even and saturate: what is too large, infinity included, becomes the largest finite
/// value of its sign. NaN becomes NaN of plus sign (0x7f in both formats of fp8), and 6 in fp4, which has none.
/// From them a half holds every value; NaN is 0x7fff.
/// **Cost** one instruction where `has_fp8` or `has_fp4` says so; else bit arithmetic with the same results: to fp8 or fp4
/// about twenty instructions a value, from fp8 eight a pair, from fp4 five.

namespace kvcache::inline v0_1::isa {

/// fp8 of 4 exponent and 3 fraction bits: up to 448, no infinity.
struct E4M3 {
  std::uint8_t bits;
};
/// fp8 of 5 exponent and 2 fraction bits: the upper byte of a half, up to 57344.
struct E5M2 {
  std::uint8_t bits;
};

namespace detail {

template <class Format>
inline constexpr bool is_fp8 = std::is_same_v<Format, E4M3> || std::is_same_v<Format, E5M2>;

/// The code of a float, with its sign; saturating.
template <int Exponent, int Fraction>
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::uint32_t narrow(float x,
                                                                 std::uint32_t largest,
                                                                 std::uint32_t nan)
{
  auto const bits = __builtin_bit_cast(std::uint32_t, x);
  std::uint32_t const magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return nan;
  }
  std::uint32_t const code = round_magnitude<Exponent, Fraction, 8, 23>(magnitude);
  return (code < largest ? code : largest) | bits >> 31 << (Exponent + Fraction);
}

template <class Format>
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::uint32_t narrow_fp8(float x)
{
  static_assert(is_fp8<Format>, "kvcache: fp8 is E4M3 or E5M2");
  if constexpr (std::is_same_v<Format, E4M3>) {
    return narrow<4, 3>(x, 0x7eU, 0x7fU);
  } else {
    return narrow<5, 2>(x, 0x7bU, 0x7fU);
  }
}

/// Halves whose `nan` bit (bit 0 of each) is set become 0x7fff.
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::uint32_t with_nan(std::uint32_t halves,
                                                                   std::uint32_t nan)
{
  return (halves & ~(nan * 0xffffU)) | nan * 0x7fffU;
}

/// Two codes of fp8 as halves, by arithmetic on both at once.
template <class Format>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t widen_fp8(std::uint32_t codes)
{
  std::uint32_t const wide = prmt(codes, 0U, 0x1404U);  // a code in the upper byte of each half
  if constexpr (std::is_same_v<Format, E5M2>) {
    // A magnitude above infinity, 0x7c00, carries into the sign.
    return with_nan(wide, ((wide & 0x7fff7fffU) + 0x03ff03ffU) >> 15 & 0x00010001U);
  } else {
    std::uint32_t const magnitude = (wide & 0x7f007f00U) >> 1;  // the value / 256, subnormals too
    std::uint32_t const value = packed_mul<half>(magnitude, 0x5c005c00U);
    return with_nan(value | (wide & 0x80008000U), (magnitude + 0x00800080U) >> 14 & 0x00010001U);
  }
}

/// Two codes of fp4 as halves: bits 12 to 9 of a half hold no more than a code, so a table of upper bytes suffices.
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t widen_fp4(std::uint32_t codes)
{
  std::uint32_t const upper = prmt(0x3e3c3800U, 0x46444240U, codes & 0x77U);
  std::uint32_t const sign = (codes & 0x8U) << 12 | (codes & 0x80U) << 24;
  return prmt(upper, 0U, 0x1404U) | sign;
}

}  // namespace detail

/// `cvt.rn.satfinite.e4m3x2.f32` or `.e5m2x2.f32`.
template <class Format>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint16_t pack_fp8(float lo, float hi)
{
  static_assert(detail::is_fp8<Format>, "kvcache: fp8 is E4M3 or E5M2");
#if defined(__CUDA_ARCH__)
  if constexpr (has_fp8) {
    std::uint16_t d = 0;
    if constexpr (std::is_same_v<Format, E4M3>) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
    }
    return d;
  }
#endif
  return static_cast<std::uint16_t>(detail::narrow_fp8<Format>(hi) << 8 |
                                    detail::narrow_fp8<Format>(lo));
}

/// `cvt.rn.satfinite.e4m3x2.f16x2` or `.e5m2x2.f16x2`.
template <class Format>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint16_t fp8_from_half2(std::uint32_t halves)
{
  static_assert(detail::is_fp8<Format>, "kvcache: fp8 is E4M3 or E5M2");
#if defined(__CUDA_ARCH__)
  if constexpr (has_fp8) {
    std::uint16_t d = 0;
    if constexpr (std::is_same_v<Format, E4M3>) {
      asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(d) : "r"(halves));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(d) : "r"(halves));
    }
    return d;
  }
#endif
  Float2 const x = unpack<half>(halves);
  return pack_fp8<Format>(x.lo, x.hi);
}

/// `cvt.rn.f16x2.e4m3x2` or `.e5m2x2`: exact.
template <class Format>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t half2_from_fp8(std::uint16_t codes)
{
  static_assert(detail::is_fp8<Format>, "kvcache: fp8 is E4M3 or E5M2");
#if defined(__CUDA_ARCH__)
  if constexpr (has_fp8) {
    std::uint32_t d = 0;
    if constexpr (std::is_same_v<Format, E4M3>) {
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(codes));
    } else {
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(d) : "h"(codes));
    }
    return d;
  }
#endif
  return detail::widen_fp8<Format>(codes);
}

/// `cvt.rn.satfinite.e2m1x2.f32`: two codes in a byte, that of `lo` in the lower nibble.
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint8_t pack_fp4(float lo, float hi)
{
#if defined(__CUDA_ARCH__)
  if constexpr (has_fp4) {
    std::uint16_t d = 0;
    asm(
      "{.reg .b8 pair;\n"
      "cvt.rn.satfinite.e2m1x2.f32 pair, %1, %2;\n"
      "mov.b16 %0, {pair, 0};}"
      : "=h"(d)
      : "f"(hi), "f"(lo));
    return static_cast<std::uint8_t>(d);
  }
#endif
  return static_cast<std::uint8_t>(detail::narrow<2, 1>(hi, 7U, 7U) << 4 |
                                   detail::narrow<2, 1>(lo, 7U, 7U));
}

/// `cvt.rn.f16x2.e2m1x2`: exact.
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t half2_from_fp4(std::uint8_t codes)
{
#if defined(__CUDA_ARCH__)
  if constexpr (has_fp4) {
    std::uint32_t d = 0;
    asm(
      "{.reg .b8 pair, none;\n"
      "mov.b16 {pair, none}, %1;\n"
      "cvt.rn.f16x2.e2m1x2 %0, pair;}"
      : "=r"(d)
      : "h"(static_cast<std::uint16_t>(codes)));
    return d;
  }
#endif
  return detail::widen_fp4(codes);
}

}  // namespace kvcache::inline v0_1::isa
