// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Element types as an engine has its own: classes with other names than ours, made known by a trait alone.

#include <kvcache/core/dtype.hpp>

#include <cstdint>
#include <cstring>

namespace engine {

/// A brain float behind a constructor, as vendors' headers have it.
class Bf16 {
 public:
  Bf16() = default;
  static Bf16 narrow(float x)
  {
    std::uint32_t u = 0;
    std::memcpy(&u, &x, sizeof u);
    Bf16 out;
    out.data_ = static_cast<std::uint16_t>((u + 0x7fffU + (u >> 16 & 1U)) >> 16);
    return out;
  }
  explicit operator float() const
  {
    std::uint32_t const u = static_cast<std::uint32_t>(data_) << 16;
    float x = 0.0F;
    std::memcpy(&x, &u, sizeof x);
    return x;
  }

 private:
  std::uint16_t data_;
};

/// e4m3 without infinities: 1 sign, 4 bits of exponent, 3 of fraction. Whole numbers to 16 are exact.
struct Fp8 {
  unsigned char bits;
};

inline float widen(Fp8 x)
{
  int const exponent = x.bits >> 3 & 15;
  float out = static_cast<float>(exponent == 0 ? x.bits & 7 : (x.bits & 7) + 8);
  for (int e = exponent == 0 ? 1 : exponent; e < 10; ++e) {
    out *= 0.5F;
  }
  for (int e = 10; e < exponent; ++e) {
    out *= 2.0F;
  }
  return x.bits > 127 ? -out : out;
}

/// To the nearest; the larger of two that are equally near.
inline Fp8 narrow(float x)
{
  float const size = x < 0 ? -x : x;
  unsigned char bits = 0;
  for (unsigned char bit = 64; bit != 0; bit = static_cast<unsigned char>(bit >> 1)) {
    auto const larger = static_cast<unsigned char>(bits | bit);
    bits = larger < 127 && widen(Fp8{larger}) <= size ? larger : bits;
  }
  Fp8 const next{static_cast<unsigned char>(bits + 1)};
  bits = bits < 126 && widen(next) - size <= size - widen(Fp8{bits}) ? next.bits : bits;
  return {static_cast<unsigned char>(x < 0 ? bits | 128 : bits)};
}

}  // namespace engine

template <>
struct kvcache::ElementTraits<engine::Bf16> {
  static float to_float(engine::Bf16 x) { return static_cast<float>(x); }
  static engine::Bf16 from_float(float x) { return engine::Bf16::narrow(x); }
};

template <>
struct kvcache::ElementTraits<engine::Fp8> {
  static float to_float(engine::Fp8 x) { return engine::widen(x); }
  static engine::Fp8 from_float(float x) { return engine::narrow(x); }
};
