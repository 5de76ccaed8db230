// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/device/device.hpp>

#include <cstddef>
#include <cstring>
#include <new>

/// \file The host's own memory as a device.

namespace kvcache::inline v0_1 {

/// Plain memory and `memcpy`; streams are ignored because every call is done when it returns.
class HostDevice final : public Device {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    return static_cast<std::byte*>(::operator new(bytes, alignment, std::nothrow));
  }
  void deallocate(std::byte* memory, std::size_t) noexcept override
  {
    ::operator delete(memory, alignment);
  }
  void upload(std::byte* target, void const* source, std::size_t bytes, StreamRef) noexcept override
  {
    std::memcpy(target, source, bytes);
  }
  void zero(std::byte* target, std::size_t bytes, StreamRef) noexcept override
  {
    std::memset(target, 0, bytes);
  }
  void copy(StridedCopy const* copies, std::size_t count, StreamRef) noexcept override
  {
    for (std::size_t i = 0; i < count; ++i) {
      StridedCopy const& c = copies[i];
      for (std::uint32_t block = 0; block < c.blocks; ++block) {
        std::memcpy(c.target + block * c.stride, c.source + block * c.stride, c.bytes);
      }
    }
  }
  void count_up(IndexRun const* runs, std::size_t count, StreamRef) noexcept override
  {
    for (std::size_t i = 0; i < count; ++i) {
      std::int32_t const start = *runs[i].start + runs[i].offset;
      for (std::int32_t k = 0; k < runs[i].count; ++k) {
        runs[i].target[k] = start + k;
      }
    }
  }

 private:
  static constexpr std::align_val_t alignment{
    4096};  // pages of the machine, so that a pool starts on one
};

}  // namespace kvcache::inline v0_1
