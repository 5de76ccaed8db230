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
  int upload_calls = 0;
  std::size_t uploaded_bytes = 0;
  int fill_calls = 0;
  int write_calls = 0;
  int move_calls = 0;
  int copy_calls = 0;
  int count_up_calls = 0;
  std::size_t live_bytes = 0;
  std::size_t largest = 0;

  ~CountingDevice() override
  {
    for (auto const* const blocks : {&live_, &staging_}) {
      for (Block const& block : *blocks) {
        if (block.memory != nullptr) {
          host_.deallocate(block.memory, block.bytes);
        }
      }
    }
  }

  /// Of device memory.
  [[nodiscard]] std::size_t live_blocks() const { return count(live_); }
  /// Of host memory that uploads read.
  [[nodiscard]] std::size_t staging_blocks() const { return count(staging_); }
  /// All that moved bytes, or asked the device to.
  [[nodiscard]] int calls() const
  {
    return upload_calls + fill_calls + write_calls + move_calls + copy_calls + count_up_calls;
  }

  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    std::byte* const memory = take(live_, bytes);
    live_bytes += memory != nullptr ? bytes : 0;
    largest = memory != nullptr && bytes > largest ? bytes : largest;
    return memory;
  }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override
  {
    live_bytes -= give_back(live_, memory, bytes) ? bytes : 0;
  }
  [[nodiscard]] std::byte* allocate_staging(std::size_t bytes) noexcept override
  {
    return take(staging_, bytes);
  }
  void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept override
  {
    (void)give_back(staging_, memory, bytes);
  }
  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              kvcache::StreamRef stream) noexcept override
  {
    ++upload_calls;
    uploaded_bytes += bytes;
    last_stream = stream.handle;
    host_.upload(target, source, bytes, stream);
  }
  void fill(std::byte* target,
            std::byte value,
            std::size_t bytes,
            kvcache::StreamRef stream) noexcept override
  {
    ++fill_calls;
    host_.fill(target, value, bytes, stream);
  }
  void write_words(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    ++write_calls;
    last_cell = cell;
    last_stream = stream.handle;
    host_.write_words(cell, stream);
  }
  void move_rows(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    ++move_calls;
    host_.move_rows(cell, stream);
  }
  void copy_pages(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    ++copy_calls;
    host_.copy_pages(cell, stream);
  }
  void count_up(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    ++count_up_calls;
    last_stream = stream.handle;
    host_.count_up(cell, stream);
  }

  kvcache::LaunchCell last_cell = nullptr;
  void* last_stream = nullptr;

 private:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  using Blocks = std::array<Block, 256>;

  [[nodiscard]] static std::size_t count(Blocks const& blocks)
  {
    std::size_t n = 0;
    for (Block const& block : blocks) {
      n += block.memory != nullptr ? 1U : 0U;
    }
    return n;
  }
  [[nodiscard]] static Block* find(Blocks& blocks, std::byte const* memory)
  {
    for (Block& block : blocks) {
      if (block.memory == memory) {
        return &block;
      }
    }
    return nullptr;
  }

  std::byte* take(Blocks& blocks, std::size_t bytes)
  {
    if (fail_after == 0) {
      return nullptr;
    }
    fail_after -= fail_after > 0 ? 1 : 0;
    Block* const block = find(blocks, nullptr);
    std::byte* const memory = block != nullptr ? host_.allocate(bytes) : nullptr;
    if (memory == nullptr) {
      return nullptr;
    }
    std::memset(memory, 0xcd, bytes);
    *block = {memory, bytes};
    ++allocations;
    return memory;
  }
  bool give_back(Blocks& blocks, std::byte* memory, std::size_t bytes)
  {
    Block* const block = find(blocks, memory);
    if (memory == nullptr || block == nullptr || block->bytes != bytes) {
      ++wrong_frees;
      return false;
    }
    *block = {};
    host_.deallocate(memory, bytes);
    return true;
  }

  kvcache::HostDevice host_;
  Blocks live_;
  Blocks staging_;
};

}  // namespace kvcache_test
