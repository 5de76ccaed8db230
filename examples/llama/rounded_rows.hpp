// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Activations rounded to 16 bits, so that products with quantised weights are sums of whole numbers.
///
///   x[i] ~ scale * q[i],  q in [-32639, 32639],  one scale for 32 values     |error| <= scale / 2
///
/// A block's sum of q_w * q_x is exact in 32 bits; only the sum over blocks is a float's. Eight bits would be
/// faster for prompts, but move SmolLM2's logits by up to 0.8 and its answers with them; sixteen move the
/// logits by less than a hundredth. Whoever multiplies bytes finds q as two planes of them,
/// q = 256 high + low; 32639 = 127 * 256 + 127 is the largest q that both planes can hold.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "threads.hpp"

namespace llama {

inline constexpr std::size_t rounded_block = 32;
inline constexpr float largest_rounded = 32639.0f;

/// Blocks without a value of this size become zeros: the inverse of their scale could be no float.
inline constexpr float smallest_rounded = 1e-30f;

/// One row to write.
struct RoundedRow {
  std::int16_t* q;      // (cols)
  std::int8_t* planes;  // (cols / 32, {high, low}, 32)
  float* scales;        // (cols / 32, step) of which the first column is this row's
  float* sums;       // the same of scale * q over a block: what an offset of the weights multiplies
  std::size_t step;  // how many rows there are
};

/// Rows to read. **Shape** q (n, cols); planes (n, cols / 32, 2, 32); scales and sums (cols / 32, step), so that those of
/// many rows that meet one block of weights lie together
struct RoundedView {
  std::int16_t const* q;
  std::int8_t const* planes;
  float const* scales;
  float const* sums;
  std::size_t cols;
  std::size_t step;

  [[nodiscard]] std::size_t blocks() const { return cols / rounded_block; }
  [[nodiscard]] RoundedView from(std::size_t row) const
  {
    return {q + row * cols, planes + row * 2 * cols, scales + row, sums + row, cols, step};
  }
};

/// Rounded rows and their memory, kept from step to step.
class RoundedRows {
 public:
  /// Rounds `n` rows of `x`, `x_stride` floats apart. **Pre** `cols` is a multiple of 32.
  void round(
    float const* x, std::size_t x_stride, std::size_t n, std::size_t cols, Threads& threads);

  [[nodiscard]] std::size_t size() const { return n_; }
  [[nodiscard]] RoundedView view() const
  {
    return {q_.data(), planes_.data(), scales_.data(), sums_.data(), cols_, n_};
  }

 private:
  std::size_t n_ = 0;
  std::size_t cols_ = 0;
  std::vector<std::int16_t> q_;
  std::vector<std::int8_t> planes_;
  std::vector<float> scales_;
  std::vector<float> sums_;
};

}  // namespace llama
