// SPDX-License-Identifier: Apache-2.0
// The kernel of examples/01_your_kernel.hpp in a CUDA kernel: the same text, one thread a query head. Compiled, not run.

#include "../../examples/01_your_kernel.hpp"

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

using Half = kvcache::PagedHeads<kvcache::half, 64, 16>;
using Any = kvcache::PagedHeads<kvcache::bfloat16>;

template __global__ void attend_all<Half>(
  kvcache::BatchView<Half>, std::int32_t, std::int32_t, std::int32_t, float const*, float*);
template __global__ void attend_all<Any>(
  kvcache::BatchView<Any>, std::int32_t, std::int32_t, std::int32_t, float const*, float*);
