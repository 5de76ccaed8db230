// SPDX-License-Identifier: Apache-2.0
// The least that an engine with a cache on a GPU compiles; tests/nvcc/run.sh says what it costs.

#include <kvcache/cuda.cuh>

int main()
{
  using Cache = kvcache::KVCache<kvcache::PagedHeads<__half, 64, 16>>;
  kvcache::CudaDevice gpu;
  auto cache = Cache::create({.layers = 2, .kv_heads = 2}, {.pages = 8, .device = &gpu});
  return cache && cache->prepare({}) ? 0 : 1;
}
