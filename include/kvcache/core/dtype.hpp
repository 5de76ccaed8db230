// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file Element types of K and V as they lie in memory, and how a float enters and leaves them.
///
/// `half` and `bfloat16` are storage only: two bytes with the layout of IEEE binary16 and of the upper half
/// of a binary32, so an engine may point at the same memory with `__half` or `__nv_bfloat16`. Arithmetic is
/// in float. Conversions round to nearest, ties to even, as the GPU's instructions do, and run on both
/// sides without a library call.

namespace kvcache::inline v0_1 {

/// IEEE binary16 in storage.
struct half {
  std::uint16_t bits;
};

/// The upper 16 bits of an IEEE binary32 in storage.
struct bfloat16 {
  std::uint16_t bits;
};

/// How an element type converts; specialise it for an engine's own type.
/// Requires `to_float(T) -> float` and `from_float(float) -> T`, both KVCACHE_HOST_DEVICE.
template <class T>
struct ElementTraits;

template <>
struct ElementTraits<float> {
  static constexpr char const* name = "f32";
  KVCACHE_HOST_DEVICE static constexpr float to_float(float x) { return x; }
  KVCACHE_HOST_DEVICE static constexpr float from_float(float x) { return x; }
};

template <>
struct ElementTraits<bfloat16> {
  static constexpr char const* name = "bf16";
  KVCACHE_HOST_DEVICE static constexpr float to_float(bfloat16 x)
  {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
  }
  KVCACHE_HOST_DEVICE static constexpr bfloat16 from_float(float x)
  {
    auto const u = __builtin_bit_cast(std::uint32_t, x);
    if ((u & 0x7fffffffU) > 0x7f800000U) {
      return {
        static_cast<std::uint16_t>((u >> 16) | 0x40U)};  // rounding must not turn NaN to infinity
    }
    return {static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
  }
};

template <>
struct ElementTraits<half> {
  static constexpr char const* name = "f16";
  KVCACHE_HOST_DEVICE static constexpr float to_float(half x)
  {
    std::uint32_t const sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16;
    std::uint32_t const exponent = (x.bits >> 10) & 0x1fU;
    std::uint32_t const fraction = x.bits & 0x3ffU;
    if (exponent == 0) {
      float const magnitude = static_cast<float>(fraction) * 0x1p-24F;
      return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, magnitude) | sign);
    }
    std::uint32_t const wide = exponent == 31 ? 0x7f800000U : (exponent + 112U) << 23;
    return __builtin_bit_cast(float, sign | wide | (fraction << 13));
  }
  KVCACHE_HOST_DEVICE static constexpr half from_float(float x)
  {
    auto const u = __builtin_bit_cast(std::uint32_t, x);
    auto const sign = static_cast<std::uint16_t>((u >> 16) & 0x8000U);
    std::uint32_t const magnitude = u & 0x7fffffffU;
    if (magnitude >= 0x7f800000U) {
      std::uint32_t const quiet =
        magnitude > 0x7f800000U ? 0x200U | ((magnitude >> 13) & 0x3ffU) : 0U;
      return {static_cast<std::uint16_t>(sign | 0x7c00U | quiet)};
    }
    if (magnitude >= 0x477ff000U) {  // rounds past the largest finite value
      return {static_cast<std::uint16_t>(sign | 0x7c00U)};
    }
    if (magnitude <
        0x38800000U) {  // subnormal: adding 0.5 puts the rounded fraction into the low bits
      float const shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
      std::uint32_t const rounded = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000U;
      return {static_cast<std::uint16_t>(sign | rounded)};
    }
    std::uint32_t const rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U;
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
  }
};

}  // namespace kvcache::inline v0_1
