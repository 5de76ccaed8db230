// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>

/// \file Who may write a page that a step in flight may still touch.
///
/// A page that a sequence lets go of while its steps are in flight is *fenced* with the newest of them.
/// Later steps of the same stream may use it at once, because the device runs them after; everybody else
/// waits until the fence's step has retired. A fenced page that nobody holds any more *waits* in a stack of
/// its stream; its one count belongs to that stack.
///
/// Cost: O(1) a page; 12 bytes a page of memory that is touched only where pages are fenced.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
class Fences {
 public:
  explicit Fences(PageCount pages) : stamps_(std::size_t{pages} + 1)
  {
    for (ZeroArray<std::uint32_t>& stack : waiting_) {
      stack = ZeroArray<std::uint32_t>(pages);
    }
  }

  /// `oldest` is the oldest step of `stream` that has not retired.
  void set_oldest(StreamId stream, StepId oldest) noexcept { oldest_[stream.value] = oldest.value; }
  /// Every step of `stream` has retired.
  void set_idle(StreamId stream) noexcept { oldest_[stream.value] = ~std::uint64_t{0}; }

  /// Whether a step in flight may touch `page`, which nobody in it holds.
  [[nodiscard]] bool active(PageId page) const noexcept
  {
    std::uint64_t const stamp = stamps_[page.value];
    return stamp != 0 && stamp / max_streams >= oldest_[stamp % max_streams];
  }
  [[nodiscard]] StreamId stream(PageId page) const noexcept
  {
    return StreamId{static_cast<std::uint32_t>(stamps_[page.value] % max_streams)};
  }
  /// `page` must not be written by `stream` now.
  [[nodiscard]] bool blocks(PageId page, StreamId by) const noexcept { return active(page) && stream(page) != by; }
  void fence(PageId page, StreamId by, StepId step) noexcept
  {
    stamps_[page.value] = step.value * max_streams + by.value;
  }

  [[nodiscard]] PageCount num_waiting(StreamId of) const noexcept { return sizes_[of.value]; }
  [[nodiscard]] PageCount num_waiting() const noexcept
  {
    PageCount sum = 0;
    for (PageCount const size : sizes_) {
      sum += size;
    }
    return sum;
  }
  /// **Pre** the fence of `page` is active.
  void push(PageId page) noexcept
  {
    std::uint32_t const s = stream(page).value;
    waiting_[s][sizes_[s]++] = page.value;
  }
  /// **Pre** pages of the stream wait.
  [[nodiscard]] PageId pop(StreamId of) noexcept { return PageId{waiting_[of.value][--sizes_[of.value]]}; }
  /// Undoes a `pop`.
  void unpop(StreamId of, PageId page) noexcept { waiting_[of.value][sizes_[of.value]++] = page.value; }

  /// Hands the pages of `of` whose fence is over to `give`, in the order in which they came.
  template <class Give>
  void collect(StreamId of, Give&& give) noexcept
  {
    PageCount kept = 0;
    for (PageCount i = 0; i < sizes_[of.value]; ++i) {
      PageId const page{waiting_[of.value][i]};
      if (active(page)) {
        waiting_[of.value][kept++] = page.value;
      } else {
        give(page);
      }
    }
    sizes_[of.value] = kept;
  }
  /// Calls `visit(PageId)` for every page that waits.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for (std::uint32_t s = 0; s < max_streams; ++s) {
      for (PageCount i = 0; i < sizes_[s]; ++i) {
        visit(PageId{waiting_[s][i]});
      }
    }
  }

 private:
  ZeroArray<std::uint64_t> stamps_;  // by page: step * max_streams + stream, 0: never fenced
  ZeroArray<std::uint32_t> waiting_[max_streams];
  PageCount sizes_[max_streams]{};
  std::uint64_t oldest_[max_streams]{~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}};
};

}  // namespace kvcache::inline v0_1::detail
