// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/layout/element.hpp>
#include <kvcache/layout/extent.hpp>
#include <kvcache/layout/footprint.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/layout/row_map.hpp>
#include <kvcache/layout/row_order.hpp>

#include <cstddef>
#include <cstdint>

/// \file The layout of plain attention: a page holds, for `page_tokens` places, every layer and KV head.
///
///   pool   [ page 0: zeros ][ page 1 ][ page 2 ] ...            page-first: a page is one extent to copy
///   page   [ layer 0: head 0 | head 1 | .. ][ layer 1: .. ] ...  one tile per (layer, head)
///   tile   [ K row 0 | K row 1 | .. ][ V row 0 | V row 1 | .. ][ pad to 128 bytes ]
///
/// The tile is what an attention kernel loads: contiguous, heads before tokens ("HND" in other engines),
/// V behind K. The unit of addressing is then the tile, so `unit = page * tiles_per_page + layer * kv_heads +
/// head` fits 32 bits and only the last product is 64 bits wide. `RowOrder` has the orders of other engines' kernels,
/// `Geometry::arrangement` the pool with a tensor per layer; rows, pages, plans and views are the same in all.
///
/// What is static: element type and order always, since loops are compiled for them; head_dim and page_tokens where
/// the type names them, to unroll and to divide by constants. Layers, heads and arrangement never: no inner loop asks.
/// Cost: waste is the padding to 128 bytes, of a tile or of a page's part of a layer (none in common sizes), and the
/// empty places of a last page. `docs/layouts.md` has the limits.

namespace kvcache::inline v0_1 {

/// Pages of K and V per layer and KV head; MHA, GQA and MQA alike.
/// Dimensions may be `kvcache::dynamic`, and then come from the `Geometry`.
template <class T,
          std::int32_t HeadDim = dynamic,
          std::int32_t PageTokens = dynamic,
          RowOrder Order = RowOrder::hnd>
struct PagedHeads {
  static_assert(Element<T>,
                "kvcache: PagedHeads needs an element type of 1, 2, 4 or 8 plain bytes for which "
                "kvcache::ElementTraits has to_float and from_float");
  static_assert(HeadDim == dynamic ||
                  (HeadDim >= 8 && HeadDim <= Geometry::max_head_dim && HeadDim % 8 == 0),
                "kvcache: PagedHeads needs a head_dim that is a multiple of 8, from 8 to 256, or "
                "kvcache::dynamic");
  static_assert(HeadDim == dynamic || HeadDim * static_cast<std::int32_t>(sizeof(T)) % 16 == 0,
                "kvcache: PagedHeads needs a head_dim that is a multiple of 16 where an element is "
                "one byte, so that rows are aligned to 16 bytes");
  static_assert(PageTokens == dynamic ||
                  (PageTokens >= 1 && PageTokens <= Geometry::max_page_tokens),
                "kvcache: PagedHeads needs page_tokens from 1 to 256, or kvcache::dynamic");

  using element = T;
  using Map = RowMap<T, HeadDim, PageTokens, Order>;
  static constexpr std::int32_t head_dim = HeadDim;
  static constexpr std::int32_t page_tokens = PageTokens;
  static constexpr RowOrder order = Order;

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
    if (error.why == Why::ok) {
      error = check_sizes(g);
    }
    return g;
  }

  /// **Pre** `g` went through `complete`.
  [[nodiscard]] static constexpr Map map(Geometry const& g) noexcept
  {
    return Map::of(g.head_dim, g.page_tokens, g.kv_heads);
  }

  /// Exact bytes. **Pre** `g` went through `complete`.
  [[nodiscard]] static constexpr Footprint footprint(Geometry const& g) noexcept
  {
    Map const m = map(g);
    auto const heads = static_cast<std::uint32_t>(g.kv_heads);
    std::uint64_t const layer = (std::uint64_t{m.tile_bytes()} * heads + 127U) / 128U * 128U;
    std::uint64_t unit = m.head_bytes();  // the largest that divides both strides
    for (std::uint64_t rest = layer; rest != 0;) {
      std::uint64_t const next = unit % rest;
      unit = rest;
      rest = next;
    }
    return {.tile_bytes = m.tile_bytes(),
            .tiles_per_page = static_cast<std::uint32_t>(g.layers) * heads,
            .row_bytes =
              2U * static_cast<std::uint32_t>(g.head_dim) * static_cast<std::uint32_t>(sizeof(T)),
            .unit_bytes = static_cast<std::uint32_t>(unit),
            .head_units = static_cast<std::uint32_t>(m.head_bytes() / unit),
            .layer_units = static_cast<std::uint32_t>(layer / unit),
            .layers = static_cast<std::uint32_t>(g.layers),
            .arrangement = g.arrangement};
  }

 private:
  /// What depends on the element, and on products of several fields. **Pre** each field is in its range.
  [[nodiscard]] static constexpr Error check_sizes(Geometry const& g) noexcept
  {
    if (g.head_dim * static_cast<std::int32_t>(sizeof(T)) % 16 != 0) {
      return {Why::bad_config,
              "head_dim",
              g.head_dim,
              "must be a multiple of 16 where an element is one byte"};
    }
    // The page of zeros and one page; so many units to a layer that even those are too many only come with planes.
    std::uint64_t const most = Footprint::max_units / 2 / footprint(g).layer_units;
    if (static_cast<std::uint64_t>(g.layers) > most) {
      return {
        Why::bad_config,
        "layers",
        g.layers,
        "with so many kv_heads and page_tokens must leave two pages in 32-bit units, so at most",
        static_cast<std::int64_t>(most)};
    }
    return {};
  }
};

}  // namespace kvcache::inline v0_1
