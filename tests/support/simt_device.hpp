// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The host's memory, and launches that run the kernels of a GPU on the executor, thread by thread.

#include <kvcache/device/device.hpp>
#include <kvcache/device/move_rows_kernel.hpp>
#include <kvcache/device/plan_kernels.hpp>

#include <cstddef>
#include <cstdint>

#include "support/simt/simt.hpp"

namespace kvcache_test {

/// What the kernels run on.
struct SimtGrid {
  std::int32_t blocks = 2;
  std::int32_t threads = 64;
  simt::Options options{};
};

/// `Host` is the host's device. A fault of a kernel (see `simt/faults.hpp`) ends the program: a device's calls do not throw.
template <class Host>
class SimtDeviceOver : public kvcache::Device {
 public:
  SimtGrid grid;

  SimtDeviceOver() = default;
  explicit SimtDeviceOver(SimtGrid const& on) : grid(on) {}

  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    return host_.allocate(bytes);
  }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override
  {
    host_.deallocate(memory, bytes);
  }
  [[nodiscard]] std::byte* allocate_staging(std::size_t bytes) noexcept override
  {
    return host_.allocate_staging(bytes);
  }
  void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept override
  {
    host_.deallocate_staging(memory, bytes);
  }
  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              kvcache::StreamRef stream) noexcept override
  {
    host_.upload(target, source, bytes, stream);
  }
  void fill(std::byte* target,
            std::byte value,
            std::size_t bytes,
            kvcache::StreamRef stream) noexcept override
  {
    host_.fill(target, value, bytes, stream);
  }
  void write_words(kvcache::LaunchCell cell, kvcache::StreamRef) noexcept override
  {
    run(kvcache::WriteWordsKernel{cell});
  }
  void move_rows(kvcache::LaunchCell cell, kvcache::StreamRef) noexcept override
  {
    run(kvcache::MoveRowsKernel{cell});
  }
  void copy_pages(kvcache::LaunchCell cell, kvcache::StreamRef) noexcept override
  {
    run(kvcache::CopyPagesKernel{cell});
  }
  void count_up(kvcache::LaunchCell cell, kvcache::StreamRef) noexcept override
  {
    run(kvcache::CountUpKernel{cell});
  }

 private:
  template <class Kernel>
  void run(Kernel const& kernel) const
  {
    simt::launch(grid.blocks, grid.threads, 0, kernel, grid.options);
  }

  Host host_;
};

}  // namespace kvcache_test
