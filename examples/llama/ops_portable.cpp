// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "blocks.hpp"
#include "ops_kernels.hpp"

namespace llama {
namespace {

constexpr std::size_t lanes = 8;

void decode(WeightType type, std::byte const* row, std::size_t cols, float* out)
{
  if (has_blocks(type)) {
    Block block;
    for (std::size_t i = 0; i < cols; ++i) {
      std::size_t const at = i % 32;
      if (at == 0) {
        decode_block(type, row, i / 32, block);
      }
      out[i] = block.scales.d[at / 16] * static_cast<float>(block.q[at]) + block.scales.m;
    }
    return;
  }
  for (std::size_t i = 0; i < cols; ++i) {
    out[i] = type == WeightType::f32   ? load<float>(row + 4 * i)
             : type == WeightType::f16 ? float_of_half(load<std::uint16_t>(row + 2 * i))
                                       : float_of_bfloat(load<std::uint16_t>(row + 2 * i));
  }
  for (std::size_t i = cols; i % pad_floats != 0; ++i) {
    out[i] = 0.0f;
  }
}

float dot(float const* w, float const* x, std::size_t cols)
{
  float sum[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sum[lane] += w[i + lane] * x[i + lane];
    }
  }
  for (std::size_t lane = 0; i + lane < cols; ++lane) {
    sum[lane] += w[i + lane] * x[i + lane];
  }
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

void times(FloatRows w, std::size_t rows, std::size_t cols, FloatRows x, std::size_t n, OutRows y)
{
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t r = 0; r < rows; ++r) {
      y.at[t * y.stride + r] = dot(w.from(r).at, x.from(t).at, cols);
    }
  }
}

void round(float const* x, std::size_t cols, RoundedRow out)
{
  for (std::size_t b = 0; b < cols / rounded_block; ++b) {
    float const* from = x + b * rounded_block;
    float most = 0.0f;
    for (std::size_t i = 0; i < rounded_block; ++i) {
      most = std::max(most, std::fabs(from[i]));
    }
    bool const tiny = most < smallest_rounded;
    float const up = tiny ? 0.0f : largest_rounded / most;
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < rounded_block; ++i) {
      auto const q = static_cast<std::int16_t>(std::lrint(from[i] * up));
      auto const low = static_cast<std::int8_t>(q & 255);
      out.q[b * rounded_block + i] = q;
      out.planes[2 * b * rounded_block + i] = static_cast<std::int8_t>((q - low) / 256);
      out.planes[(2 * b + 1) * rounded_block + i] = low;
      sum += q;
    }
    out.scales[b * out.step] = tiny ? 0.0f : most * (1.0f / largest_rounded);
    out.sums[b * out.step] = out.scales[b * out.step] * static_cast<float>(sum);
  }
}

/// Adds block `b` of one weight row times one activation row.
void add_block(Block const& w, RoundedView x, std::size_t b, float& sum)
{
  std::int16_t const* q = x.q + b * rounded_block;
  std::int32_t dots[2] = {};
  for (std::size_t i = 0; i < rounded_block; ++i) {
    dots[i / 16] += w.q[i] * q[i];
  }
  sum += static_cast<float>(dots[0]) * (w.scales.d[0] * x.scales[b * x.step]);
  sum += static_cast<float>(dots[1]) * (w.scales.d[1] * x.scales[b * x.step]);
  sum += w.scales.m * x.sums[b * x.step];
}

void rounded_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  for (std::size_t r = 0; r < w.rows; ++r) {
    std::byte const* row = w.at + r * row_bytes(w.type, w.cols);
    for (std::size_t t = 0; t < n; ++t) {
      y.at[t * y.stride + r] = 0.0f;
    }
    for (std::size_t b = 0; b < x.blocks(); ++b) {
      Block block;
      decode_block(w.type, row, b, block);
      for (std::size_t t = 0; t < n; ++t) {
        add_block(block, x.from(t), b, y.at[t * y.stride + r]);
      }
    }
  }
}

void rounded_times_one(EncodedRows w, RoundedView x, float* y)
{
  rounded_times_many(w, x, 1, {y, w.rows});
}

void rms_norm(float const* x, float const* gain, std::size_t width, float epsilon, float* out)
{
  double sum[4] = {};
  for (std::size_t i = 0; i < width; ++i) {
    sum[i % 4] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  double const mean = ((sum[0] + sum[1]) + (sum[2] + sum[3])) / static_cast<double>(width);
  auto const scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
  for (std::size_t i = 0; i < width; ++i) {
    out[i] = x[i] * scale * gain[i];
  }
}

void add(float* x, float const* y, std::size_t width)
{
  for (std::size_t i = 0; i < width; ++i) {
    x[i] += y[i];
  }
}

void swiglu(float* gate, float const* up, std::size_t width)
{
  for (std::size_t i = 0; i < width; ++i) {
    gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

}  // namespace

Kernels const& portable_kernels()
{
  static constexpr Kernels portable{
    "portable", decode, times, round, rounded_times_one, rounded_times_many, rms_norm, add, swiglu};
  return portable;
}

Kernels const& kernels()
{
  static Kernels const& chosen = []() -> Kernels const& {
    for (auto* const set : {amx_kernels, avx512_kernels, avx2_kernels}) {
      if (Kernels const* const usable = set(); usable != nullptr) {
        return *usable;
      }
    }
    return portable_kernels();
  }();
  return chosen;
}

}  // namespace llama
