// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file Copies from global to shared memory that pass by the registers and land later.
///
/// A lane's copies since its last commit form a group; a wait holds the lane until all but its youngest groups have landed.
/// A wait speaks for the copies of its own lane only: a sync must follow before others read them.
/// Until then the bytes are undefined on both sides; the twin poisons them at the copy and writes them at the wait.

namespace kvcache::inline v0_1::isa {

/// Where a copy may leave a line behind.
enum class Cache : std::uint8_t {
  all,  ///< L1 and L2
  l2    ///< L2 only; copies of 16 bytes
};

/// `cp.async`: `real_bytes` from `global`, and zeros up to `Bytes`; nothing is read where `real_bytes` is 0.
/// **Pre** both addresses are multiples of `Bytes`; 0 <= `real_bytes` <= `Bytes`.
template <int Bytes, Cache Where = Bytes == 16 ? Cache::l2 : Cache::all, class Warp>
KVCACHE_HOST_DEVICE inline void cp_async([[maybe_unused]] Warp& warp,
                                         void* shared,
                                         void const* global,
                                         std::int32_t real_bytes = Bytes)
{
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16,
                "kvcache: cp.async copies 4, 8 or 16 bytes");
  static_assert(Where == Cache::all || Bytes == 16,
                "kvcache: only copies of 16 bytes can pass by L1");
#if defined(__CUDA_ARCH__)
  auto const to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  auto const from = static_cast<std::uint64_t>(__cvta_generic_to_global(global));
  if constexpr (Where == Cache::l2) {
    asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(real_bytes)
      : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from),
                 "n"(Bytes),
                 "r"(real_bytes)
                 : "memory");
  }
#else
  warp.async_copy(shared, global, Bytes, real_bytes);
#endif
}

/// `cp.async.commit_group`: closes the group of this lane's copies, which may be empty.
template <class Warp>
KVCACHE_HOST_DEVICE inline void cp_async_commit([[maybe_unused]] Warp& warp)
{
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  warp.async_commit();
#endif
}

/// `cp.async.wait_group`: waits until at most the `GroupsLeft` youngest groups of this lane are on their way.
template <int GroupsLeft, class Warp>
KVCACHE_HOST_DEVICE inline void cp_async_wait([[maybe_unused]] Warp& warp)
{
  static_assert(GroupsLeft >= 0, "kvcache: a wait leaves no fewer than 0 groups");
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(GroupsLeft) : "memory");
#else
  warp.async_wait(GroupsLeft);
#endif
}

}  // namespace kvcache::inline v0_1::isa
