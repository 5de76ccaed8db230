// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/cuda_block.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

/// \file The one `__global__` function: it runs a kernel that is a functor over a `ThreadBlock`.

namespace kvcache::inline v0_1 {

namespace detail {

/// Blocks of `Kernel` that are to share a multiprocessor: its `blocks_beside`; 0 leaves it to the compiler.
template <class Kernel>
constexpr int blocks_beside()
{
  if constexpr (requires { Kernel::blocks_beside; }) {
    return Kernel::blocks_beside;
  } else {
    return 0;
  }
}

/// The threads of a block of `Kernel`, at most: what the compiler gives registers to.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::max_threads, blocks_beside<Kernel>())
  run_kernel(Kernel const kernel)
{
  CudaBlock block;
  kernel(block);
}

}  // namespace detail

/// Launches `kernel`, which goes by value. **Pre** `threads` a multiple of 32, at most `Kernel::max_threads`; a stream.
/// **Stream** ordered; does not wait.
template <class Kernel>
[[nodiscard]] cudaError_t cuda_launch(
  Kernel kernel, int blocks, int threads, std::size_t shared_bytes, cudaStream_t stream) noexcept
{
  void* arguments[] = {&kernel};
  return cudaLaunchKernel(reinterpret_cast<void const*>(&detail::run_kernel<Kernel>),
                          dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(threads)),
                          arguments,
                          shared_bytes,
                          stream);
}

}  // namespace kvcache::inline v0_1
