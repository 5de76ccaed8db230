// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file The named barriers of a block.

namespace kvcache::inline v0_1::isa {

/// `barrier.sync`: waits until `threads` threads of the block stand at `barrier`. A kernel calls `block.sync(barrier, threads)`,
/// which on a host is the executor's own: this is what it becomes on a device, and only that.
/// **Pre** 1 <= `barrier` <= 15; `threads` is a multiple of 32, the same for all who come.
KVCACHE_HOST_DEVICE inline void bar_sync([[maybe_unused]] std::int32_t barrier,
                                         [[maybe_unused]] std::int32_t threads)
{
#if defined(__CUDA_ARCH__)
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#else
  __builtin_trap();
#endif
}

}  // namespace kvcache::inline v0_1::isa
