// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/device/launch_lists.hpp>

#include <cstddef>
#include <cstdint>

/// \file Memory and launches of one device, behind a table of functions that is touched five times a step.
///
///   upload       host buffer > block           the one transfer of a step
///   write_words  block > tables, step arrays   launches: they read their lists in device memory,
///   move_rows    pages > pages, in order       their arguments hold for the pool's life,
///   copy_pages   pages > pages                 a graph may capture them
///   count_up     lengths > indices, lengths
///
/// `HostDevice` is the one here; `CudaDevice` (`cuda.cuh`) is another. Every call that moves bytes takes a stream and never
/// waits for it.

namespace kvcache::inline v0_1 {

/// A stream of the device: its handle (a `cudaStream_t`; nothing on the host), and the number by which
/// control knows it. Steps of one number run one after the other. What is asked for without a handle
/// happens before all that is asked for later, on any stream, of the device: an engine's own kernels know nothing of it. So
/// a step on a GPU needs a handle; whose kernels run on the default stream passes `cudaStreamLegacy` or
/// `cudaStreamPerThread`.
struct StreamRef {
  void* handle = nullptr;
  std::uint32_t number = 0;
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
  /// **Pre** no work that uses the memory is waiting on a stream, but such as `join` told of.
  virtual void deallocate(std::byte* memory, std::size_t bytes) noexcept = 0;
  /// Host memory that uploads read (pinned, where the device knows such), at a multiple of 128 bytes; null when there
  /// is none.
  [[nodiscard]] virtual std::byte* allocate_staging(std::size_t bytes) noexcept = 0;
  /// **Pre** no upload that reads the memory is waiting on a stream, but such as `join` told of.
  virtual void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept = 0;

  /// The first call that failed, kept for good: then nothing is known of the memory. **Errors** `device_failed` with the
  /// name of the call and its code. A device that works returns ok, as one does that has no memory left.
  [[nodiscard]] virtual Error status() const noexcept { return {}; }
  /// Whether a graph captures what `stream` is asked for, so that it happens later, and maybe often.
  [[nodiscard]] virtual bool captures(StreamRef /*stream*/) noexcept { return false; }
  /// All that is asked for later, on any stream, and all memory given back later, waits for what `stream` was asked for.
  /// The host does not wait.
  virtual void join(StreamRef /*stream*/) noexcept {}

  /// Notes where `stream` is now as mark `number`, below `num_marks`; nothing where a graph captures it. What a device does at
  /// once needs neither this nor `wait`.
  virtual void mark(std::uint32_t /*number*/, StreamRef /*stream*/) noexcept {}
  /// The host waits until mark `number`, as it was noted last, has been passed: what was asked for before it has happened.
  virtual void wait(std::uint32_t /*number*/) noexcept {}
  static constexpr std::uint32_t num_marks = 16;

  /// Copies host bytes to the device. **Stream** ordered. **Pre** `source` stays as it is until the stream has passed.
  virtual void upload(std::byte* target,
                      void const* source,
                      std::size_t bytes,
                      StreamRef stream) noexcept = 0;
  /// Sets each byte. **Stream** ordered.
  virtual void fill(std::byte* target,
                    std::byte value,
                    std::size_t bytes,
                    StreamRef stream) noexcept = 0;

  /// Runs `LaunchLists::words`; the targets do not overlap. **Stream** ordered, one launch.
  virtual void write_words(LaunchCell cell, StreamRef stream) noexcept = 0;
  /// Runs `LaunchLists::moves`: of pieces with the same number (which have the same tile), one after the other in the
  /// order of the list; pieces of different number do not overlap. **Stream** ordered, one launch.
  virtual void move_rows(LaunchCell cell, StreamRef stream) noexcept = 0;
  /// Runs `LaunchLists::copies`; what one writes no other reads or writes. **Stream** ordered, one launch.
  virtual void copy_pages(LaunchCell cell, StreamRef stream) noexcept = 0;
  /// Runs `LaunchLists::runs`; no two have the same length. **Stream** ordered, one launch.
  virtual void count_up(LaunchCell cell, StreamRef stream) noexcept = 0;
};

}  // namespace kvcache::inline v0_1
