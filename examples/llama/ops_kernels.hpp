// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The inner loops behind ops.hpp, once per instruction set. Private to the example and its tests.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops.hpp"

namespace llama {

inline constexpr std::size_t block_values = 32;
inline constexpr std::size_t q8_0_bytes = 34;
inline constexpr std::size_t q4_0_bytes = 18;
inline constexpr std::size_t q4_1_bytes = 20;

/// Rows of decoded weights are padded with zeros to this many floats.
inline constexpr std::size_t pad_floats = 8;

/// Rows of floats, `stride` apart.
struct FloatRows {
  float const* at;
  std::size_t stride;

  [[nodiscard]] FloatRows from(std::size_t row) const { return {at + row * stride, stride}; }
};

/// The loops of one instruction set. All of them sum in the order that ops.hpp promises.
struct Kernels {
  char const* name;

  /// Decodes one row into `out`; the values up to the next multiple of `pad_floats` become 0.
  void (*decode)(WeightType type, std::byte const* row, std::size_t cols, float* out);

  /// y[r] = row r . x for `rows` encoded rows that lie one after the other.
  void (*times_one)(WeightType type,
                    std::byte const* w,
                    std::size_t rows,
                    std::size_t cols,
                    float const* x,
                    float* y);

  /// y[t][r] = w[r] . x[t] for `rows` decoded, padded rows and `n` rows of x.
  void (*times_many)(FloatRows w,
                     std::size_t rows,
                     std::size_t cols,
                     FloatRows x,
                     std::size_t n,
                     float* y,
                     std::size_t y_stride);

  /// gate = silu(gate) * up.
  void (*swiglu)(float* gate, float const* up, std::size_t width);
};

[[nodiscard]] Kernels const& portable_kernels();

/// The AVX2, FMA and F16C loops, or null where this machine or this build has none.
[[nodiscard]] Kernels const* avx2_kernels();

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
