// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/device/device.hpp>
#include <kvcache/device/launch_lists.hpp>

#include <cstddef>
#include <cstdint>

/// \file The host buffer of a slot, and the block of device memory that it is uploaded to.
///
/// An upload may read its source long after the call returned. Each slot therefore has a buffer of its own: it is
/// written again only by the slot's next plan, and then the step of the one before is over. With one buffer for all,
/// the plan of step n + 1 would overwrite what the upload of step n has yet to read. Where a step ends before its work has
/// run, the slot takes another buffer, and the device keeps the old one until it was read.

namespace kvcache::inline v0_1::detail {

/// See the file comment. The pool frees it: it holds no device.
class Staging {
 public:
  /// The buffer's first bytes hold the address of the block, for the upload to the slot's cell.
  static constexpr std::size_t block_at = 128;

  /// Bytes of the block; 0 before the slot's first plan.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// What the next upload brings.
  [[nodiscard]] std::byte* host() const noexcept { return host_ + block_at; }

  /// Makes room for `bytes`, at least twice as many as before, and tells the slot's cell.
  /// **Pre** the step of the plan uploaded last is over. **Errors** false: no memory, nothing changed.
  [[nodiscard]] bool grow(Device& device, std::size_t bytes, std::byte** cell) noexcept
  {
    std::size_t const most = bytes > 2 * capacity_ ? bytes : 2 * capacity_;
    std::byte* const host = device.allocate_staging(block_at + most);
    std::byte* const block = host != nullptr ? device.allocate(most) : nullptr;
    if (block == nullptr) {
      if (host != nullptr) {
        device.deallocate_staging(host, block_at + most);
      }
      return false;
    }
    release(device);
    host_ = host;
    block_ = block;
    capacity_ = most;
    late_ = false;
    *reinterpret_cast<std::byte**>(host_) = block_;
    device.upload(reinterpret_cast<std::byte*>(cell),
                  host_,
                  sizeof block_,
                  {});  // before launches on any stream
    return true;
  }

  /// The upload may still have to read the buffer when the slot's next plan comes. **Pre** the device has joined its stream.
  void abandon() noexcept { late_ = host_ != nullptr; }
  /// Makes the buffer ready to be written. **Errors** false: no memory, nothing changed.
  [[nodiscard]] bool renew(Device& device) noexcept
  {
    if (late_) {
      std::byte* const host = device.allocate_staging(block_at + capacity_);
      if (host == nullptr) {
        return false;
      }
      device.deallocate_staging(host_, block_at + capacity_);
      host_ = host;
      late_ = false;
    }
    return true;
  }

  void upload(Device& device, std::size_t bytes, StreamRef stream) const noexcept
  {
    device.upload(block_, host(), bytes, stream);
  }

  void release(Device& device) noexcept
  {
    if (host_ != nullptr) {
      device.deallocate_staging(host_, block_at + capacity_);
      device.deallocate(block_, capacity_);
    }
    host_ = nullptr;
    block_ = nullptr;
    capacity_ = 0;
  }

 private:
  std::byte* host_ = nullptr;
  std::byte* block_ = nullptr;
  std::size_t capacity_ = 0;
  bool late_ = false;
};

}  // namespace kvcache::inline v0_1::detail
