// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/device/device.hpp>
#include <kvcache/device/launch_lists.hpp>
#include <kvcache/device/stream_copy.hpp>

#include <cstddef>
#include <cstdint>
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
  [[nodiscard]] std::byte* allocate_staging(std::size_t bytes) noexcept override
  {
    return allocate(bytes);
  }
  void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept override
  {
    deallocate(memory, bytes);
  }

  void upload(std::byte* target, void const* source, std::size_t bytes, StreamRef) noexcept override
  {
    std::memcpy(target, source, bytes);
  }
  void fill(std::byte* target, std::byte value, std::size_t bytes, StreamRef) noexcept override
  {
    std::memset(target, static_cast<int>(value), bytes);
  }

  void write_words(LaunchCell cell, StreamRef) noexcept override
  {
    std::byte const* const block = *cell;
    each<WordRun>(block, lists(block).words, [block](WordRun const& run) {
      std::memcpy(run.target, block + run.source_at, run.words * sizeof *run.target);
    });
  }
  void move_rows(LaunchCell cell, StreamRef) noexcept override
  {
    each<StridedCopy>(*cell, lists(*cell).moves, copy);
  }
  void copy_pages(LaunchCell cell, StreamRef) noexcept override
  {
    LaunchList const& list = lists(*cell).copies;
    auto const* const copies = reinterpret_cast<StridedCopy const*>(*cell + list.at);
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < list.count; ++i) {
      bytes += copies[i].bytes * copies[i].blocks;
    }
    bool const streams = bytes >= detail::least_streamed_bytes;
    for (std::uint64_t i = 0; i < list.count;) {
      bool const pair = i + 1 < list.count && are_one(copies[i], copies[i + 1]);
      StridedCopy const one = whole(copies[i], pair);
      i += pair ? 2 : 1;
      if (streams) {
        stream(one, i < list.count ? copies[i].source : one.source);
      } else {
        copy(one);
      }
    }
    if (streams) {
      detail::stream_fence();
    }
  }
  void count_up(LaunchCell cell, StreamRef) noexcept override
  {
    each<IndexRun>(
      *cell, lists(*cell).runs, [](IndexRun const run) {  // a copy: stores may not change it
        std::int32_t const least = run.first - run.slack;
        std::int32_t const length = *run.length;
        std::int32_t const start = length < least ? least : length > run.first ? run.first : length;
        for (std::int32_t k = 0; k < run.count; ++k) {
          run.target[k] = start + k;
        }
        *run.length = start + run.count;
      });
  }

 private:
  static constexpr std::align_val_t alignment{
    4096};  // pages of the machine, so that a pool starts on one

  [[nodiscard]] static LaunchLists const& lists(std::byte const* block) noexcept
  {
    return *reinterpret_cast<LaunchLists const*>(block);
  }
  template <class Record, class Work>
  static void each(std::byte const* block, LaunchList const& list, Work&& work) noexcept
  {
    auto const* const records = reinterpret_cast<Record const*>(block + list.at);
    for (std::uint64_t i = 0; i < list.count; ++i) {
      work(records[i]);
    }
  }
  /// Whether `b` fills the gaps that `a` leaves: K and V of whole tiles.
  [[nodiscard]] static bool are_one(StridedCopy const& a, StridedCopy const& b) noexcept
  {
    return b.source == a.source + a.bytes && b.target == a.target + a.bytes &&
           b.stride == a.stride && b.blocks == a.blocks && a.bytes + b.bytes == a.stride;
  }
  /// `c`, with what fills its gaps if there is such a one, as few pieces: a whole page is one.
  [[nodiscard]] static StridedCopy whole(StridedCopy const& c, bool gaps_are_filled) noexcept
  {
    if (gaps_are_filled || c.bytes == c.stride) {
      return {c.source, c.target, c.stride * c.blocks, 0, c.blocks == 0 ? 0U : 1U};
    }
    return c;
  }
  static void stream(StridedCopy const& c, std::byte const* next) noexcept
  {
    for (std::uint32_t block = 0; block < c.blocks; ++block) {
      std::byte const* const source = c.source + block * c.stride;
      bool const last = block + 1 == c.blocks;
      detail::stream_copy(
        c.target + block * c.stride, source, c.bytes, last ? next : source + c.stride);
    }
  }
  static void copy(StridedCopy const& c) noexcept
  {
    for (std::uint32_t block = 0; block < c.blocks; ++block) {
      std::memcpy(c.target + block * c.stride, c.source + block * c.stride, c.bytes);
    }
  }
};

}  // namespace kvcache::inline v0_1
