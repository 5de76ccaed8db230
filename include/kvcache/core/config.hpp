// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The only place that asks which compiler is at work, and in which build.
///
/// Three builds read these headers: a plain host compiler, the same with the CUDA headers on its path,
/// and nvcc. A function marked KVCACHE_HOST_DEVICE runs in all of them, on both sides of nvcc, and
/// therefore calls nothing from `std::`.

static_assert(sizeof(void*) == 8,
              "kvcache: pointers of 64 bits are needed, and those of this build have 32");

#if defined(__CUDACC__)
#define KVCACHE_HAS_CUDA 1
#define KVCACHE_HOST_DEVICE __host__ __device__
#else
#define KVCACHE_HAS_CUDA 0
#define KVCACHE_HOST_DEVICE
#endif

/// Before a loop whose counter indexes an array of registers: these have no addresses, so an array that some loop goes
/// through by a number of the run time lies in memory.
#if defined(__CUDA_ARCH__)
#define KVCACHE_UNROLL _Pragma("unroll")
#else
#define KVCACHE_UNROLL
#endif

/// 1: the facade recounts everything after each call that may have changed it, and a broken invariant ends in the
/// failure hook. **Cost** O(all state) a call: pages, tokens and spans. 0: no code at all. Debug builds have 1, as
/// they have `assert`; define it to choose. Nothing changes its size, but say the same in all files of a program.
#if !defined(KVCACHE_CHECK_CALLS)
#if defined(NDEBUG)
#define KVCACHE_CHECK_CALLS 0
#else
#define KVCACHE_CHECK_CALLS 1
#endif
#endif

/// 1: views on the host say when a caller goes past their step's tokens. Never in code for a GPU.
#if KVCACHE_CHECK_CALLS != 0 && !defined(__CUDA_ARCH__)
#define KVCACHE_CHECK_VIEWS 1
#else
#define KVCACHE_CHECK_VIEWS 0
#endif

/// The name of an inline namespace around code whose numbers the flags of a file decide: what is compiled for AVX has another
/// name than what is not, so a linker that keeps one copy of a function never gives one file the other's instructions.
#if defined(__AVX512F__)
#define KVCACHE_FLAGS flags_avx512
#elif defined(__AVX2__)
#define KVCACHE_FLAGS flags_avx2
#elif defined(__AVX__)
#define KVCACHE_FLAGS flags_avx
#elif defined(__SSE4_2__)
#define KVCACHE_FLAGS flags_sse4
#elif defined(__ARM_FEATURE_SVE)
#define KVCACHE_FLAGS flags_sve
#else
#define KVCACHE_FLAGS flags_none
#endif
