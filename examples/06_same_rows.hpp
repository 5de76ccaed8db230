// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Whether another engine's arithmetic ends at the same bytes as our view, for every head and row of a sequence.

#include <kvcache/view.hpp>

#include <cstddef>
#include <cstdint>

/// Where some row's K and V are.
template <class T>
struct RowAddress {
  T const* k;
  T const* v;
};

/// Rows of K or V of one layer that `theirs(head, row)` has elsewhere than our view, among the first `rows` of table row
/// `row`.
template <class Layout, class Theirs>
std::size_t rows_elsewhere(kvcache::BatchView<Layout> const& kv,
                           std::int32_t layer,
                           std::int32_t kv_heads,
                           std::uint32_t row,
                           kvcache::Index rows,
                           Theirs const& theirs)
{
  std::size_t elsewhere = 0;
  for (std::int32_t head = 0; head < kv_heads; ++head) {
    for (kvcache::Index p = 0; p < kv.tiles_of(rows); ++p) {
      auto const tile = kv.tile(layer, head, row, p, rows);
      auto const raw = tile.raw();
      for (kvcache::Index r = 0; r < raw.rows; ++r) {
        std::size_t const at = static_cast<std::size_t>(r) * raw.row_elements;
        RowAddress<typename Layout::element> const other = theirs(head, tile.first() + r);
        elsewhere += other.k == raw.k + at && other.v == raw.v + at ? 0U : 1U;
      }
    }
  }
  return elsewhere;
}
