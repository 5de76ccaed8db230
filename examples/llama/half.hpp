// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Numbers of two bytes, and numbers at addresses of any alignment.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace llama {

[[nodiscard]] inline float float_of_half(std::uint16_t half)
{
  std::uint32_t const sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  std::uint32_t const exponent = half >> 10 & 0x1fu;
  std::uint32_t const fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact in float
    float const magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  std::uint32_t const wide = exponent == 0x1fu ? 0xffu : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

[[nodiscard]] inline float float_of_bfloat(std::uint16_t bits)
{
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Files promise no alignment inside a block.
template <class T>
[[nodiscard]] T load(std::byte const* from)
{
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace llama
