// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/layout/extent.hpp>
#include <kvcache/layout/row_order.hpp>

#include <cstddef>
#include <cstdint>

/// \file Where a row lies behind the first row of its (layer, head): the part of a layout that views carry.
///
///   K(s) = K(0) + s * row_elements        V(s) = K(s) + value_elements
///
/// With both dimensions static the strides of contiguous tiles are constants of the compiler, and the map is empty.
/// The other orders step over heads, whose number a model's file gives: one number more, read once a loop.

namespace kvcache::inline v0_1 {

/// The rows of contiguous tiles. **Pre** of every layout's map: made by its `map`. Trivially copyable.
template <class T, std::int32_t HeadDim, std::int32_t PageTokens, RowOrder Order>
struct RowMap {
  Extent<HeadDim> dim;
  Extent<PageTokens> tokens;

  KVCACHE_HOST_DEVICE static constexpr RowMap of(std::int32_t head_dim,
                                                 std::int32_t page_tokens,
                                                 std::int32_t)
  {
    return {Extent<HeadDim>{head_dim}, Extent<PageTokens>{page_tokens}};
  }
  /// Elements from one row of K (or V) to the next.
  KVCACHE_HOST_DEVICE constexpr std::uint32_t row_elements() const
  {
    return static_cast<std::uint32_t>(dim.get());
  }
  /// Elements from a row's K to its V.
  KVCACHE_HOST_DEVICE constexpr std::uint32_t value_elements() const
  {
    return static_cast<std::uint32_t>(dim.get()) * static_cast<std::uint32_t>(tokens.get());
  }
  /// Bytes of a tile, and of the step to the next head's.
  KVCACHE_HOST_DEVICE constexpr std::uint32_t tile_bytes() const
  {
    return (2U * value_elements() * static_cast<std::uint32_t>(sizeof(T)) + 127U) / 128U * 128U;
  }
  KVCACHE_HOST_DEVICE constexpr std::uint32_t head_bytes() const { return tile_bytes(); }
};

/// The rows of planes: all of a layer's K before all of its V, by head or by token.
template <class T, std::int32_t HeadDim, std::int32_t PageTokens, RowOrder Order>
  requires(Order != RowOrder::hnd)
struct RowMap<T, HeadDim, PageTokens, Order> {
  Extent<HeadDim> dim;
  Extent<PageTokens> tokens;
  Extent<dynamic> heads;

  KVCACHE_HOST_DEVICE static constexpr RowMap of(std::int32_t head_dim,
                                                 std::int32_t page_tokens,
                                                 std::int32_t kv_heads)
  {
    return {Extent<HeadDim>{head_dim}, Extent<PageTokens>{page_tokens}, Extent<dynamic>{kv_heads}};
  }
  KVCACHE_HOST_DEVICE constexpr std::uint32_t row_elements() const
  {
    auto const one = static_cast<std::uint32_t>(dim.get());
    return Order == RowOrder::nhd ? one * static_cast<std::uint32_t>(heads.get()) : one;
  }
  KVCACHE_HOST_DEVICE constexpr std::uint32_t value_elements() const
  {
    return static_cast<std::uint32_t>(dim.get()) * static_cast<std::uint32_t>(tokens.get()) *
           static_cast<std::uint32_t>(heads.get());
  }
  /// Bytes of K and V of one head.
  KVCACHE_HOST_DEVICE constexpr std::uint32_t tile_bytes() const
  {
    return 2U * static_cast<std::uint32_t>(dim.get()) * static_cast<std::uint32_t>(tokens.get()) *
           static_cast<std::uint32_t>(sizeof(T));
  }
  /// Bytes from a head to the next.
  KVCACHE_HOST_DEVICE constexpr std::uint32_t head_bytes() const
  {
    auto const one = static_cast<std::uint32_t>(dim.get()) * static_cast<std::uint32_t>(sizeof(T));
    return Order == RowOrder::nhd ? one : one * static_cast<std::uint32_t>(tokens.get());
  }
};

}  // namespace kvcache::inline v0_1
