// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file Where a row lies: one formula for every kind of page.
///
///   r    = row * seq_rows + head * head_rows
///   unit = table[layer * layer_stride + r * row_stride + p] * page_scale + offset[layer] + head * head_scale
///   byte = base + u64(unit) * unit_bytes
///
/// Pages that all heads share have `layer_stride = head_rows = 0` and one table row a sequence; tiles that
/// belong to one head (survivors of an eviction) have `page_scale = 1` and a table row per (layer, head).
/// The table is int32, one padded row after the other, so other engines' kernels read it as it is.

namespace kvcache::inline v0_1 {

/// A run of sequences' rows in pages of one class. Trivially copyable; passed to kernels by value.
struct SegmentView {
  std::byte* base;                    ///< unit 0 of the pool
  std::int32_t const* table;          ///< page ids, `row_stride` to a row
  std::uint32_t const* layer_offset;  ///< units from a page's start to the layer's, `[layers]`
  std::uint32_t num_pages;            ///< entries from here on are not pages of this pool
  std::uint32_t row_stride;
  std::uint32_t layer_stride;
  std::uint32_t seq_rows;
  std::uint32_t head_rows;
  std::uint32_t page_scale;
  std::uint32_t head_scale;
  std::uint32_t unit_bytes;

  /// The table entry of the `p`-th page of `row`, as an unsigned number. **Cost** one load.
  KVCACHE_HOST_DEVICE std::uint32_t entry(std::uint32_t layer,
                                          std::uint32_t head,
                                          std::uint32_t row,
                                          std::uint32_t p) const
  {
    std::size_t const r =
      static_cast<std::size_t>(row) * seq_rows + static_cast<std::size_t>(head) * head_rows;
    return static_cast<std::uint32_t>(
      table[static_cast<std::size_t>(layer) * layer_stride + r * row_stride + p]);
  }

  /// Whether all layers and heads of a sequence share its table row, so that `entry(0, 0, row, p)` is the page of any.
  KVCACHE_HOST_DEVICE bool one_table() const { return layer_stride == 0 && head_rows == 0; }

  /// The page of that entry if rows may be stored there. 0, the page of zeros, which is read-only: the entry would lie behind
  /// its table row, or is no page of the pool. **Cost** one load.
  KVCACHE_HOST_DEVICE std::uint32_t page_to_store(std::uint32_t layer,
                                                  std::uint32_t head,
                                                  std::uint32_t row,
                                                  std::uint32_t p) const
  {
    std::uint32_t const page = p < row_stride ? entry(layer, head, row, p) : 0;
    return page < num_pages ? page : 0;
  }

  /// The tile of (layer, head) in `page`. An id outside the pool reads the page of zeros, so no table
  /// content makes a kernel leave the pool. **Cost** one load, one 64-bit product.
  KVCACHE_HOST_DEVICE std::byte* tile(std::uint32_t layer,
                                      std::uint32_t head,
                                      std::uint32_t page) const
  {
    std::uint32_t const safe = page < num_pages ? page : 0;
    std::uint32_t const unit = safe * page_scale + layer_offset[layer] + head * head_scale;
    return base + static_cast<std::size_t>(unit) * unit_bytes;
  }
};

static_assert(std::is_trivially_copyable_v<SegmentView> && std::is_standard_layout_v<SegmentView>);

}  // namespace kvcache::inline v0_1
