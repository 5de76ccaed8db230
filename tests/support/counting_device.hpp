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
  int copy_calls = 0;
  int upload_calls = 0;
  int zero_calls = 0;
  int count_up_calls = 0;
  std::size_t live_bytes = 0;
  std::size_t largest = 0;

  ~CountingDevice() override
  {
    for (auto const& [memory, bytes] : live_) {
      host_.deallocate(memory, bytes);
    }
  }

  [[nodiscard]] std::size_t live_blocks() const { return live_.size(); }

  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    if (fail_after == 0) {
      return nullptr;
    }
    fail_after -= fail_after > 0 ? 1 : 0;
    std::byte* const memory = host_.allocate(bytes);
    std::memset(memory, 0xcd, bytes);
    live_[memory] = bytes;
    ++allocations;
    live_bytes += bytes;
    largest = bytes > largest ? bytes : largest;
    return memory;
  }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override
  {
    auto const at = live_.find(memory);
    if (at == live_.end() || at->second != bytes) {
      ++wrong_frees;
      return;
    }
    live_bytes -= bytes;
    live_.erase(at);
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
  kvcache::HostDevice host_;
  std::map<std::byte*, std::size_t> live_;
};

}  // namespace kvcache_test
