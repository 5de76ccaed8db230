// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The only place that asks which compiler is at work.
///
/// Three builds read these headers: a plain host compiler, the same with the CUDA headers on its path,
/// and nvcc. A function marked KVCACHE_HOST_DEVICE runs in all of them, on both sides of nvcc, and
/// therefore calls nothing from `std::`.

#if defined(__CUDACC__)
#define KVCACHE_HAS_CUDA 1
#define KVCACHE_HOST_DEVICE __host__ __device__
#else
#define KVCACHE_HAS_CUDA 0
#define KVCACHE_HOST_DEVICE
#endif
