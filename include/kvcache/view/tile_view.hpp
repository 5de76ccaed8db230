// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/hidden_rows.hpp>

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
  KVCACHE_HOST_DEVICE TileView(
    std::byte const* tile, Map map, Index first, Index rows, HiddenRows hidden = {})
      : k_(reinterpret_cast<element const*>(tile)),
        map_(map),
        first_(first),
        rows_(rows),
        hidden_(hidden)
  {
  }

  /// Rows that hold tokens, 1 to page_tokens. All may be hidden in a step with trees.
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
  /// Whether the token sees row `r`: always, unless the row is of another branch of its tree.
  KVCACHE_HOST_DEVICE bool sees(Index r) const { return !hidden_.any() || !hidden_.at(first_ + r); }
  /// What to add to the logit of row `r`: 0, or a very low number where the token may not see the row.
  /// Not -infinity: a softmax over a tile whose rows are all hidden would then take infinity from infinity. This
  /// way its weights are numbers, relative to a maximum so low that the first row seen scales them to exactly 0;
  /// there is one, for every token sees itself. A finite logit of less than 1e22 vanishes in it.
  KVCACHE_HOST_DEVICE float bias(Index r) const { return sees(r) ? 0.0F : -1.0e30F; }
  /// For kernels that load by themselves: bit i says that row `r + i` is one that the token may not see. 0 in most
  /// tiles; more than 64 rows take more than one call.
  KVCACHE_HOST_DEVICE std::uint64_t hidden(Index r = 0) const
  {
    std::uint64_t const bits = hidden_.from(first_ + r);
    return rows_ - r < 64 ? bits & ((std::uint64_t{1} << (rows_ - r)) - 1) : bits;
  }
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
  HiddenRows hidden_;
};

}  // namespace kvcache::inline v0_1
