// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A host device that counts its memory and can run out of it. What it gives is never zeros.

#include <kvcache/device/device.hpp>
#include <kvcache/device/host_device.hpp>

#include <cstddef>
#include <cstring>
#include <map>

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
      for (auto const& [memory, bytes] : *blocks) {
        host_.deallocate(memory, bytes);
      }
    }
  }

  /// Of device memory.
  [[nodiscard]] std::size_t live_blocks() const { return live_.size(); }
  /// Of host memory that uploads read.
  [[nodiscard]] std::size_t staging_blocks() const { return staging_.size(); }
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
  using Blocks = std::map<std::byte*, std::size_t>;

  std::byte* take(Blocks& blocks, std::size_t bytes)
  {
    if (fail_after == 0) {
      return nullptr;
    }
    fail_after -= fail_after > 0 ? 1 : 0;
    std::byte* const memory = host_.allocate(bytes);
    std::memset(memory, 0xcd, bytes);
    blocks[memory] = bytes;
    ++allocations;
    return memory;
  }
  bool give_back(Blocks& blocks, std::byte* memory, std::size_t bytes)
  {
    auto const at = blocks.find(memory);
    if (at == blocks.end() || at->second != bytes) {
      ++wrong_frees;
      return false;
    }
    blocks.erase(at);
    host_.deallocate(memory, bytes);
    return true;
  }

  kvcache::HostDevice host_;
  Blocks live_;
  Blocks staging_;
};

}  // namespace kvcache_test
