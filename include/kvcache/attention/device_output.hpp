// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device_query.hpp>
#include <kvcache/attention/device_step.hpp>
#include <kvcache/attention/device_work.hpp>
#include <kvcache/attention/left_out.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/once.hpp>
#include <kvcache/core/isa/reduce.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file Where results go: to the caller, or into a slot of the work where an item is cut.

namespace kvcache::inline v0_1 {

/// Where the numbers of one layer lie on the device. **Pre** `q` and `out` are multiples of 16 bytes and do not overlap.
/// **Shape** q, out `(tokens, query_heads, head_dim)`; lse `(tokens, query_heads)`, natural log of the sum of exponentials.
template <class Query, class Out>
struct DeviceTensors {
  Query const* q = nullptr;
  Out* out = nullptr;
  float* lse = nullptr;  ///< or null
};

namespace detail {

/// What divides a sum of weighted values; a row that sees nothing has the value 0.
[[nodiscard]] KVCACHE_HOST_DEVICE inline float inverse(float sum)
{
  return sum == 0.0F ? 0.0F : 1.0F / sum;
}

/// The natural log of `sum 2^most`.
[[nodiscard]] KVCACHE_HOST_DEVICE inline float log_of(float most, float sum)
{
  constexpr float ln_2 = 0.69314718055994530942F;
  return or_no_score(sum == 0.0F, (most + ::log2f(sum)) * ln_2);
}

/// Rows of `(tokens, query_heads, HeadDim)`.
template <class Element, int HeadDim, class Out>
struct OutRows {
  Out* out;
  float* lse;
  std::int32_t query_heads;

  [[nodiscard]] KVCACHE_HOST_DEVICE std::size_t row_of(Index token, std::int32_t head) const
  {
    return static_cast<std::size_t>(token) * static_cast<std::size_t>(query_heads) +
           static_cast<std::size_t>(head);
  }
  /// Elements `d` and `d + 1`, an even place.
  KVCACHE_HOST_DEVICE void put(std::size_t row, std::int32_t d, float x, float y) const
  {
    Out* const to = out + row * HeadDim + d;
    if constexpr (std::is_same_v<Out, float>) {
      isa::store_once<2>(
        to, {__builtin_bit_cast(std::uint32_t, x), __builtin_bit_cast(std::uint32_t, y)});
    } else {
      isa::store_once<1>(to, {isa::pack<Element>(x, y)});
    }
  }
  KVCACHE_HOST_DEVICE void put_lse(std::size_t row, float x) const
  {
    if (lse != nullptr) {
      lse[row] = x;
    }
  }
};

/// The rows of one tile: states in the work, or the caller's where there are none.
template <class Element, int HeadDim, class Out>
struct TileOut {
  OutRows<Element, HeadDim, Out> rows;
  QueryRow const* queries;
  float* state_out;  ///< of the tile's first row, or null
  float* state_lse;

