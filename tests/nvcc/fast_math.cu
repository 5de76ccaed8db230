// SPDX-License-Identifier: Apache-2.0
// Compiled by run.sh with -use_fast_math: a turn has an exact quotient and the sine of an angle less its turns.

#include <kvcache/view/rope.hpp>
__global__ void turn(kvcache::Rope rope, kvcache::Index position, float* out)
{
  kvcache::Rope::Turn const t = rope.turn(position, static_cast<std::int32_t>(threadIdx.x));
  out[2 * threadIdx.x] = t.cos;
  out[2 * threadIdx.x + 1] = t.sin;
}
