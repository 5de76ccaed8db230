// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The pool of the model, on a device whose streams run late, early and between each other. A row is one number, a function
/// of its domain and all tokens up to it.

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/device/device.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "model/naive.hpp"
#include "support/stamp.hpp"
#include "support/streams_device.hpp"

namespace kvcache_test {

/// Slots of the largest pool of the model.
using FlightSlots = std::bitset<17 * 16>;

class FlightDevice {
 public:
  using Layout = kvcache::PagedHeads<kvcache::half, 8>;
  using View = kvcache::BatchView<Layout>;

  StreamsDevice streams;

  explicit FlightDevice(kvcache::ControlOptions const& options)
      : page_tokens_(static_cast<std::size_t>(options.page_tokens)), pool_(make(options, streams))
  {
    streams.sync();
    page_bytes_ = pool_.footprint().page_bytes();
    std::memset(pool_.page(kvcache::PageId{1}), 0, page_bytes_ * options.pages);
  }

  /// Of one of the streams that steps have.
  [[nodiscard]] kvcache::StreamRef stream(std::uint32_t number)
  {
    return {&handles_[number], number};
  }
  /// A stream's plan, behind what it was asked for before; null, or what the pool has against it.
  [[nodiscard]] char const* apply(kvcache::Plan const& plan)
  {
    auto const applied = pool_.apply(plan, stream(plan.stream.value));
    return applied ? nullptr : applied.error().field;
  }
  /// The step of the plan is over for the host.
  void abandon(std::uint32_t slot, std::uint32_t number) { pool_.abandon(slot, stream(number)); }
  /// What kernels of the plan's step see.
  [[nodiscard]] View view(std::uint32_t slot) const { return pool_.view(slot); }

  [[nodiscard]] std::size_t slot(kvcache::PageId page, std::size_t row) const
  {
    return page.value * page_tokens_ + row % page_tokens_;
  }
  /// The slot of row `row` of a sequence with these pages.
  [[nodiscard]] std::size_t slot_of(std::span<kvcache::PageId const> table, std::size_t row) const
  {
    return slot(table[row / page_tokens_], row);
  }
  /// As above, where kernels find it.
  [[nodiscard]] std::size_t slot_of(View const& view, kvcache::RowId of, std::size_t row) const
  {
    auto const at = static_cast<std::uint32_t>(row / page_tokens_);
    return slot(kvcache::PageId{view.segment.entry(0, 0, of.value, at)}, row);
  }
  /// The stamp of a slot; none where K and V are not of one row.
  [[nodiscard]] Stamp at(std::size_t slot) const
  {
    Stamp k = 0;
    Stamp v = 0;
    std::memcpy(&k, place(slot), sizeof k);
    std::memcpy(&v, place(slot) + page_tokens_ * row_bytes, sizeof v);
    return v == ~k ? k : 0;
  }
  void put(std::size_t slot, Stamp k)
  {
    Stamp const v = ~k;
    std::memcpy(place(slot), &k, sizeof k);
    std::memcpy(place(slot) + page_tokens_ * row_bytes, &v, sizeof v);
  }
  [[nodiscard]] std::size_t page_tokens() const { return page_tokens_; }

 private:
  static constexpr std::size_t row_bytes = 8 * sizeof(kvcache::half);

  [[nodiscard]] static kvcache::Pool<Layout> make(kvcache::ControlOptions const& options,
                                                  StreamsDevice& streams)
  {
    kvcache::Error error;
    kvcache::Geometry const geometry =
      Layout::complete({.layers = 1, .kv_heads = 1, .page_tokens = options.page_tokens}, error);
    auto made = kvcache::Pool<Layout>::create(geometry, options, {}, &streams);
    require(made.has_value(), "no pool");
    return std::move(*made);
  }
  [[nodiscard]] std::byte* place(std::size_t slot) const
  {
    return pool_.page(kvcache::PageId{0}) + slot / page_tokens_ * page_bytes_ +
           slot % page_tokens_ * row_bytes;
  }

  std::size_t page_tokens_;
  std::size_t page_bytes_ = 0;
  kvcache::Pool<Layout> pool_;
  char handles_[2]{};
};

}  // namespace kvcache_test
