// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device_step.hpp>
#include <kvcache/attention/device_work.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/isa/async_copy.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>

/// \file K and V rows on their way from the pages of one sequence and KV head into a ring in shared memory.
///
///   slot    0: K of step 0    1: V of step 0    2: K of step 1    3: V of step 1    0: K of step 2  ...
///
/// A narrow item's step is a unit of 64 rows: each warp copies the 16 that it reads, so its part of the slots is a ring of its
/// own. A wide item's step is half a unit, or a quarter where O leaves few registers: each warp copies a fourth of it, and all
/// read all of it. A warp keeps `slots - 1` copies on their way: it waits for one, and while it works on that the next goes
/// into the slot that was left before. Narrow items of large heads have two slots, one on its way: the eight warps of two blocks
/// have 64 KiB asked for even so. Table entries, one for each row, are asked for two steps ahead of their copy, so that no
/// warp waits for one; a page may have any number of rows and the rows any order. Rows out of the item's range become zeros
/// without a look at the table; an entry that is no page gives the page of zeros.

namespace kvcache::inline v0_1::detail {

/// The copies of one warp of four.
template <class Layout, int HeadDim, bool Wide>
class RowRing {
 public:
  static constexpr std::int32_t warp_rows = !Wide ? 16 : QueryRows<HeadDim>::held ? 8 : 4;
  static constexpr std::int32_t step_rows = 4 * warp_rows;
  static constexpr std::int32_t slot_bytes = step_rows * row_bytes<HeadDim>;
  static constexpr std::int32_t slots = Wide || QueryRows<HeadDim>::held ? 4 : 2;

  /// Rows `[begin, end)` of the sequence in table row `row`. This warp's rows of the first step start at `next`, the last
  /// step ends at `stop`.
  template <class W>
  KVCACHE_HOST_DEVICE RowRing(W& warp,
                              BatchView<Layout> const& view,
                              std::int32_t layer,
                              std::int32_t head,
                              std::uint32_t row,
                              std::byte* memory,
                              Index next,
                              Index stop,
                              Index begin,
                              Index end)
      : view_(view),
        memory_(memory),
        layer_(static_cast<std::uint32_t>(layer)),
        head_(static_cast<std::uint32_t>(head)),
        row_(row),
        next_(next),
        stop_(stop),
        begin_(begin),
        end_(end),
        origin_(view.segment.tile(layer_, head_, 0)),
        entry_(look_up(warp, next)),
        entry_ahead_(look_up(warp, next + step_rows))
  {
  }

  /// Starts the next half of a step, K and V by turns, or an empty group behind the last.
  template <class W>
  KVCACHE_HOST_DEVICE void start(W& warp)
  {
    if (!values_) {
      source_ = find(warp);
    }
    if (next_ < stop_) {
      copy(warp);
    }
    isa::cp_async_commit(warp);
    put_ = put_ + 1 == slots ? 0 : put_ + 1;
    if (values_) {
      next_ += step_rows;
      entry_ = entry_ahead_;
      entry_ahead_ = look_up(warp, next_ + step_rows);
    }
    values_ = !values_;
  }

  /// Waits for this warp's part of the half that is next; then that slot, with the rows of all warps.
  template <class W>
  KVCACHE_HOST_DEVICE std::byte const* take(W& warp)
  {
    isa::cp_async_wait<slots - 2>(warp);
    std::byte const* const slot = past(memory_, take_ * slot_bytes);
    take_ = take_ + 1 == slots ? 0 : take_ + 1;
    return slot;
  }

 private:
  /// The table entry of the row that this lane stands for, those from `first` on; page 0 for rows that are not the item's.
  template <class W>
  KVCACHE_HOST_DEVICE std::uint32_t look_up(W const& warp, Index first) const
  {
    Index const index = first + warp.lane() % warp_rows;
    return index >= begin_ && index < end_
             ? view_.segment.entry(
                 layer_, head_, row_, static_cast<std::uint32_t>(index / view_.map.tokens.get()))
             : 0;
  }

  /// The K of that row in the next step, as `SegmentView::tile` says it, but without asking for the layer again.
  template <class W>
  KVCACHE_HOST_DEVICE std::byte const* find(W const& warp) const
  {
    SegmentView const& segment = view_.segment;
    std::uint32_t const page = entry_ < segment.num_pages ? entry_ : 0;
    auto const index = static_cast<std::uint32_t>(next_ + warp.lane() % warp_rows);
    std::uint32_t const place = index % static_cast<std::uint32_t>(view_.map.tokens.get());
    return origin_ + static_cast<std::size_t>(page * segment.page_scale) * segment.unit_bytes +
           static_cast<std::size_t>(place) * view_.map.row_elements() *
             sizeof(typename Layout::element);
  }

  /// Eight lanes to a row, so that each of them asks for one line of 128 bytes at a time.
  template <class W>
  KVCACHE_HOST_DEVICE void copy(W& warp)
  {
    constexpr std::int32_t pieces = HeadDim / 8;  // of 16 bytes, to a row
    std::size_t const offset =
      values_ ? view_.map.value_elements() * sizeof(typename Layout::element) : 0;
    std::byte* const slot =
      past(memory_, put_ * slot_bytes + warp.index() * warp_rows * row_bytes<HeadDim>);
    KVCACHE_UNROLL
    for (std::int32_t i = 0; i < warp_rows / 4; ++i) {
      std::int32_t const row = i * 4 + warp.lane() / 8;
      std::byte const* const from = warp.shuffle(source_, row, all_lanes) + offset;
      bool const real = next_ + row >= begin_ && next_ + row < end_;
      KVCACHE_UNROLL
      for (std::int32_t j = 0; j < pieces; j += 8) {
        std::int32_t const piece = j + warp.lane() % 8;
        if (piece < pieces) {
          isa::cp_async<16>(warp,
                            past(slot, row * row_bytes<HeadDim> + piece * 16),
                            past(from, piece * 16),
                            real ? 16 : 0);
        }
      }
    }
  }

  BatchView<Layout> const& view_;
  std::byte* memory_;
  std::uint32_t layer_;
  std::uint32_t head_;
  std::uint32_t row_;
  Index next_;  // the first row of this warp in the step that is started next
  Index stop_;
  Index begin_;
  Index end_;
  std::byte const* origin_;  // this layer and head in page 0
  std::uint32_t entry_;      // of this lane's row in the next step, and in the one after
  std::uint32_t entry_ahead_;
  std::byte const* source_ = nullptr;  // this lane's row in the step that is being started
  std::int32_t put_ = 0;
  std::int32_t take_ = 0;
  bool values_ = false;
};

}  // namespace kvcache::inline v0_1::detail
