// SPDX-License-Identifier: Apache-2.0
#include "ops.hpp"

#include <algorithm>
#include <cmath>

#include "ops_kernels.hpp"

namespace llama {
namespace {

/// The rows of one work item: decoded rows of one item stay in a core's second-level cache.
constexpr std::size_t tile_rows = 16;

/// Calls `work(product, first row, rows)` for pieces of all products, on all threads.
template <class Work>
void share_rows(std::span<Product const> products, Threads& threads, Work const& work)
{
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
  threads.run(items, [&](std::size_t item) {
    auto const* product = products.data();
    for (std::size_t own; item >= (own = (product->w->rows + item_rows - 1) / item_rows);) {
      item -= own;
      ++product;
    }
    std::size_t const row = item * item_rows;
    work(*product, row, std::min(item_rows, product->w->rows - row));
  });
}

}  // namespace

char const* kernels_in_use()
{
  return kernels().name;
}

void multiply(std::span<Product const> products,
              float const* x,
              std::size_t x_stride,
              std::size_t n,
              Threads& threads)
{
  if (n == 0) {
    return;
  }
  share_rows(products, threads, [&](Product const& product, std::size_t row, std::size_t rows) {
    Weights const& w = *product.w;
    std::size_t const bytes = row_bytes(w.type, w.cols);
    thread_local std::vector<float> decoded;
    std::size_t const stride = (w.cols + pad_floats - 1) / pad_floats * pad_floats;
    decoded.resize(std::max(decoded.size(), tile_rows * stride));
    for (std::size_t const end = row + rows; row < end; row += tile_rows) {
      std::size_t const many = std::min(tile_rows, end - row);
      for (std::size_t r = 0; r < many; ++r) {
        kernels().decode(w.type, w.bytes + (row + r) * bytes, w.cols, decoded.data() + r * stride);
      }
      kernels().times({decoded.data(), stride},
                      many,
                      w.cols,
                      {x, x_stride},
                      n,
                      {product.y + row, product.y_stride});
    }
  });
}

void multiply(std::span<Product const> products, RoundedRows const& x, Threads& threads)
{
  if (x.size() == 0) {
    return;
  }
  share_rows(products, threads, [&](Product const& product, std::size_t row, std::size_t rows) {
    Weights const& w = *product.w;
    EncodedRows const piece{w.type, w.bytes + row * row_bytes(w.type, w.cols), rows, w.cols};
    if (x.size() == 1) {
      kernels().rounded_times_one(piece, x.view(), product.y + row);
    } else {
      kernels().rounded_times_many(piece, x.view(), x.size(), {product.y + row, product.y_stride});
    }
  });
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
  kernels().rms_norm(x, gain, width, epsilon, out);
}

void swiglu(float* gate, float const* up, std::size_t width)
{
  kernels().swiglu(gate, up, width);
}

void add(float* x, float const* y, std::size_t width)
{
  kernels().add(x, y, width);
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
