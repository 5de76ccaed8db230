// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The arithmetic of a Llama decoder on a CPU.
///
/// Weights stay in the file's format and are decoded on the fly. There are two kinds of products:
///
///   float32   weights become floats: the logits of a float32 evaluation of the decoded weights
///   rounded   activations become 16-bit numbers (rounded_rows.hpp), weights with blocks stay whole numbers:
///             more than twice as fast, logits within a hundredth
///
/// One row of activations (decode) streams each weight block through registers once: the speed of memory.
/// Many rows (prefill) decode sixteen weight rows into the cache and multiply all activation rows with them:
/// the speed of the multipliers.
///
/// Either kind sums in one fixed order, whatever the number of rows: so a prompt gives the same bits however it is
/// cut into chunks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rounded_rows.hpp"
#include "threads.hpp"
#include "weight_type.hpp"

namespace llama {

/// A matrix in somebody else's memory. **Shape** (rows, cols), rows contiguous, no gaps.
struct Weights {
  std::byte const* bytes = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  WeightType type = WeightType::f32;
};

/// One y = W x of several that share x; row t of y starts at `y + t * y_stride`.
struct Product {
  Weights const* w;
  float* y;
  std::size_t y_stride;
};

/// y[t] = W x[t] for all products and `n` rows t. **Shape** x (n, cols) with `x_stride` floats a row.
/// **Pre** all products have the same number of columns. **Threads** all of `threads`.
void multiply(std::span<Product const> products,
              float const* x,
              std::size_t x_stride,
              std::size_t n,
              Threads& threads);

/// The same with rounded activations. **Pre** the weights have blocks, and as many columns as `x`.
void multiply(std::span<Product const> products, RoundedRows const& x, Threads& threads);

/// Decodes row `row` of `w` into `out`. **Shape** out (cols).
void decode_row(Weights const& w, std::size_t row, float* out);

/// out = x / sqrt(mean(x^2) + epsilon) * gain, for one row of `width`.
void rms_norm(float const* x, float const* gain, std::size_t width, float epsilon, float* out);

/// gate = silu(gate) * up, for one row of `width`.
void swiglu(float* gate, float const* up, std::size_t width);

/// x += y, for one row of `width`.
void add(float* x, float const* y, std::size_t width);

/// The rotations of a step's tokens: position p turns pair i by p * base^(-2i/dims).
class Rope {
 public:
  /// **Pre** `dims` is even.
  Rope(std::size_t dims, double base);

  /// Makes the tables for the rows of a step. **Cost** O(rows dims), in double precision.
  void set_positions(std::span<std::int64_t const> positions);

  /// Turns the pairs (2i, 2i + 1) of the first `dims` values of one head by the angle of `row`.
  void rotate(float* head, std::size_t row) const;

 private:
  std::size_t dims_;
  std::vector<double> frequencies_;  // dims / 2
  std::vector<float> turns_;         // (rows, dims / 2, {cos, sin})
};

/// The name of the kernels in use: "amx", "avx512", "avx2" or "portable".
[[nodiscard]] char const* kernels_in_use();

}  // namespace llama
