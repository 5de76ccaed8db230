// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Random weights in every format. Values are chosen first and packed by the format's definition, so that a
/// decoder is tested against what was meant, in double precision, and not against another decoder.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "llama/ops.hpp"
#include "llama/ops_kernels.hpp"

namespace llama_test {

using llama::Weights;
using llama::WeightType;
using Random = std::mt19937;

inline constexpr WeightType all_types[] = {WeightType::f32,
                                           WeightType::f16,
                                           WeightType::bf16,
                                           WeightType::q8_0,
                                           WeightType::q4_0,
                                           WeightType::q4_1,
                                           WeightType::q5_0,
                                           WeightType::q4_k,
                                           WeightType::q6_k};

[[nodiscard]] inline std::vector<llama::Kernels const*> all_kernels()
{
  std::vector<llama::Kernels const*> all{&llama::portable_kernels()};
  for (auto const* kernels :
       {llama::avx2_kernels(), llama::avx512_kernels(), llama::amx_kernels()}) {
    if (kernels != nullptr) {
      all.push_back(kernels);
    }
  }
  return all;
}

/// The next number of columns that `type` can have.
[[nodiscard]] inline std::size_t columns_for(WeightType type, std::size_t wanted)
{
  std::size_t const values = llama::block_size(type).values;
  return (wanted + values - 1) / values * values;
}

[[nodiscard]] inline std::vector<float> random_floats(std::size_t n, Random& random)
{
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  std::generate(out.begin(), out.end(), [&] { return normal(random); });
  return out;
}

/// Bytes as they are written, and what they mean.
class Writer {
 public:
  explicit Writer(Random& random) : random_(&random) {}

  void piece(WeightType type)
  {
    switch (type) {
      case WeightType::f32: {
        float const f = random_floats(1, *random_)[0];
        put(&f, 4);
        return mean(static_cast<double>(f));
      }
      case WeightType::f16:
        return mean(half());
      case WeightType::bf16:
        return bfloat();
      case WeightType::q4_k:
        return q4_k();
      case WeightType::q6_k:
        return q6_k();
      default:
        return simple_block(type);
    }
  }

  std::vector<std::byte> bytes;
  std::vector<double> values;

 private:
  [[nodiscard]] int below(unsigned n) { return static_cast<int>((*random_)() % n); }
  void put(void const* from, std::size_t size)
  {
    auto const* first = static_cast<std::byte const*>(from);
    bytes.insert(bytes.end(), first, first + size);
  }
  void put_byte(int value) { bytes.push_back(static_cast<std::byte>(value & 255)); }
  void mean(double value) { values.push_back(value); }

  /// Writes a half between 2^-7 and 1/2 in size and returns its value by the definition of the format.
  double half()
  {
    auto const fraction = static_cast<unsigned>(below(1024));
    auto const exponent = static_cast<unsigned>(8 + below(6));
    bool const negative = below(2) == 0;
    auto const bits =
      static_cast<std::uint16_t>((negative ? 0x8000u : 0u) | exponent << 10 | fraction);
    put(&bits, 2);
    double const size = std::ldexp(1024.0 + fraction, static_cast<int>(exponent) - 25);
    return negative ? -size : size;
  }

  void bfloat()
  {
    float f = random_floats(1, *random_)[0];
    std::uint32_t bits;
    std::memcpy(&bits, &f, 4);
    auto const high = static_cast<std::uint16_t>(bits >> 16);
    bits &= 0xffff0000u;
    std::memcpy(&f, &bits, 4);
    put(&high, 2);
    mean(static_cast<double>(f));
  }

  /// Q8_0, Q4_0, Q4_1, Q5_0: 32 numbers, one scale.
  void simple_block(WeightType type)
  {
    double const d = half();
    double const m = type == WeightType::q4_1 ? half() : 0.0;
    bool const bytes_each = type == WeightType::q8_0;
    bool const fifth = type == WeightType::q5_0;
    std::array<int, 32> q;
    for (int& value : q) {
      value = below(bytes_each ? 256 : fifth ? 32 : 16);
    }
    if (fifth) {
      std::uint32_t high = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        high |= static_cast<std::uint32_t>(q[i] >> 4) << i;
      }
      put(&high, 4);
    }
    for (std::size_t i = 0; i < (bytes_each ? 32U : 16U); ++i) {
      put_byte(bytes_each ? q[i] - 128 : (q[i] & 15) | (q[i + 16] & 15) << 4);
    }
    int const centre = bytes_each ? 128 : fifth ? 16 : type == WeightType::q4_0 ? 8 : 0;
    for (int value : q) {
      mean(d * (value - centre) + m);
    }
  }

  void q4_k()
  {
    double const d = half();
    double const dmin = half();
    std::array<int, 8> s;
    std::array<int, 8> t;
    for (std::size_t j = 0; j < 8; ++j) {
      s[j] = below(64);
      t[j] = below(64);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      put_byte(s[j] | s[j + 4] >> 4 << 6);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      put_byte(t[j] | t[j + 4] >> 4 << 6);
    }
    for (std::size_t j = 4; j < 8; ++j) {
      put_byte((s[j] & 15) | (t[j] & 15) << 4);
    }
    std::array<int, 256> q;
    for (int& value : q) {
      value = below(16);
    }
    for (std::size_t at = 0; at < 256; at += 64) {
      for (std::size_t i = at; i < at + 32; ++i) {
        put_byte(q[i] | q[i + 32] << 4);
      }
    }
    for (std::size_t i = 0; i < 256; ++i) {
      mean(d * s[i / 32] * q[i] - dmin * t[i / 32]);
    }
  }

  void q6_k()
  {
    std::array<int, 256> q;
    for (int& value : q) {
      value = below(64);
    }
    for (std::size_t at = 0; at < 256; at += 128) {
      for (std::size_t i = at; i < at + 64; ++i) {
        put_byte((q[i] & 15) | (q[i + 64] & 15) << 4);
      }
    }
    for (std::size_t at = 0; at < 256; at += 128) {
      for (std::size_t i = at; i < at + 32; ++i) {
        put_byte(q[i] >> 4 | q[i + 32] >> 4 << 2 | q[i + 64] >> 4 << 4 | q[i + 96] >> 4 << 6);
      }
    }
    std::array<int, 16> s;
    for (int& scale : s) {
      scale = below(256) - 128;
      put_byte(scale);
    }
    double const d = half();
    for (std::size_t i = 0; i < 256; ++i) {
      mean(d * s[i / 16] * (q[i] - 32));
    }
  }

  Random* random_;
};

/// Encoded random weights, and the values that the format's definition gives them, in double precision.
struct Matrix {
  std::vector<std::byte> bytes;
  std::vector<double> values;
  Weights weights;
};

[[nodiscard]] inline Matrix random_matrix(WeightType type,
                                          std::size_t rows,
                                          std::size_t cols,
                                          Random& random)
{
  Writer writer(random);
  while (writer.values.size() < rows * cols) {
    writer.piece(type);
  }
  Matrix m{std::move(writer.bytes), std::move(writer.values), {}};
  m.weights = {m.bytes.data(), rows, cols, type};
  return m;
}

/// The sum and the sum of magnitudes: rounding errors are a share of the latter.
struct Dot {
  double sum = 0;
  double magnitude = 0;
};
[[nodiscard]] inline Dot exact_dot(double const* w, float const* x, std::size_t cols)
{
  Dot dot;
  for (std::size_t i = 0; i < cols; ++i) {
    double const product = w[i] * static_cast<double>(x[i]);
    dot.sum += product;
    dot.magnitude += std::fabs(product);
  }
  return dot;
}

}  // namespace llama_test
