// SPDX-License-Identifier: Apache-2.0
#include "ops.hpp"

#include <algorithm>
#include <cmath>

#include "ops_kernels.hpp"

namespace llama {
namespace {

constexpr std::size_t lanes = 8;

void decode_portable(WeightType type, std::byte const* row, std::size_t cols, float* out)
{
  for (std::size_t i = 0; i < cols; ++i) {
    std::size_t const at = i % block_values;
    switch (type) {
      case WeightType::f32:
        out[i] = load<float>(row + 4 * i);
        break;
      case WeightType::f16:
        out[i] = float_of_half(load<std::uint16_t>(row + 2 * i));
        break;
      case WeightType::bf16:
        out[i] = float_of_bfloat(load<std::uint16_t>(row + 2 * i));
        break;
      case WeightType::q8_0: {
        std::byte const* block = row + i / block_values * q8_0_bytes;
        out[i] = float_of_half(load<std::uint16_t>(block)) *
                 static_cast<float>(load<std::int8_t>(block + 2 + at));
        break;
      }
      case WeightType::q4_0: {
        std::byte const* block = row + i / block_values * q4_0_bytes;
        auto const pair = std::to_integer<int>(block[2 + at % 16]);
        int const q = (at < 16 ? pair & 15 : pair >> 4) - 8;
        out[i] = float_of_half(load<std::uint16_t>(block)) * static_cast<float>(q);
        break;
      }
      case WeightType::q4_1: {
        std::byte const* block = row + i / block_values * q4_1_bytes;
        auto const pair = std::to_integer<unsigned>(block[4 + at % 16]);
        auto const q = static_cast<float>(at < 16 ? pair & 15u : pair >> 4);
        out[i] = float_of_half(load<std::uint16_t>(block)) * q +
                 float_of_half(load<std::uint16_t>(block + 2));
        break;
      }
    }
  }
  for (std::size_t i = cols; i % pad_floats != 0; ++i) {
    out[i] = 0.0f;
  }
}

float dot_portable(float const* w, float const* x, std::size_t cols)
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

void times_one_portable(
  WeightType type, std::byte const* w, std::size_t rows, std::size_t cols, float const* x, float* y)
{
  std::vector<float> row(cols + pad_floats);
  std::size_t const bytes = row_bytes(type, cols);
  for (std::size_t r = 0; r < rows; ++r) {
    decode_portable(type, w + r * bytes, cols, row.data());
    y[r] = dot_portable(row.data(), x, cols);
  }
}

void times_many_portable(FloatRows w,
                         std::size_t rows,
                         std::size_t cols,
                         FloatRows x,
                         std::size_t n,
                         float* y,
                         std::size_t y_stride)
{
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t r = 0; r < rows; ++r) {
      y[t * y_stride + r] = dot_portable(w.from(r).at, x.from(t).at, cols);
    }
  }
}