  /// An item that is a cut one's part in `slot`, or where that is negative whole.
  static KVCACHE_HOST_DEVICE TileOut of(OutRows<Element, HeadDim, Out> const& rows,
                                        QueryRow const* queries,
                                        DeviceWork const& work,
                                        WorkTile const& tile,
                                        std::int32_t kv_head,
                                        std::int32_t slot)
  {
    if (slot >= 0) {
      std::size_t const at = static_cast<std::size_t>(slot) * WorkTile::wide_rows;
      return {rows, queries, work.part_out + at * HeadDim, work.part_lse + at};
    }
    if (tile.level >= 0) {
      std::size_t const at = work.state(tile.level, kv_head, tile.first);
      return {rows, queries, work.shared.out + at * HeadDim, work.shared.lse + at};
    }
    return {rows, queries, nullptr, nullptr};
  }
  KVCACHE_HOST_DEVICE void put(std::int32_t r, std::int32_t d, float x, float y) const
  {
    if (state_out == nullptr) {
      rows.put(rows.row_of(queries[r].token, queries[r].head), d, x, y);
    } else {
      OutRows<Element, HeadDim, float>{state_out, nullptr, 0}.put(
        static_cast<std::size_t>(r), d, x, y);
    }
  }
  KVCACHE_HOST_DEVICE void put_lse(std::int32_t r, float x) const
  {
    if (state_lse == nullptr) {
      rows.put_lse(rows.row_of(queries[r].token, queries[r].head), x);
    } else {
      state_lse[r] = x;
    }
  }
};

/// The states of a warp's own 16 rows, of which `count` are there, as rows `first` and on of the tile.
template <int HeadDim, class W, class Tile>
KVCACHE_HOST_DEVICE void put_states(
  W& warp, RowStates<HeadDim> const& state, std::int32_t first, std::int32_t count, Tile const& to)
{
  KVCACHE_UNROLL
  for (std::int32_t i = 0; i < 2; ++i) {
    float const sum = isa::reduce_sum<4>(warp, state.sum[i]);
    std::int32_t const r = warp.lane() / 4 + 8 * i;
    if (r < count) {
      float const scale = inverse(sum);
      KVCACHE_UNROLL
      for (std::int32_t n = 0; n < HeadDim / 8; ++n) {
        to.put(first + r,
               8 * n + warp.lane() % 4 * 2,
               state.o[n][2 * i] * scale,
               state.o[n][2 * i + 1] * scale);
      }
      if (warp.lane() % 4 == 0) {
        to.put_lse(first + r, log_of(state.most[i], sum));
      }
    }
  }
}

/// The states that the warps of a block have of the same 16 rows, in shared memory, on their way to be joined.
template <int HeadDim, int Warps>
struct JoinedStates {
  static constexpr std::int32_t row_floats =
    HeadDim + 8;  // rows of a quarter warp in different banks

  static constexpr std::int32_t warp_floats = 16 * row_floats;

  float* o;     ///< `[Warps][16][row_floats]`
  float* most;  ///< `[Warps][16]`
  float* sum;   ///< `[Warps][16]`

  template <class W>
  KVCACHE_HOST_DEVICE void give(W& warp, RowStates<HeadDim> const& state) const
  {
    KVCACHE_UNROLL
    for (std::int32_t i = 0; i < 2; ++i) {
      float const total = isa::reduce_sum<4>(warp, state.sum[i]);
      std::int32_t const r = warp.lane() / 4 + 8 * i;
      float* const row = past(o, warp.index() * warp_floats + r * row_floats + warp.lane() % 4 * 2);
      KVCACHE_UNROLL
      for (std::int32_t n = 0; n < HeadDim / 8; ++n) {
        float* const pair = past(row, 8 * n);
        pair[0] = state.o[n][2 * i];
        pair[1] = state.o[n][2 * i + 1];
      }
      if (warp.lane() % 4 == 0) {
        most[warp.index() * 16 + r] = state.most[i];
        sum[warp.index() * 16 + r] = total;
      }
    }
  }

  /// **Pre** a barrier lies behind `give`. Thread `thread` of `threads` does its share of `count` rows.
  template <class Tile>
  KVCACHE_HOST_DEVICE void join(std::int32_t thread,
                                std::int32_t threads,
                                std::int32_t count,
                                Tile const& to) const
  {
    constexpr std::int32_t pairs = HeadDim / 2;
    for (std::int32_t j = thread; j < count * pairs; j += threads) {
      std::int32_t const r = j / pairs;
      std::int32_t const d = j % pairs * 2;
      float top = no_score;
      KVCACHE_UNROLL
      for (std::int32_t w = 0; w < Warps; ++w) {
        top = isa::max_float(top, most[w * 16 + r]);
      }
      float const base = top == no_score ? 0.0F : top;
      float total = 0.0F;
      float x = 0.0F;
      float y = 0.0F;
      KVCACHE_UNROLL
      for (std::int32_t w = 0; w < Warps; ++w) {
        float const weight = ::exp2f(most[w * 16 + r] - base);
        float const* const row = past(o, w * warp_floats + r * row_floats + d);
        total += weight * sum[w * 16 + r];
        x += weight * row[0];
        y += weight * row[1];
      }
      to.put(r, d, x * inverse(total), y * inverse(total));
      if (d == 0) {
        to.put_lse(r, log_of(top, total));
      }
    }
  }
};

}  // namespace detail

}  // namespace kvcache::inline v0_1
