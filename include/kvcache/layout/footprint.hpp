// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/layout/arrangement.hpp>

#include <cstdint>

/// \file Exact bytes of a pool, before anything is allocated, and the strides that they are made of.
///
///   unit = page * page_units() + layer * layer_stride(pages) + head * head_units      32 bits
///   byte = unit * unit_bytes                                                          64 bits
///
/// A unit is as large as page, layer and head strides allow: a tile where tiles are contiguous, so that 32 bits
/// reach far, and a row's vector in token order.

namespace kvcache::inline v0_1 {

/// What a page costs. The pool allocates exactly `pool_bytes(pages)`; a test holds the two together.
struct Footprint {
  std::uint32_t tile_bytes =
    0;  ///< K and V of one (layer, head), padded where tiles are contiguous
  std::uint32_t tiles_per_page = 0;
  std::uint32_t row_bytes = 0;    ///< K and V of one token, layer and head, without padding
  std::uint32_t unit_bytes = 0;   ///< what the address formula counts in
  std::uint32_t head_units = 0;   ///< from one head of a page to the next
  std::uint32_t layer_units = 0;  ///< of a page's part of one layer, padding included
  std::uint32_t layers = 0;
  Arrangement arrangement = Arrangement::page_first;

  static constexpr std::uint64_t max_units = 0xffffffffU;   // 32 bits name them
  static constexpr PageCount most_pages = 0x7fffffffU - 1;  // tables are int32

  /// Bytes of a page's part of one layer: one extent, in either arrangement.
  [[nodiscard]] constexpr std::uint64_t layer_bytes() const noexcept
  {
    return std::uint64_t{layer_units} * unit_bytes;
  }
  [[nodiscard]] constexpr std::uint64_t page_bytes() const noexcept
  {
    return layer_bytes() * layers;
  }
  /// Bytes of a pool with `pages` usable pages; the page of zeros comes on top.
  [[nodiscard]] constexpr std::uint64_t pool_bytes(PageCount pages) const noexcept
  {
    return page_bytes() * (std::uint64_t{pages} + 1);
  }
  /// Units from one page to the next. **Pre** the pages of the pool were validated.
  [[nodiscard]] constexpr std::uint32_t page_units() const noexcept
  {
    return arrangement == Arrangement::page_first ? layers * layer_units : layer_units;
  }
  /// Units from a layer to the next. **Pre** `pages` was validated.
  [[nodiscard]] constexpr std::uint32_t layer_stride(PageCount pages) const noexcept
  {
    return arrangement == Arrangement::page_first ? layer_units : layer_units * (pages + 1);
  }
  /// The most usable pages that 32-bit units, and tables of int32, can name.
  [[nodiscard]] constexpr PageCount max_pages() const noexcept
  {
    std::uint64_t const units = std::uint64_t{layers} * layer_units;
    std::uint64_t const all = units == 0 ? 0 : max_units / units;
    std::uint64_t const usable = all == 0 ? 0 : all - 1;
    return usable < most_pages ? static_cast<PageCount>(usable) : most_pages;
  }
  /// The most usable pages that fit in `bytes`.
  [[nodiscard]] constexpr PageCount pages_in(std::uint64_t bytes) const noexcept
  {
    std::uint64_t const all = page_bytes() == 0 ? 0 : bytes / page_bytes();
    std::uint64_t const usable = all == 0 ? 0 : all - 1;
    return usable < max_pages() ? static_cast<PageCount>(usable) : max_pages();
  }
  [[nodiscard]] constexpr Error validate(PageCount pages) const noexcept
  {
    if (pages < 1) {
      return {Why::bad_config, "pages", pages, "must be at least", 1};
    }
    if (pages > most_pages && max_pages() == most_pages) {
      return {Why::bad_config, "pages", pages, "must fit tables of int32, so at most", most_pages};
    }
    if (pages > max_pages()) {
      bool const tiles = std::uint64_t{layers} * layer_units == tiles_per_page;
      return {Why::bad_config,
              "pages",
              pages,
              tiles ? "pages x layers x kv_heads must fit 32 bits, so at most"
                    : "pages x units of a page (layers x kv_heads x rows in token order) must fit "
                      "32 bits, so at most",
              max_pages()};
    }
    return {};
  }
};

}  // namespace kvcache::inline v0_1
