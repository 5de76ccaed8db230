// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/isa/rounding.hpp>
#include <kvcache/core/isa/target.hpp>

#include <cstdint>
#include <type_traits>

/// \file Two halves or two bfloat16 in one register, and arithmetic on both at once.
///
/// A pair is a word whose lower half is the element of the lower address. Each result is rounded once, to nearest even;
/// subnormal values are kept; a result that is NaN is 0x7fff. `fma` never rounds the product.

namespace kvcache::inline v0_1::isa {

/// Two floats: `lo` from the lower half of a word.
struct Float2 {
  float lo;
  float hi;
};

namespace detail {

template <class Element>
inline constexpr bool is_pair_element =
  std::is_same_v<Element, half> || std::is_same_v<Element, bfloat16>;

/// The larger in the order of IEEE `maximumNumber`: a number beats NaN, +0 beats -0.
template <class Element>
struct MaxTwin {
  static constexpr std::uint32_t infinity = std::is_same_v<Element, half> ? 0x7c00U : 0x7f80U;
  static constexpr std::uint32_t apply(std::uint32_t a, std::uint32_t b)
  {
    bool const a_is_nan = (a & 0x7fffU) > infinity;
    bool const b_is_nan = (b & 0x7fffU) > infinity;
    if (a_is_nan || b_is_nan) {
      std::uint32_t const other = a_is_nan ? b : a;
      return a_is_nan && b_is_nan ? 0x7fffU : other;
    }
    return order(a) > order(b) ? a : b;
  }
  static constexpr std::uint32_t order(std::uint32_t x)
  {
    return (x & 0x8000U) != 0 ? ~x & 0xffffU : x | 0x8000U;
  }
};

/// `a * b + c` of one element.
template <class Element>
struct FmaTwin {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c)
  {
    constexpr int exponent_bits = std::is_same_v<Element, half> ? 5 : 8;
    // Two elements' product is exact in double; the sum may not be.
    return round_sum<exponent_bits, 15 - exponent_bits>(value(a) * value(b), value(c));
  }
  static double value(std::uint32_t x)
  {
    return static_cast<double>(
      ElementTraits<Element>::to_float(Element{static_cast<std::uint16_t>(x & 0xffffU)}));
  }
};

}  // namespace detail

/// `cvt.rn.f16x2.f32` or `cvt.rn.bf16x2.f32`: rounds to nearest even; NaN becomes 0x7fff.
template <class Element>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t pack(float lo, float hi)
{
  static_assert(detail::is_pair_element<Element>, "kvcache: a pair holds half or bfloat16");
#if defined(__CUDA_ARCH__)
  std::uint32_t d = 0;
  if constexpr (std::is_same_v<Element, half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  }
  return d;
#else
  std::uint32_t const low = lo != lo ? 0x7fffU : ElementTraits<Element>::from_float(lo).bits;
  std::uint32_t const high = hi != hi ? 0x7fffU : ElementTraits<Element>::from_float(hi).bits;
  return high << 16 | low;
#endif
}

/// The exact values of a pair. NaN: 0x7fffffff from half (`cvt.f32.f16`), the same bits from bfloat16.
template <class Element>
[[nodiscard]] KVCACHE_HOST_DEVICE inline Float2 unpack(std::uint32_t pair)
{
  static_assert(detail::is_pair_element<Element>, "kvcache: a pair holds half or bfloat16");
  if constexpr (std::is_same_v<Element, bfloat16>) {
    return {__builtin_bit_cast(float, pair << 16), __builtin_bit_cast(float, pair & 0xffff0000U)};
  } else {
#if defined(__CUDA_ARCH__)
    Float2 d{};
    asm(
      "{.reg .f16 lo, hi;\n"
      "mov.b32 {lo, hi}, %2;\n"
      "cvt.f32.f16 %0, lo;\n"
      "cvt.f32.f16 %1, hi;}"
      : "=f"(d.lo), "=f"(d.hi)
      : "r"(pair));
    return d;
#else
    float const lo = ElementTraits<half>::to_float(half{static_cast<std::uint16_t>(pair)});
    float const hi = ElementTraits<half>::to_float(half{static_cast<std::uint16_t>(pair >> 16)});
    auto const nan = __builtin_bit_cast(float, 0x7fffffffU);
    return {lo != lo ? nan : lo, hi != hi ? nan : hi};
#endif
  }
}

/// `a * b + c` on both halves, rounded once.
template <class Element>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t packed_fma(std::uint32_t a,
                                                                  std::uint32_t b,
                                                                  std::uint32_t c)
{
  static_assert(detail::is_pair_element<Element>, "kvcache: a pair holds half or bfloat16");
#if defined(__CUDA_ARCH__)
  std::uint32_t d = 0;
  if constexpr (std::is_same_v<Element, half>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
#else
  using Fma = detail::FmaTwin<Element>;
  return Fma::apply(a >> 16, b >> 16, c >> 16) << 16 | Fma::apply(a, b, c);
#endif
}

/// `a + b` on both halves. **Cost** one instruction; for bfloat16 before sm_90 that is `a * 1 + b`, the same result.
template <class Element>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t packed_add(std::uint32_t a, std::uint32_t b)
{
  constexpr std::uint32_t one = std::is_same_v<Element, half> ? 0x3c003c00U : 0x3f803f80U;
#if defined(__CUDA_ARCH__)
  std::uint32_t d = 0;
  if constexpr (std::is_same_v<Element, half>) {
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  } else if constexpr (has_bfloat16_add) {
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
#endif
  return packed_fma<Element>(a, one, b);
}

/// `a * b` on both halves. **Cost** one instruction; for bfloat16 before sm_90 that is `a * b + -0`, the same result.
template <class Element>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t packed_mul(std::uint32_t a, std::uint32_t b)
{
#if defined(__CUDA_ARCH__)
  std::uint32_t d = 0;
  if constexpr (std::is_same_v<Element, half>) {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  } else if constexpr (has_bfloat16_add) {
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
#endif
  return packed_fma<Element>(a, b, 0x80008000U);
}

/// The larger on both halves; a number beats NaN, +0 beats -0.
template <class Element>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t packed_max(std::uint32_t a, std::uint32_t b)
{
  static_assert(detail::is_pair_element<Element>, "kvcache: a pair holds half or bfloat16");
#if defined(__CUDA_ARCH__)
  std::uint32_t d = 0;
  if constexpr (std::is_same_v<Element, half>) {
    asm("max.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  } else {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
#else
  using Max = detail::MaxTwin<Element>;
  return Max::apply(a >> 16, b >> 16) << 16 | Max::apply(a & 0xffffU, b & 0xffffU);
#endif
}

}  // namespace kvcache::inline v0_1::isa
