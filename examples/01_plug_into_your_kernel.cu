// SPDX-License-Identifier: Apache-2.0
// The kernel of 01_your_kernel.hpp, the same text as in 01_plug_into_your_kernel.cpp, in CUDA: a step's rows are stored
// by a warp each, then attended with one thread a query head. Compiled by tests/nvcc/run.sh, not run.

#include <kvcache/view.hpp>

#include <cuda_runtime.h>

#include <cstdint>

#include "01_your_kernel.hpp"

/// Stores one row of K and V. **Shape** k, v `(tokens, kv_heads, head_dim)`; a block a token and head, 32 threads.
template <class Layout>
__global__ void append_all(kvcache::BatchView<Layout> kv,
                           std::int32_t layer,
                           float const* k,
                           float const* v)
{
  kvcache::Index const token = static_cast<kvcache::Index>(blockIdx.x);
  auto const head = static_cast<std::int32_t>(blockIdx.y);
  auto const kv_heads = static_cast<std::int32_t>(gridDim.y);
  std::size_t const at =
    static_cast<std::size_t>(token * kv_heads + head) * static_cast<std::size_t>(kv.map.dim.get());
  kvcache::Lanes const warp{static_cast<std::int32_t>(threadIdx.x), 32};
  kv.append(warp, layer, head, token, k + at, v + at);
}

/// **Shape** q, out `(tokens, heads, head_dim)`; a block a token, a thread a query head.
template <class Layout>
__global__ void attend_all(kvcache::BatchView<Layout> kv,
                           std::int32_t layer,
                           std::int32_t heads,
                           std::int32_t kv_heads,
                           float const* q,
                           float* out)
{
  kvcache::Index const token = static_cast<kvcache::Index>(blockIdx.x);
  auto const head = static_cast<std::int32_t>(threadIdx.x);
  std::size_t const at =
    static_cast<std::size_t>(token * heads + head) * static_cast<std::size_t>(kv.map.dim.get());
  attend(kv, layer, head / (heads / kv_heads), token, q + at, out + at);
}

/// One layer of a step whose view lies in the device's memory. Nothing in the grid depends on the step: `tokens` is the
/// most that a step may have, and padding writes nothing and gets zeros, so a captured graph replays with every step.
template <class Layout>
void layer_of_step(cudaStream_t stream,
                   kvcache::BatchView<Layout> const& kv,
                   std::int32_t layer,
                   unsigned tokens,
                   unsigned heads,
                   unsigned kv_heads,
                   float const* q,
                   float const* k,
                   float const* v,
                   float* out)
{
  append_all<<<dim3(tokens, kv_heads), 32, 0, stream>>>(kv, layer, k, v);
  attend_all<<<tokens, heads, 0, stream>>>(
    kv, layer, static_cast<std::int32_t>(heads), static_cast<std::int32_t>(kv_heads), q, out);
}

using Half = kvcache::PagedHeads<kvcache::half, 64, 16>;
using Any = kvcache::PagedHeads<kvcache::bfloat16>;

template void layer_of_step<Half>(cudaStream_t,
                                  kvcache::BatchView<Half> const&,
                                  std::int32_t,
                                  unsigned,
                                  unsigned,
                                  unsigned,
                                  float const*,
                                  float const*,
                                  float const*,
                                  float*);
template void layer_of_step<Any>(cudaStream_t,
                                 kvcache::BatchView<Any> const&,
                                 std::int32_t,
                                 unsigned,
                                 unsigned,
                                 unsigned,
                                 float const*,
                                 float const*,
                                 float const*,
                                 float*);
