// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/device/device.hpp>
#include <kvcache/device/launch_lists.hpp>

#include <cstddef>
#include <cstdint>

/// \file The host buffer of a slot, and the block of device memory that it is uploaded to.
///
/// An upload may read its source long after the call returned. Each slot therefore has a buffer of its own: it is
/// written again only by the slot's next plan, and then the device has passed the one before. With one buffer for all,
/// the plan of step n + 1 would overwrite what the upload of step n has yet to read. It stays where it is until it must grow: a graph
/// that captured the upload reads that address.

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
  /// **Pre** nothing that was asked for reads the memory. **Errors** false: no memory, nothing changed.
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
    *reinterpret_cast<std::byte**>(host_) = block_;
    device.upload(reinterpret_cast<std::byte*>(cell),
                  host_,
                  sizeof block_,
                  {});  // before launches on any stream
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
};

}  // namespace kvcache::inline v0_1::detail
