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
/// A page that steps of several streams may touch waits for all but one of them.
///
/// Cost: O(streams) a page; 12 bytes a page and stream, of memory that is touched only where pages are fenced.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
class Fences {
 public:
  static constexpr std::uint32_t many =
    max_streams;  // the stack of pages that several streams may touch
  static constexpr std::uint32_t nobody = nil;

  /// The stream whose steps may touch `page`, `many`, or `nobody`.
  [[nodiscard]] std::uint32_t who(PageId page) const noexcept
  {
    std::uint32_t found = nobody;
    if (quiet_) {
      return found;
    }
    for (std::uint32_t s = 0; s < max_streams; ++s) {
      if (oldest_[s] != never && stamps_[s][page.value] >= oldest_[s]) {
        found = found == nobody ? s : many;
      }
    }
    return found;
  }

  explicit Fences(PageCount pages)
  {
    for (ZeroArray<std::uint64_t>& stamps : stamps_) {
      stamps = ZeroArray<std::uint64_t>(std::size_t{pages} + 1);
    }
    for (ZeroArray<std::uint32_t>& stack : waiting_) {
      stack = ZeroArray<std::uint32_t>(pages);
    }
  }

  /// `oldest` is the oldest step of `stream` that has not retired; a step that never comes where all have.
  void set_oldest(StreamId stream, StepId oldest) noexcept
  {
    oldest_[stream.value] = oldest.value;
    quiet_ = true;
    for (std::uint32_t s = 0; s < max_streams; ++s) {
      quiet_ = quiet_ && newest_[s] < oldest_[s];
    }
  }

  /// Step `step`, which was submitted, may touch `page`, which nobody in it holds.
  void fence(PageId page, StreamId by, StepId step) noexcept
  {
    std::uint64_t& stamp = stamps_[by.value][page.value];
    stamp = stamp < step.value ? step.value : stamp;  // another holder may have left a later one
    newest_[by.value] = newest_[by.value] < step.value ? step.value : newest_[by.value];
    quiet_ = false;
  }

  /// Every stream that keeps `page` keeps `above` for as long.
  [[nodiscard]] bool covers(PageId above, PageId page) const noexcept
  {
    bool all = true;
    for (std::uint32_t s = 0; s < max_streams && !quiet_; ++s) {
      all = all && (stamps_[s][page.value] < oldest_[s] ||
                    stamps_[s][page.value] <= stamps_[s][above.value]);
    }
    return all;
  }
  /// From now on `above` is kept for as long as `page` is.
  void cover(PageId above, PageId page) noexcept
  {
    for (ZeroArray<std::uint64_t>& stamps : stamps_) {
      std::uint64_t& stamp = stamps[above.value];
      stamp = stamp < stamps[page.value] ? stamps[page.value] : stamp;
    }
  }
  /// No page is fenced.
  [[nodiscard]] bool quiet() const noexcept { return quiet_; }

  /// A step in flight may touch `page`.
  [[nodiscard]] bool active(PageId page) const noexcept { return who(page) != nobody; }
  /// `page` must not be written by `stream` now.
  [[nodiscard]] bool blocks(PageId page, StreamId by) const noexcept
  {
    std::uint32_t const s = who(page);
    return s != nobody && s != by.value;
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
  /// `page` waits. **Pre** its fence is active.
  void push(PageId page) noexcept
  {
    std::uint32_t const s = who(page);
    waiting_[s][sizes_[s]++] = page.value;
  }
  /// **Pre** pages of the stream wait.
  [[nodiscard]] PageId pop(StreamId of) noexcept
  {
    return PageId{waiting_[of.value][--sizes_[of.value]]};
  }
  /// Takes `page` if it was the last to wait in its stack. **Pre** its fence is active.
  [[nodiscard]] bool pop_if_last(PageId page) noexcept
  {
    std::uint32_t const s = who(page);
    if (sizes_[s] == 0 || waiting_[s][sizes_[s] - 1] != page.value) {
      return false;
    }
    --sizes_[s];
    return true;
  }

  /// Hands the pages whose fence is over to `give`, in the order in which they came.
  template <class Give>
  void collect(StreamId of, Give&& give) noexcept
  {
    for (std::uint32_t const s : {of.value, many}) {
      PageCount const size = sizes_[s];
      sizes_[s] = 0;
      for (PageCount i = 0; i < size; ++i) {
        PageId const page{waiting_[s][i]};
        if (active(page)) {
          push(page);  // where it was, or from the shared stack to that of the one stream left
        } else {
          give(page);
        }
      }
    }
  }
  /// Calls `visit(PageId)` for every page that waits.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for (std::uint32_t s = 0; s <= many; ++s) {
      for (PageCount i = 0; i < sizes_[s]; ++i) {
        visit(PageId{waiting_[s][i]});
      }
    }
  }

 private:
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  ZeroArray<std::uint64_t> stamps_[max_streams];  // by page: the newest step that may touch it
  ZeroArray<std::uint32_t> waiting_[many + 1];
  PageCount sizes_[many + 1]{};
  std::uint64_t oldest_[max_streams]{never, never, never, never};
  std::uint64_t newest_[max_streams]{};  // of the stamps
  bool quiet_ = true;                    // no page is fenced
};

static_assert(max_streams == 4);

}  // namespace kvcache::inline v0_1::detail
