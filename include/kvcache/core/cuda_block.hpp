// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#if KVCACHE_HAS_CUDA

#include <kvcache/core/isa/barrier.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file A block of threads on a GPU, as kernels see it (`thread_block.hpp` says what they may ask).
///
/// The host pass of nvcc reads kernels too, so every member is there in both passes; on a host it traps, and nothing calls it.
/// **Pre** blocks and grids of one dimension.

namespace kvcache::inline v0_1 {

#if defined(__CUDA_ARCH__)

/// A warp of the running block.
class CudaWarp {
 public:
  KVCACHE_HOST_DEVICE std::int32_t lane() const
  {
    return static_cast<std::int32_t>(threadIdx.x % 32U);
  }
  KVCACHE_HOST_DEVICE std::int32_t index() const
  {
    return static_cast<std::int32_t>(threadIdx.x / 32U);
  }
  KVCACHE_HOST_DEVICE void sync(std::uint32_t mask = all_lanes) const { __syncwarp(mask); }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle(T x, std::int32_t from, std::uint32_t mask = all_lanes) const
  {
    return __builtin_bit_cast(T, __shfl_sync(mask, word(x), from));
  }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle_xor(T x, std::int32_t with, std::uint32_t mask = all_lanes) const
  {
    return __builtin_bit_cast(T, __shfl_xor_sync(mask, word(x), with));
  }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle_up(T x, std::int32_t by, std::uint32_t mask = all_lanes) const
  {
    return __builtin_bit_cast(T, __shfl_up_sync(mask, word(x), static_cast<unsigned>(by)));
  }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle_down(T x, std::int32_t by, std::uint32_t mask = all_lanes) const
  {
    return __builtin_bit_cast(T, __shfl_down_sync(mask, word(x), static_cast<unsigned>(by)));
  }
  KVCACHE_HOST_DEVICE std::uint32_t ballot(bool yes, std::uint32_t mask = all_lanes) const
  {
    return __ballot_sync(mask, yes ? 1 : 0);
  }
  KVCACHE_HOST_DEVICE bool any(bool yes, std::uint32_t mask = all_lanes) const
  {
    return __any_sync(mask, yes ? 1 : 0) != 0;
  }
  KVCACHE_HOST_DEVICE bool all(bool yes, std::uint32_t mask = all_lanes) const
  {
    return __all_sync(mask, yes ? 1 : 0) != 0;
  }

 private:
  template <class T>
  KVCACHE_HOST_DEVICE static auto word(T x)
  {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "kvcache: lanes shuffle values of 4 or 8 bytes");
    if constexpr (sizeof(T) == 4) {
      return __builtin_bit_cast(unsigned, x);
    } else {
      return __builtin_bit_cast(unsigned long long, x);
    }
  }
};

/// The running block.
class CudaBlock {
 public:
  KVCACHE_HOST_DEVICE std::int32_t thread() const { return static_cast<std::int32_t>(threadIdx.x); }
  KVCACHE_HOST_DEVICE std::int32_t threads() const { return static_cast<std::int32_t>(blockDim.x); }
  KVCACHE_HOST_DEVICE std::int32_t index() const { return static_cast<std::int32_t>(blockIdx.x); }
  KVCACHE_HOST_DEVICE std::int32_t blocks() const { return static_cast<std::int32_t>(gridDim.x); }
  KVCACHE_HOST_DEVICE void sync() const { __syncthreads(); }
  KVCACHE_HOST_DEVICE void sync(std::int32_t barrier, std::int32_t threads) const
  {
    isa::bar_sync(barrier, threads);
  }
  KVCACHE_HOST_DEVICE std::byte* shared() const
  {
    extern __shared__ __align__(128) std::byte kvcache_shared_memory[];
    return kvcache_shared_memory;
  }
  KVCACHE_HOST_DEVICE CudaWarp& warp() { return warp_; }

 private:
  CudaWarp warp_;
};

#else

/// What the host pass reads.
class CudaWarp {
 public:
  KVCACHE_HOST_DEVICE std::int32_t lane() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE std::int32_t index() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE void sync(std::uint32_t = all_lanes) const { __builtin_trap(); }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle(T, std::int32_t, std::uint32_t = all_lanes) const
  {
    __builtin_trap();
  }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle_xor(T, std::int32_t, std::uint32_t = all_lanes) const
  {
    __builtin_trap();
  }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle_up(T, std::int32_t, std::uint32_t = all_lanes) const
  {
    __builtin_trap();
  }
  template <class T>
  KVCACHE_HOST_DEVICE T shuffle_down(T, std::int32_t, std::uint32_t = all_lanes) const
  {
    __builtin_trap();
  }
  KVCACHE_HOST_DEVICE std::uint32_t ballot(bool, std::uint32_t = all_lanes) const
  {
    __builtin_trap();
  }
  KVCACHE_HOST_DEVICE bool any(bool, std::uint32_t = all_lanes) const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE bool all(bool, std::uint32_t = all_lanes) const { __builtin_trap(); }
  // What the twins of core/isa ask for, which that pass reads.
  template <class T>
  KVCACHE_HOST_DEVICE void exchange(std::uint32_t, T const&, T*) const
  {
    __builtin_trap();
  }
  KVCACHE_HOST_DEVICE void async_copy(void*, void const*, std::int32_t, std::int32_t) const
  {
    __builtin_trap();
  }
  KVCACHE_HOST_DEVICE void async_commit() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE void async_wait(std::int32_t) const { __builtin_trap(); }
};

/// What the host pass reads.
class CudaBlock {
 public:
  KVCACHE_HOST_DEVICE std::int32_t thread() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE std::int32_t threads() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE std::int32_t index() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE std::int32_t blocks() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE void sync() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE void sync(std::int32_t, std::int32_t) const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE std::byte* shared() const { __builtin_trap(); }
  KVCACHE_HOST_DEVICE CudaWarp& warp() { return warp_; }

 private:
  CudaWarp warp_;
};

#endif

static_assert(ThreadBlock<CudaBlock>);

}  // namespace kvcache::inline v0_1

#endif
