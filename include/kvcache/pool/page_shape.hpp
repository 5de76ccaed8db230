// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/layout/footprint.hpp>

#include <cstddef>
#include <cstdint>

/// \file The rows of a page as what launches copy: runs of bytes at equal strides.
///
/// A run holds the consecutive rows of one head, or of all heads where a token's lie side by side. Layers and heads
/// are two strides; where one continues the other they are one. Otherwise the shorter of the two costs records:
///
///   hnd, page-first     one stride over (layer, head)      2 records a copy, for K and V
///   nhd, either         one stride over layers             2
///   hnd, layer-first    stride over the longer             2 x min(layers, kv_heads)
///   planes, either      as hnd, layer-first

namespace kvcache::inline v0_1::detail {

/// See the file comment.
struct PageShape {
  std::byte* arena;
  std::size_t page_bytes;  ///< from one page to the next
  std::size_t row_bytes;   ///< from one row of K (or V) to the next, in a run
  std::size_t values_at;   ///< from a row's K to its V
  std::size_t stride;      ///< from one run to the next
  std::uint32_t runs;
  std::size_t outer_stride;  ///< from the runs of one record to those of the next
  std::uint32_t outer;

  /// Records of a copy or move.
  [[nodiscard]] std::size_t records() const noexcept { return std::size_t{2} * outer; }

  [[nodiscard]] static PageShape of(std::byte* arena,
                                    Footprint const& f,
                                    PageCount pages,
                                    std::size_t row_bytes,
                                    std::size_t values_at) noexcept
  {
    std::size_t const unit = f.unit_bytes;
    std::size_t const by_layer = f.layer_stride(pages) * unit;
    std::size_t const by_head = f.head_units * unit;
    std::uint32_t const heads = f.tiles_per_page / f.layers;
    PageShape shape{.arena = arena,
                    .page_bytes = f.page_units() * unit,
                    .row_bytes = row_bytes,
                    .values_at = values_at,
                    .stride = by_layer,
                    .runs = f.layers,
                    .outer_stride = by_head,
                    .outer = heads};
    if (row_bytes == by_head * heads || heads == 1) {  // a token's heads lie side by side
      shape.outer = 1;
    } else if (f.layers == 1 || by_head * heads == by_layer) {
      shape.stride = by_head;
      shape.runs = f.tiles_per_page;
      shape.outer = 1;
    } else if (heads > f.layers) {
      shape.stride = by_head;
      shape.runs = heads;
      shape.outer_stride = by_layer;
      shape.outer = f.layers;
    }
    return shape;
  }
};

}  // namespace kvcache::inline v0_1::detail
