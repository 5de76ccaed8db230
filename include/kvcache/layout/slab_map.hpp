// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/layout/footprint.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file One arena for pages of several classes: equal slabs, each of one class at a time.
///
///   slab    0                          1                      2
///   arena   [ zeros | open 1 | .. ]    [ sealed 9 | 10 | .. ] [ open 6 | 7 | .. ] ..
///
/// A class's page ids count over the whole arena: page i begins at byte i * page_bytes, whoever has the bytes before
/// it. So each class has the one address formula with its own scale and unit, an id says which slab it is in, and a slab
/// that changes hands moves nothing. For that a slab is a common multiple of all page sizes.
/// Id 0 of every class lies in the zeros at the arena's start, which are as large as the largest page.
///
/// A plain model has one class: its slab is a page, and the arena is that of `Footprint::pool_bytes`.
/// Cost: arithmetic; lost are less than a slab at the arena's end, and in slab 0 the zeros.

namespace kvcache::inline v0_1 {

/// The usable page ids of one class in one slab.
struct SlabPages {
  PageId first;
  PageCount count;
};

/// See the file comment. A value.
class SlabMap {
 public:
  static constexpr std::size_t max_classes = 8;

  /// Cuts `arena_bytes` for pages of these `classes`. A slab holds `least_slab_bytes` or more.
  /// **Errors** the field that cannot work, and the figure that would.
  [[nodiscard]] static Result<SlabMap> create(std::span<Footprint const> classes,
                                              std::uint64_t arena_bytes,
                                              std::uint64_t least_slab_bytes = 0) noexcept
  {
    if (classes.empty() || classes.size() > max_classes) {
      return Error{Why::bad_config,
                   "classes",
                   static_cast<std::int64_t>(classes.size()),
                   "must be 1 to",
                   max_classes};
    }
    SlabMap map;
    std::uint64_t slab = 1;
    for (Footprint const& f : classes) {
      if (f.page_bytes() == 0 || f.arrangement != Arrangement::page_first) {
        return Error{Why::bad_config,
                     "classes",
                     static_cast<std::int64_t>(map.num_classes_),
                     "is the number of one whose pages are no extents; all must be page_first"};
      }
      map.classes_[map.num_classes_++] = f;
      map.zero_bytes_ = f.page_bytes() > map.zero_bytes_ ? f.page_bytes() : map.zero_bytes_;
      slab = common_multiple(slab, f.page_bytes());
    }
    map.slab_bytes_ = slab;
    if (slab != 0 && least_slab_bytes > slab) {
      std::uint64_t const times = (least_slab_bytes - 1) / slab + 1;
      map.slab_bytes_ = times <= too_large / slab ? slab * times : too_large;
    }
    std::uint64_t const slabs = slab == 0 ? 0 : arena_bytes / map.slab_bytes_;
    if (slabs == 0) {
      return Error{Why::bad_config,
                   "arena_bytes",
                   static_cast<std::int64_t>(arena_bytes),
                   "must hold a slab, a common multiple of all page sizes",
                   static_cast<std::int64_t>(map.slab_bytes_)};
    }
    for (Footprint const& f : classes) {
      std::uint64_t const most_units = Footprint::max_units * f.unit_bytes;
      std::uint64_t const most_ids = (std::uint64_t{Footprint::most_pages} + 1) * f.page_bytes();
      std::uint64_t const most = most_units < most_ids ? most_units : most_ids;
      if (slabs * map.slab_bytes_ > most) {
        return Error{Why::bad_config,
                     "arena_bytes",
                     static_cast<std::int64_t>(arena_bytes),
                     "must leave units of 32 bits and page ids of 31 for every class, so at most",
                     static_cast<std::int64_t>(most / map.slab_bytes_ * map.slab_bytes_)};
      }
    }
    map.num_slabs_ = static_cast<std::uint32_t>(slabs);
    return map;
  }

  [[nodiscard]] std::size_t num_classes() const noexcept { return num_classes_; }
  [[nodiscard]] std::uint32_t num_slabs() const noexcept { return num_slabs_; }
  [[nodiscard]] std::uint64_t slab_bytes() const noexcept { return slab_bytes_; }
  /// Zeros at the arena's start: page 0 of every class.
  [[nodiscard]] std::uint64_t zero_bytes() const noexcept { return zero_bytes_; }
  /// **Pre** of what takes a class: `c < num_classes()`.
  [[nodiscard]] Footprint const& footprint(std::size_t c) const noexcept { return classes_[c]; }
  /// Ids of the class lie below this: `SegmentView::num_pages`.
  [[nodiscard]] PageCount num_pages(std::size_t c) const noexcept
  {
    return static_cast<PageCount>(num_slabs_ * per_slab(c));
  }
  /// The ids that a slab gives to the class that has it. **Pre** `slab < num_slabs()`.
  [[nodiscard]] SlabPages pages(std::size_t c, std::uint32_t slab) const noexcept
  {
    std::uint64_t const count = per_slab(c);
    std::uint64_t const bytes = classes_[c].page_bytes();
    std::uint64_t const behind_zeros = (zero_bytes_ + bytes - 1) / bytes;
    std::uint64_t const begin = slab * count;
    std::uint64_t const first = begin < behind_zeros ? behind_zeros : begin;
    std::uint64_t const end = begin + count;
    return {PageId{static_cast<std::uint32_t>(first)},
            static_cast<PageCount>(end > first ? end - first : 0)};
  }
  /// **Pre** `page.value < num_pages(c)`.
  [[nodiscard]] std::uint32_t slab_of(std::size_t c, PageId page) const noexcept
  {
    return static_cast<std::uint32_t>(page.value / per_slab(c));
  }

 private:
  static constexpr std::uint64_t too_large = std::uint64_t{1} << 62;

  SlabMap() = default;

  [[nodiscard]] std::uint64_t per_slab(std::size_t c) const noexcept
  {
    return slab_bytes_ / classes_[c].page_bytes();
  }
  /// 0: too large for any arena. **Pre** `b > 0`.
  [[nodiscard]] static std::uint64_t common_multiple(std::uint64_t a, std::uint64_t b) noexcept
  {
    std::uint64_t x = a;
    std::uint64_t y = b;
    while (y != 0) {
      std::uint64_t const rest = x % y;
      x = y;
      y = rest;
    }
    return a == 0 || b / x > too_large / a ? 0 : b / x * a;
  }

  Footprint classes_[max_classes];
  std::size_t num_classes_ = 0;
  std::uint64_t slab_bytes_ = 0;
  std::uint64_t zero_bytes_ = 0;
  std::uint32_t num_slabs_ = 0;
};

}  // namespace kvcache::inline v0_1
