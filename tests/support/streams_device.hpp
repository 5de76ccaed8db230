// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A device with streams that run as late as they may, kept apart and in order by the rules of `device/device.hpp` and by
/// nothing else. A test may let some of their work run early, turn the records of launches round, and have uploads read their
/// source at once. Memory that is given back is spoilt as soon as the device could use it again.

#include <kvcache/device/device.hpp>
#include <kvcache/device/host_device.hpp>
#include <kvcache/device/launch_lists.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "support/stream_world.hpp"

namespace kvcache_test {

class StreamsDevice : public kvcache::Device {
 public:
  StreamWorld world;
  bool graph = false;  ///< every stream is being captured
  bool forgets =
    false;  ///< the fault: what is asked for later does not wait for what was joined; memory does

  bool waits_for_nothing = false;  ///< the fault: the host goes on before a mark was passed
  bool reads_early = false;        ///< uploads that are asked for now read their source at once
  bool backwards =
    false;  ///< launches that are asked for now go through their lists from the end, where that is allowed

  ~StreamsDevice() override { sync(); }

  /// A kernel of the engine, on the device's own stream or on another.
  void launch(std::function<void()> work, kvcache::StreamRef stream = {})
  {
    on(stream, std::move(work));
  }
  /// The device's own stream has come to its end.
  void sync() { world.finish(own()); }

  [[nodiscard]] bool captures(kvcache::StreamRef) noexcept override { return graph; }
  void join(kvcache::StreamRef stream) noexcept override
  {
    if (stream.handle != nullptr && forgets) {
      joined_.push_back(world.record(stream.handle));
    } else if (stream.handle != nullptr) {
      world.wait(own(), world.record(stream.handle));
      asked_ = true;
    }
  }
  void mark(std::uint32_t number, kvcache::StreamRef stream) noexcept override
  {
    if (!graph) {
      marks_[number] = world.record(stream.handle != nullptr ? stream.handle : own());
    }
  }
  void wait(std::uint32_t number) noexcept override
  {
    if (marks_[number].stream != nullptr && !waits_for_nothing) {
      world.finish(marks_[number]);
    }
  }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    return host_.allocate(bytes);
  }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override { spoil(memory, bytes); }
  [[nodiscard]] std::byte* allocate_staging(std::size_t bytes) noexcept override
  {
    return host_.allocate_staging(bytes);
  }
  void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept override
  {
    spoil(memory, bytes);
  }
  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              kvcache::StreamRef stream) noexcept override
  {
    if (!reads_early) {
      return on(stream, [=] { std::memcpy(target, source, bytes); });
    }
    auto const* const from = static_cast<std::byte const*>(source);
    on(stream, [target, copy = std::vector<std::byte>(from, from + bytes)] {
      std::memcpy(target, copy.data(), copy.size());
    });
  }
  void fill(std::byte* target,
            std::byte value,
            std::size_t bytes,
            kvcache::StreamRef stream) noexcept override
  {
    on(stream, [=] { std::memset(target, static_cast<int>(value), bytes); });
  }
  void write_words(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    on(stream, [=, this, turns = backwards] {
      turn<kvcache::WordRun>(turns, cell, &kvcache::LaunchLists::words);
      host_.write_words(cell, {});
    });
  }
  /// In order, for what one writes another may have read.
  void move_rows(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    on(stream, [=, this] { host_.move_rows(cell, {}); });
  }
  void copy_pages(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    on(stream, [=, this, turns = backwards] {
      turn<kvcache::StridedCopy>(turns, cell, &kvcache::LaunchLists::copies);
      host_.copy_pages(cell, {});
    });
  }
  void count_up(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    on(stream, [=, this, turns = backwards] {
      turn<kvcache::IndexRun>(turns, cell, &kvcache::LaunchLists::runs);
      host_.count_up(cell, {});
    });
  }

 private:
  [[nodiscard]] void* own() noexcept { return this; }
  template <class Record>
  static void turn(bool turns,
                   kvcache::LaunchCell cell,
                   kvcache::LaunchList kvcache::LaunchLists::* of)
  {
    if (turns) {
      kvcache::LaunchList const& list = reinterpret_cast<kvcache::LaunchLists const*>(*cell)->*of;
      auto* const records = reinterpret_cast<Record*>(*cell + list.at);
      std::reverse(records, records + list.count);
    }
  }
  void on(kvcache::StreamRef stream, std::function<void()> work)
  {
    if (stream.handle == nullptr) {
      asked_ = true;
      return world.ask(own(), std::move(work));
    }
    if (asked_) {
      world.wait(stream.handle, world.record(own()));
    }
    world.ask(stream.handle, std::move(work));
  }
  void spoil(std::byte* memory, std::size_t bytes)
  {
    for (StreamWorld::Mark const mark : joined_) {
      world.finish(mark);
    }
    world.ask(own(), [=, this] {
      std::memset(memory, 0xcd, bytes);
      host_.deallocate(memory, bytes);
    });
    world.finish(own());  // as soon as may be: the worst for who still reads it
  }

  kvcache::HostDevice host_;
  StreamWorld::Mark marks_[num_marks]{};
  bool asked_ = false;
  std::vector<StreamWorld::Mark> joined_;  // of a device that forgets
};

}  // namespace kvcache_test
