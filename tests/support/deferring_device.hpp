// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A device that does nothing when it is asked: all work waits, in order, until `sync()`. An upload reads its source
/// only then, as an asynchronous copy may.

#include <kvcache/device/device.hpp>
#include <kvcache/device/host_device.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace kvcache_test {

class DeferringDevice : public kvcache::Device {
 public:
  /// A kernel of the engine, behind the work that was asked for before.
  void launch(std::function<void()> work) { waiting_.push_back(std::move(work)); }
  ~DeferringDevice() override { sync(); }
  void sync()
  {
    for (auto const& work : waiting_) {
      work();
    }
    waiting_.clear();
    ++syncs_;
  }
  void mark(std::uint32_t number, kvcache::StreamRef) noexcept override
  {
    marks_[number] = syncs_ + 1;
  }
  void wait(std::uint32_t number) noexcept override
  {
    if (marks_[number] > syncs_) {
      sync();
    }
  }

  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    return host_.allocate(bytes);
  }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override
  {
    launch([=, this] { host_.deallocate(memory, bytes); });
  }
  [[nodiscard]] std::byte* allocate_staging(std::size_t bytes) noexcept override
  {
    return host_.allocate_staging(bytes);
  }
  void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept override
  {
    launch([=, this] { host_.deallocate_staging(memory, bytes); });
  }
  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              kvcache::StreamRef) noexcept override
  {
    launch([=] { std::memcpy(target, source, bytes); });
  }
  void fill(std::byte* target,
            std::byte value,
            std::size_t bytes,
            kvcache::StreamRef stream) noexcept override
  {
    launch([=, this] { host_.fill(target, value, bytes, stream); });
  }
  void write_words(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    launch([=, this] { host_.write_words(cell, stream); });
  }
  void move_rows(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    launch([=, this] { host_.move_rows(cell, stream); });
  }
  void copy_pages(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    launch([=, this] { host_.copy_pages(cell, stream); });
  }
  void count_up(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    launch([=, this] { host_.count_up(cell, stream); });
  }

 private:
  kvcache::HostDevice host_;
  std::vector<std::function<void()>> waiting_;
  std::uint64_t syncs_ = 0;
  std::uint64_t marks_[num_marks]{};  // passed by the sync of this number
};

}  // namespace kvcache_test