void swiglu_portable(float* gate, float const* up, std::size_t width)
{
  for (std::size_t i = 0; i < width; ++i) {
    gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

Kernels const& kernels()
{
  static Kernels const& chosen = avx2_kernels() != nullptr ? *avx2_kernels() : portable_kernels();
  return chosen;
}

/// The rows of one work item: decoded rows of one item stay in a core's second-level cache.
constexpr std::size_t tile_rows = 16;

}  // namespace

Kernels const& portable_kernels()
{
  static constexpr Kernels portable{
    "portable", decode_portable, times_one_portable, times_many_portable, swiglu_portable};
  return portable;
}

char const* kernels_in_use()
{
  return kernels().name;
}

std::size_t row_bytes(WeightType type, std::size_t cols)
{
  switch (type) {
    case WeightType::f32:
      return cols * 4;
    case WeightType::f16:
    case WeightType::bf16:
      return cols * 2;
    case WeightType::q8_0:
      return cols / block_values * q8_0_bytes;
    case WeightType::q4_0:
      return cols / block_values * q4_0_bytes;
    case WeightType::q4_1:
      return cols / block_values * q4_1_bytes;
  }
  return 0;
}

void multiply(std::span<Product const> products,
              float const* x,
              std::size_t x_stride,
              std::size_t n,
              Threads& threads)
{
  if (n == 0 || products.empty()) {
    return;
  }
  std::size_t total = 0;
  for (auto const& product : products) {
    total += product.w->rows;
  }
  // A few items for each thread, so that one that is held up does not hold up the others.
  std::size_t const item_rows = std::max(
    tile_rows, (total / (std::size_t{8} * threads.size()) + tile_rows - 1) / tile_rows * tile_rows);
  std::size_t items = 0;
  for (auto const& product : products) {
    items += (product.w->rows + item_rows - 1) / item_rows;
  }
  auto const work = [&](std::size_t item) {
    auto const* product = products.data();
    for (std::size_t own; item >= (own = (product->w->rows + item_rows - 1) / item_rows);) {
      item -= own;
      ++product;
    }
    Weights const& w = *product->w;
    std::size_t const bytes = row_bytes(w.type, w.cols);
    std::size_t const end = std::min(w.rows, (item + 1) * item_rows);
    std::size_t row = item * item_rows;
    if (n == 1) {
      kernels().times_one(w.type, w.bytes + row * bytes, end - row, w.cols, x, product->y + row);
      return;
    }
    thread_local std::vector<float> decoded;
    std::size_t const stride = (w.cols + pad_floats - 1) / pad_floats * pad_floats;
    decoded.resize(std::max(decoded.size(), tile_rows * stride));
    for (; row < end; row += tile_rows) {
      std::size_t const rows = std::min(tile_rows, end - row);
      for (std::size_t r = 0; r < rows; ++r) {
        kernels().decode(w.type, w.bytes + (row + r) * bytes, w.cols, decoded.data() + r * stride);
      }
      kernels().times_many({decoded.data(), stride},
                           rows,
                           w.cols,
                           {x, x_stride},
                           n,
                           product->y + row,
                           product->y_stride);
    }
  };
  threads.run(items, work);
}

void decode_row(Weights const& w, std::size_t row, float* out)
{
  // The kernels pad, `out` has no room for that: the last values pass through a buffer.
  thread_local std::vector<float> padded;
  padded.resize(w.cols + pad_floats);
  kernels().decode(w.type, w.bytes + row * row_bytes(w.type, w.cols), w.cols, padded.data());
  std::copy_n(padded.data(), w.cols, out);
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

void swiglu(float* gate, float const* up, std::size_t width)
{
  kernels().swiglu(gate, up, width);
}

void add(float* x, float const* y, std::size_t width)
{
  for (std::size_t i = 0; i < width; ++i) {
    x[i] += y[i];
  }
}

Rope::Rope(std::size_t dims, double base) : dims_(dims), frequencies_(dims / 2)
{
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    double const exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
    frequencies_[i] = std::pow(base, exponent);
  }
}

void Rope::set_positions(std::span<std::int64_t const> positions)
{
  std::size_t const pairs = frequencies_.size();
  turns_.resize(positions.size() * pairs * 2);
  for (std::size_t row = 0; row < positions.size(); ++row) {
    for (std::size_t i = 0; i < pairs; ++i) {
      double const angle = static_cast<double>(positions[row]) * frequencies_[i];
      turns_[(row * pairs + i) * 2] = static_cast<float>(std::cos(angle));
      turns_[(row * pairs + i) * 2 + 1] = static_cast<float>(std::sin(angle));
    }
  }
}

void Rope::rotate(float* head, std::size_t row) const
{
  float const* turn = turns_.data() + row * dims_;
  for (std::size_t i = 0; i < dims_; i += 2) {
    float const a = head[i];
    float const b = head[i + 1];
    head[i] = a * turn[i] - b * turn[i + 1];
    head[i + 1] = a * turn[i + 1] + b * turn[i];
  }
}

}  // namespace llama
