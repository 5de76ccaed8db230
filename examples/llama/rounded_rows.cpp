// SPDX-License-Identifier: Apache-2.0
#include "rounded_rows.hpp"

#include "ops_kernels.hpp"

namespace llama {

void RoundedRows::round(
  float const* x, std::size_t x_stride, std::size_t n, std::size_t cols, Threads& threads)
{
  n_ = n;
  cols_ = cols;
  std::size_t const blocks = cols / rounded_block;
  q_.resize(n * cols);
  planes_.resize(2 * n * cols);
  scales_.resize(n * blocks);
  sums_.resize(n * blocks);
  threads.run_short(n, [&](std::size_t t) {
    RoundedRow const out{&q_[t * cols], &planes_[2 * t * cols], &scales_[t], &sums_[t], n};
    kernels().round(x + t * x_stride, cols, out);
  });
}

}  // namespace llama
