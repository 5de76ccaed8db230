// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

/// \file Some consecutive rows of one (layer, KV head), as an attention loop reads them.

namespace kvcache::inline v0_1 {

/// Address and strides of a tile, for kernels that load by themselves.
template <class T>
struct RawTile {
  T const* k;                  ///< K of row 0, 16-byte aligned
  T const* v;                  ///< V of row 0, 16-byte aligned
  std::uint32_t row_elements;  ///< from one row to the next, for K and V alike
  Index rows;                  ///< rows that hold tokens; bytes past them are unspecified
};

/// Rows `first() .. first() + rows() - 1` of a sequence. **Shape** `(rows, head_dim)` for K and for V.
template <class Layout>
class TileView {
 public:
  using element = typename Layout::element;
  using Map = typename Layout::Map;

  TileView() = default;
  KVCACHE_HOST_DEVICE TileView(std::byte const* tile, Map map, Index first, Index rows)
      : k_(reinterpret_cast<element const*>(tile)), map_(map), first_(first), rows_(rows)
  {
  }

  /// Rows that hold tokens, 1 to page_tokens.
  KVCACHE_HOST_DEVICE Index rows() const { return rows_; }
  /// The index in the sequence of row 0.
  KVCACHE_HOST_DEVICE Index first() const { return first_; }
  /// Element `d` of the key of row `r`. **Pre** `r < rows()`.
  KVCACHE_HOST_DEVICE float key(Index r, std::int32_t d) const
  {
    return ElementTraits<element>::to_float(k_[at(r) + static_cast<std::size_t>(d)]);
  }
  /// Element `d` of the value of row `r`. **Pre** `r < rows()`.
  KVCACHE_HOST_DEVICE float value(Index r, std::int32_t d) const
  {
    return ElementTraits<element>::to_float(
      k_[map_.value_elements() + at(r) + static_cast<std::size_t>(d)]);
  }
  /// What to add to the logit of row `r`: 0 until an eviction policy leaves a compensation row.
  KVCACHE_HOST_DEVICE constexpr float bias(Index) const { return 0.0F; }
  KVCACHE_HOST_DEVICE RawTile<element> raw() const
  {
    return {k_, k_ + map_.value_elements(), map_.row_elements(), rows_};
  }

 private:
  KVCACHE_HOST_DEVICE std::size_t at(Index r) const
  {
    return static_cast<std::size_t>(r) * map_.row_elements();
  }

  element const* k_;
  Map map_;
  Index first_;
  Index rows_;
};

}  // namespace kvcache::inline v0_1
