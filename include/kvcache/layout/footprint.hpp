// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>

/// \file Exact bytes of a pool, before anything is allocated.

namespace kvcache::inline v0_1 {

/// What a page costs. The pool allocates exactly `pool_bytes(pages)`; a test holds the two together.
struct Footprint {
  std::uint32_t tile_bytes = 0;
  std::uint32_t tiles_per_page = 0;
  std::uint32_t row_bytes = 0;  ///< K and V of one token, layer and head, without padding

  [[nodiscard]] constexpr std::uint64_t page_bytes() const noexcept
  {
    return static_cast<std::uint64_t>(tile_bytes) * tiles_per_page;
  }
  /// Bytes of a pool with `pages` usable pages; the page of zeros comes on top.
  [[nodiscard]] constexpr std::uint64_t pool_bytes(PageCount pages) const noexcept
  {
    return page_bytes() * (static_cast<std::uint64_t>(pages) + 1);
  }
  /// The most usable pages that 32-bit units can name.
  [[nodiscard]] constexpr PageCount max_pages() const noexcept
  {
    return tiles_per_page == 0 ? 0 : ~std::uint32_t{0} / tiles_per_page - 1;
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
    if (pages > max_pages()) {
      return {Why::bad_config,
              "pages",
              pages,
              "pages x layers x kv_heads must fit 32 bits, so at most",
              max_pages()};
    }
    return {};
  }
};

}  // namespace kvcache::inline v0_1
