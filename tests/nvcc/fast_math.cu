// SPDX-License-Identifier: Apache-2.0
// Compiled by run.sh with -use_fast_math: a turn has no approximate sine, cosine or quotient.

#include <kvcache/view/rope.hpp>
__global__ void turn(kvcache::Rope rope, kvcache::Index position, float* out)
{
  kvcache::Rope::Turn const t = rope.turn(position, static_cast<std::int32_t>(threadIdx.x));
  out[2 * threadIdx.x] = t.cos;
  out[2 * threadIdx.x + 1] = t.sin;
}
