// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/layout/extent.hpp>
#include <kvcache/layout/footprint.hpp>
#include <kvcache/layout/geometry.hpp>

#include <cstddef>
#include <cstdint>

/// \file The layout of plain attention: a page holds, for `page_tokens` places, every layer and KV head.
///
///   pool   [ page 0: zeros ][ page 1 ][ page 2 ] ...            page-first: a page is one extent to copy
///   page   [ layer 0: head 0 | head 1 | .. ][ layer 1: .. ] ...  one tile per (layer, head)
///   tile   [ K row 0 | K row 1 | .. ][ V row 0 | V row 1 | .. ][ pad to 128 bytes ]
///
/// The tile is what an attention kernel loads: contiguous, heads before tokens ("HND" in other engines),
/// V behind K. The unit of addressing is the tile, so `unit = page * tiles_per_page + layer * kv_heads +
/// head` fits 32 bits and only the last product is 64 bits wide.
///
/// Cost: waste is the padding of a tile (none from 128 bytes up) and the empty places of a last page.

namespace kvcache::inline v0_1 {

/// Pages of K and V per layer and KV head; MHA, GQA and MQA alike.
/// Any dimension may be `kvcache::dynamic`, and then comes from the `Geometry`.
template <class T, std::int32_t HeadDim = dynamic, std::int32_t PageTokens = dynamic>
struct PagedHeads {
  static_assert(HeadDim == dynamic ||
                  (HeadDim >= 8 && HeadDim <= Geometry::max_head_dim && HeadDim % 8 == 0),
                "kvcache: PagedHeads needs a head_dim that is a multiple of 8, from 8 to 256, or "
                "kvcache::dynamic");
  static_assert(PageTokens == dynamic ||
                  (PageTokens >= 1 && PageTokens <= Geometry::max_page_tokens),
                "kvcache: PagedHeads needs page_tokens from 1 to 256, or kvcache::dynamic");

  using element = T;
  static constexpr std::int32_t head_dim = HeadDim;
  static constexpr std::int32_t page_tokens = PageTokens;

  /// The part that views carry: where a row lies inside a tile. Trivially copyable.
  struct Map {
    Extent<HeadDim> dim;
    Extent<PageTokens> tokens;

    /// Elements from one row of K (or V) to the next.
    KVCACHE_HOST_DEVICE constexpr std::uint32_t row_elements() const
    {
      return static_cast<std::uint32_t>(dim.get());
    }
    /// Elements from K row 0 to V row 0 of a tile.
    KVCACHE_HOST_DEVICE constexpr std::uint32_t value_elements() const
    {
      return static_cast<std::uint32_t>(dim.get()) * static_cast<std::uint32_t>(tokens.get());
    }
    /// Bytes of a tile: the unit of the address formula.
    KVCACHE_HOST_DEVICE constexpr std::uint32_t tile_bytes() const
    {
      return (2U * value_elements() * static_cast<std::uint32_t>(sizeof(T)) + 127U) / 128U * 128U;
    }
  };

  /// The geometry with the dimensions that the type fixes filled in.
  /// **Errors** a dimension that contradicts the type, or cannot work, is named in `error`.
  [[nodiscard]] static constexpr Geometry complete(Geometry g, Error& error) noexcept
  {
    if constexpr (HeadDim != dynamic) {
      if (g.head_dim != 0 && g.head_dim != HeadDim) {
        error = {
          Why::bad_config, "head_dim", g.head_dim, "must be 0 or what the layout fixes,", HeadDim};
        return g;
      }
      g.head_dim = HeadDim;
    }
    if constexpr (PageTokens != dynamic) {
      if (g.page_tokens != 0 && g.page_tokens != PageTokens) {
        error = {Why::bad_config,
                 "page_tokens",
                 g.page_tokens,
                 "must be 0 or what the layout fixes,",
                 PageTokens};
        return g;
      }
      g.page_tokens = PageTokens;
    }
    error = g.validate();
    return g;
  }

  /// **Pre** `g` went through `complete`.
  [[nodiscard]] static constexpr Map map(Geometry const& g) noexcept
  {
    return {Extent<HeadDim>{g.head_dim}, Extent<PageTokens>{g.page_tokens}};
  }

  /// Exact bytes. **Pre** `g` went through `complete`.
  [[nodiscard]] static constexpr Footprint footprint(Geometry const& g) noexcept
  {
    return {.tile_bytes = map(g).tile_bytes(),
            .tiles_per_page =
              static_cast<std::uint32_t>(g.layers) * static_cast<std::uint32_t>(g.kv_heads),
            .row_bytes =
              2U * static_cast<std::uint32_t>(g.head_dim) * static_cast<std::uint32_t>(sizeof(T))};
  }
};

}  // namespace kvcache::inline v0_1
