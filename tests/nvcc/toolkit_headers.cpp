// SPDX-License-Identifier: Apache-2.0
// A host program that includes the toolkit's headers and ours, compiled without nvcc: their names, macros and types do
// not meet ours. tests/nvcc/run.sh compiles it once as it is and once with ours first.

#if !defined(OURS_FIRST)
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include <kvcache/device/cuda.hpp>
#include <kvcache/host.hpp>
#include <kvcache/kvcache.hpp>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

static_assert(KVCACHE_HAS_CUDA == 0, "the toolkit's headers alone make no CUDA compiler");
static_assert(!std::is_same_v<kvcache::half, __half>);
static_assert(sizeof(kvcache::half) == sizeof(__half));
static_assert(sizeof(kvcache::bfloat16) == sizeof(__nv_bfloat16));

int main()
{
  using Cache = kvcache::KVCache<kvcache::PagedHeads<kvcache::half, 64, 16>>;
  auto const cache = Cache::create({.layers = 1, .kv_heads = 1}, {.pages = 4});
  using Theirs = kvcache::KVCache<kvcache::PagedHeads<__nv_bfloat16, 64, 16>>;
  auto const theirs = Theirs::create({.layers = 1, .kv_heads = 1}, {.pages = 4});
  return cache && theirs ? 0 : 1;
}
