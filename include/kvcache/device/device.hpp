// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// \file Memory and copies of one device, behind a table of functions that is touched once a step.
///
/// The pool keeps its bytes on a `Device`. `HostDevice` is the one here; a CUDA device is another. Every
/// call that moves bytes takes a stream and never waits for it.

namespace kvcache::inline v0_1 {

/// A stream of the device: its handle (a `cudaStream_t`; nothing on the host), and the number by which
/// control knows it. Steps of one number run one after the other.
struct StreamRef {
  void* handle = nullptr;
  std::uint32_t number = 0;
};

/// `blocks` pieces of `bytes`: piece i goes from `source + i * stride` to `target + i * stride`.
struct StridedCopy {
  std::byte const* source;
  std::byte* target;
  std::size_t bytes;
  std::size_t stride;
  std::uint32_t blocks;
};

/// `count` numbers from `*start + offset` on go to `target`: the indices of tokens whose first place the device knows.
struct IndexRun {
  std::int32_t const* start;
  std::int32_t* target;
  std::int32_t count;
  std::int32_t offset = 0;
};

/// Memory of one device. Implementations are used by one thread at a time.
class Device {
 public:
  Device() = default;
  Device(Device const&) = delete;
  Device& operator=(Device const&) = delete;
  virtual ~Device() = default;

  /// Memory at a multiple of 128 bytes, contents unspecified; null when there is none.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) noexcept = 0;
  virtual void deallocate(std::byte* memory, std::size_t bytes) noexcept = 0;
  /// Copies host bytes to the device. **Stream** ordered; `source` may be reused when the call returns.
  virtual void upload(std::byte* target,
                      void const* source,
                      std::size_t bytes,
                      StreamRef stream) noexcept = 0;
  virtual void zero(std::byte* target, std::size_t bytes, StreamRef stream) noexcept = 0;
  /// Copies inside the device; pieces of one call do not overlap. **Stream** ordered, one launch.
  virtual void copy(StridedCopy const* copies, std::size_t count, StreamRef stream) noexcept = 0;
  /// Reads `start` and writes `target` on the device. **Stream** ordered, one launch.
  virtual void count_up(IndexRun const* runs, std::size_t count, StreamRef stream) noexcept = 0;
};

}  // namespace kvcache::inline v0_1
