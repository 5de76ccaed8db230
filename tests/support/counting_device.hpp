// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A host device that counts its memory and can run out of it. What it gives is never zeros. Its books take no
/// memory of their own, so that tests in which memory fails may use it.

#include <kvcache/device/device.hpp>
#include <kvcache/device/host_device.hpp>

#include <array>
#include <cstddef>
#include <cstring>

namespace kvcache_test {

class CountingDevice final : public kvcache::Device {
 public:
  int fail_after = -1;  ///< allocations that still succeed; negative: all
  int allocations = 0;
  int wrong_frees = 0;
  int copy_calls = 0;
  int upload_calls = 0;
  int zero_calls = 0;
  int count_up_calls = 0;
  std::size_t live_bytes = 0;
  std::size_t largest = 0;

  ~CountingDevice() override
  {
    for (Block const& block : live_) {
      if (block.memory != nullptr) {
        host_.deallocate(block.memory, block.bytes);
      }
    }
  }

  [[nodiscard]] std::size_t live_blocks() const
  {
    std::size_t n = 0;
    for (Block const& block : live_) {
      n += block.memory != nullptr ? 1U : 0U;
    }
    return n;
  }

  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    if (fail_after == 0) {
      return nullptr;
    }
    fail_after -= fail_after > 0 ? 1 : 0;
    Block* const block = find(nullptr);
    std::byte* const memory = block != nullptr ? host_.allocate(bytes) : nullptr;
    if (memory == nullptr) {
      return nullptr;
    }
    std::memset(memory, 0xcd, bytes);
    *block = {memory, bytes};
    ++allocations;
    live_bytes += bytes;
    largest = bytes > largest ? bytes : largest;
    return memory;
  }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override
  {
    Block* const block = find(memory);
    if (memory == nullptr || block == nullptr || block->bytes != bytes) {
      ++wrong_frees;
      return;
    }
    live_bytes -= bytes;
    *block = {};
    host_.deallocate(memory, bytes);
  }
  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              kvcache::StreamRef stream) noexcept override
  {
    ++upload_calls;
    last_stream = stream.handle;
    host_.upload(target, source, bytes, stream);
  }
  void zero(std::byte* target, std::size_t bytes, kvcache::StreamRef stream) noexcept override
  {
    ++zero_calls;
    host_.zero(target, bytes, stream);
  }
  void copy(kvcache::StridedCopy const* copies,
            std::size_t count,
            kvcache::StreamRef stream) noexcept override
  {
    ++copy_calls;
    last_stream = stream.handle;
    host_.copy(copies, count, stream);
  }
  void count_up(kvcache::IndexRun const* runs,
                std::size_t count,
                kvcache::StreamRef stream) noexcept override
  {
    ++count_up_calls;
    last_stream = stream.handle;
    host_.count_up(runs, count, stream);
  }

  void* last_stream = nullptr;

 private:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  [[nodiscard]] Block* find(std::byte const* memory)
  {
    for (Block& block : live_) {
      if (block.memory == memory) {
        return &block;
      }
    }
    return nullptr;
  }

  kvcache::HostDevice host_;
  std::array<Block, 256> live_{};
};

}  // namespace kvcache_test
