// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/device/cuda_launch.cuh>
#include <kvcache/device/cuda_memory.hpp>
#include <kvcache/device/launch_lists.hpp>
#include <kvcache/device/move_rows_kernel.hpp>
#include <kvcache/device/plan_kernels.hpp>

#include <cuda_runtime_api.h>

/// \file A GPU as a device.
///
///   kvcache::CudaDevice gpu;                                  // device 0; outlives what is made on it
///   auto cache = Cache::create(geometry, {.pages = 4096, .device = &gpu});
///   auto step  = cache->prepare(chunks, {.handle = stream});  // an upload and four launches on the engine's stream
///
/// Grids depend on the GPU alone and arguments on the slot alone: captured, the launches run again for any plan.

namespace kvcache::inline v0_1 {

/// See the file comment; memory, streams and errors: `CudaMemory`.
class CudaDevice final : public CudaMemory {
 public:
  explicit CudaDevice(int ordinal = 0) noexcept
      : CudaMemory(ordinal), processors_(attribute(cudaDevAttrMultiProcessorCount))
  {
  }

  void write_words(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(WriteWordsKernel{cell}, 1, stream);
  }
  void move_rows(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(MoveRowsKernel{cell}, 1, stream);
  }
  void copy_pages(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(CopyPagesKernel{cell}, 4, stream);  // 64 KiB in flight on each multiprocessor
  }
  void count_up(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(CountUpKernel{cell}, 1, stream);
  }

 private:
  template <class Kernel>
  void launch(Kernel const& kernel, int blocks_each, StreamRef stream) noexcept
  {
    on(stream, "cudaLaunchKernel", [&](cudaStream_t s) {
      return cuda_launch(kernel, blocks_each * processors_, Kernel::max_threads, 0, s);
    });
  }

  int processors_;
};

}  // namespace kvcache::inline v0_1
