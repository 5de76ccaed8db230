// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/left_out.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/ldmatrix.hpp>
#include <kvcache/core/isa/mma.hpp>
#include <kvcache/core/isa/reduce.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file Attention of 16 query rows by one warp on tensor cores, a step of 16 or 64 KV rows at a time.
///
///   S = Q K^T      scores      K rows in shared memory are b by columns as they lie: ldmatrix
///   P = 2^(S - m)  weigh       m, the maximum, and l, the sum, run along; O and l are scaled when m rises
///   O = O + P V    add_values  d of the first product has the places of a of the second, so P never leaves the registers;
///                              V rows are transposed on the way: ldmatrix.trans
///
/// A lane has query rows `lane / 4` and `lane / 4 + 8`, of each the columns 2 (lane % 4) and the next of every eight (see
/// `isa/mma_map.hpp`). S is in units of log2, so that a weight is one `ex2`. Scores, sums and O are float; P is rounded to
/// the element, as tensor cores take it (see `rounding_shows`), and its sum is that of the exact values.
/// Shared rows are `row_bytes` apart, an odd number of 16 bytes: eight rows then lie in different banks.
/// Source: Milakov and Gimelshein, 2018; Dao, "FlashAttention-2", 2023.

namespace kvcache::inline v0_1::detail {

/// Of a row that counts for nothing. Finite, so that a host's compiler may forget infinities; a score below it is none either.
inline constexpr float no_score = lowest_score;

/// From one row to the next in shared memory.
template <int HeadDim>
inline constexpr std::int32_t row_bytes = HeadDim * 2 + 16;

/// `from + n`, for offsets inside a block's shared memory or a row: their products fit 32 bits.
template <class T>
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr T* past(T* from, std::int32_t n)
{
  return from + n;
}

/// A lane's values of `Columns` columns of 16 rows.
template <int Columns>
using Fragments = float[static_cast<std::size_t>(Columns / 8)][4];

/// The state of a lane's two query rows.
template <int HeadDim>
struct RowStates {
  float most[2] = {no_score, no_score};  ///< in units of log2
  float sum[2] = {0.0F, 0.0F};           ///< over this lane's columns only
  Fragments<HeadDim> o = {};
};

/// Sixteen query rows as fragments of a: in registers where there is room for them, else from shared memory at each step.
template <int HeadDim>
class QueryRows {
 public:
  static constexpr bool held = HeadDim <= 128;

  /// **Pre** `rows` is shared memory, the first of the warp's 16 rows, and a sync lies behind its writing.
  template <class W>
  KVCACHE_HOST_DEVICE QueryRows(W& warp, std::byte const* rows)
      : at_(past(rows, warp.lane() % 16 * row_bytes<HeadDim> + warp.lane() / 16 * 16))
  {
    if constexpr (held) {
      KVCACHE_UNROLL
      for (int k = 0; k < HeadDim / 16; ++k) {
        isa::ldmatrix<4>(warp, held_[k], past(at_, k * 32));
      }
    }
  }

  /// Columns `16 k` to `16 k + 15`.
  template <class W>
  KVCACHE_HOST_DEVICE void get(W& warp, int k, std::uint32_t (&a)[4]) const
  {
    if constexpr (held) {
      KVCACHE_UNROLL
      for (int i = 0; i < 4; ++i) {
        a[i] = held_[k][i];
      }
    } else {
      isa::ldmatrix<4>(warp, a, past(at_, k * 32));
    }
  }

 private:
  std::byte const* at_;  // the row and half of it whose address this lane gives
  std::uint32_t held_[static_cast<std::size_t>(held ? HeadDim / 16 : 1)][4];
};

/// Two fragments of b from four matrices.
template <class Element, class W>
KVCACHE_HOST_DEVICE void multiply_pair(W& warp,
                                       float (&left)[4],
                                       float (&right)[4],
                                       std::uint32_t const (&a)[4],
                                       std::uint32_t const (&b)[4])
{
  std::uint32_t const b_left[2] = {b[0], b[1]};
  std::uint32_t const b_right[2] = {b[2], b[3]};
  isa::mma_m16n8k16<Element>(warp, left, a, b_left);
  isa::mma_m16n8k16<Element>(warp, right, a, b_right);
}

/// `s[n]`: products of the query rows with K rows `8 n` to `8 n + 7` of the step.
/// **Pre** `keys` is shared memory, `Rows` rows; a sync lies behind their arrival.
template <class Element, int HeadDim, int Rows, class W>
KVCACHE_HOST_DEVICE void scores(W& warp,
                                QueryRows<HeadDim> const& queries,
                                std::byte const* keys,
                                Fragments<Rows>& s)
{
  std::int32_t const lane = warp.lane();
  std::byte const* const at =
    past(keys, (lane / 16 * 8 + lane % 8) * row_bytes<HeadDim> + lane / 8 % 2 * 16);
  KVCACHE_UNROLL
  for (int n = 0; n < Rows / 8; ++n) {
    KVCACHE_UNROLL
    for (int j = 0; j < 4; ++j) {
      s[n][j] = 0.0F;
    }
  }
  KVCACHE_UNROLL
  for (int k = 0; k < HeadDim / 16; ++k) {
    std::uint32_t a[4];
    queries.get(warp, k, a);
    KVCACHE_UNROLL
    for (int n = 0; n < Rows / 16; ++n) {
      std::uint32_t b[4];
      isa::ldmatrix<4>(warp, b, past(at, n * 16 * row_bytes<HeadDim> + k * 32));
      multiply_pair<Element>(warp, s[2 * n], s[2 * n + 1], a, b);
    }
  }
}

/// Turns scores in units of log2 into weights, relative to the greatest score so far.
template <int HeadDim, int Rows, class W>
KVCACHE_HOST_DEVICE void weigh(W& warp, RowStates<HeadDim>& state, Fragments<Rows>& s)
{
  KVCACHE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float most = state.most[i];
    KVCACHE_UNROLL
    for (int n = 0; n < Rows / 8; ++n) {
      most = isa::max_float(most, isa::max_float(s[n][2 * i], s[n][2 * i + 1]));
    }
    most = isa::reduce_max<4>(warp, most);
    float const base = most == no_score ? 0.0F : most;  // whose weights would be 1
    float const shrink = ::exp2f(state.most[i] - base);
    float sum = 0.0F;
    KVCACHE_UNROLL
    for (int n = 0; n < Rows / 8; ++n) {
      KVCACHE_UNROLL
      for (int j = 2 * i; j < 2 * i + 2; ++j) {
        s[n][j] = ::exp2f(s[n][j] - base);
        sum += s[n][j];
      }
    }
    state.most[i] = most;
    state.sum[i] = state.sum[i] * shrink + sum;
    KVCACHE_UNROLL
    for (int n = 0; n < HeadDim / 8; ++n) {
      state.o[n][2 * i] *= shrink;
      state.o[n][2 * i + 1] *= shrink;
    }
  }
}

/// Whether rounding of weights to `Element` could show: bfloat16 keeps 8 bits, an error of up to 2^-9 of a weight, and such
/// errors average out over the rows that carry the sum. With a sum of 16 or more they are below 2^-9 / sqrt(3 * 16) of the
/// values, root mean square; since O and the sum shrink together, that also holds for what comes later.
template <class Element, int HeadDim, class W>
KVCACHE_HOST_DEVICE bool rounding_shows(W& warp, RowStates<HeadDim> const& state)
{
  constexpr float enough = 16.0F / 4.0F;  // a lane's part of it
  if constexpr (std::is_same_v<Element, bfloat16>) {
    return warp.any(state.sum[0] < enough || state.sum[1] < enough, all_lanes);
  } else {
    return false;
  }
}

/// Leaves in P what rounding to `Element` takes off.
template <class Element, int Rows>
KVCACHE_HOST_DEVICE void keep_rest(Fragments<Rows>& p)
{
  KVCACHE_UNROLL
  for (int n = 0; n < Rows / 8; ++n) {
    KVCACHE_UNROLL
    for (int j = 0; j < 4; j += 2) {
      isa::Float2 const taken = isa::unpack<Element>(isa::pack<Element>(p[n][j], p[n][j + 1]));
      p[n][j] -= taken.lo;
      p[n][j + 1] -= taken.hi;
    }
  }
}

/// Which of the two elements of a word are no finite numbers: bits 15 and 31.
template <class Element>
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::uint32_t not_finite(std::uint32_t pair)
{
  constexpr std::uint32_t exponent = std::is_same_v<Element, half> ? 0x7c007c00U : 0x7f807f80U;
  constexpr std::uint32_t lowest_bit = std::is_same_v<Element, half> ? 0x04000400U : 0x00800080U;
  return ((pair & exponent) + lowest_bit) & 0x80008000U;  // a full exponent runs over
}

/// The address that a lane gives for V, whose rows are turned on the way.
template <int HeadDim, class W>
[[nodiscard]] KVCACHE_HOST_DEVICE std::byte const* lane_of_values(W const& warp,
                                                                  std::byte const* values)
{
  std::int32_t const lane = warp.lane();
  return past(values, lane % 16 * row_bytes<HeadDim> + lane / 16 * 16);
}

/// Whether V has what is no finite number. **Pre** as `add_values`.
template <class Element, int HeadDim, int Rows, class W>
[[nodiscard]] KVCACHE_HOST_DEVICE bool some_not_finite(W& warp, std::byte const* values)
{
  std::byte const* const at = lane_of_values<HeadDim>(warp, values);
  std::uint32_t found = 0;
  KVCACHE_UNROLL
  for (int n = 0; n < Rows / 16; ++n) {
    KVCACHE_UNROLL
    for (int d = 0; d < HeadDim / 16; ++d) {
      std::uint32_t b[4];
      isa::ldmatrix_transposed<4>(warp, b, past(at, n * 16 * row_bytes<HeadDim> + d * 32));
      KVCACHE_UNROLL
      for (std::uint32_t const pair : b) {
        found |= not_finite<Element>(pair);
      }
    }
  }
  return warp.any(found != 0, all_lanes);
}

/// Takes out of V what is no finite number, and makes O no number where a weight that is not 0 meets it.
template <class Element, class W>
KVCACHE_HOST_DEVICE void set_apart(
  W& warp, float (&o)[4], std::uint32_t const (&a)[4], std::uint32_t& b_low, std::uint32_t& b_high)
{
  constexpr std::uint32_t one = std::is_same_v<Element, half> ? 0x3c00U : 0x3f80U;
  std::uint32_t seen[4];
  KVCACHE_UNROLL
  for (int i = 0; i < 4; ++i) {
    seen[i] = (((a[i] & 0x7fff7fffU) + 0x7fff7fffU) >> 15 & 0x00010001U) * one;
  }
  std::uint32_t const low = not_finite<Element>(b_low) >> 15;
  std::uint32_t const high = not_finite<Element>(b_high) >> 15;
  std::uint32_t const odd[2] = {low * one, high * one};
  b_low &= ~(low * 0xffffU);
  b_high &= ~(high * 0xffffU);
  float met[4] = {};
  isa::mma_m16n8k16<Element>(warp, met, seen, odd);
  KVCACHE_UNROLL
  for (int j = 0; j < 4; ++j) {
    o[j] = met[j] > 0.0F ? __builtin_bit_cast(float, 0x7fc00000U) : o[j];
  }
}

/// O += P V. `Apart`: a weight of 0 takes nothing of a V that is no finite number.
/// **Pre** `values` is shared memory, `Rows` rows, without `Apart` of finite numbers; a sync lies behind their arrival.
template <class Element, int HeadDim, bool Apart, int Rows, class W>
KVCACHE_HOST_DEVICE void add_values(W& warp,
                                    RowStates<HeadDim>& state,
                                    Fragments<Rows> const& p,
                                    std::byte const* values)
{
  std::byte const* const at = lane_of_values<HeadDim>(warp, values);
  KVCACHE_UNROLL
  for (int n = 0; n < Rows / 16; ++n) {
    std::uint32_t a[4];
    KVCACHE_UNROLL
    for (int i = 0; i < 4; ++i) {
      float const* const pair = past(p[2 * n + i / 2], i % 2 * 2);
      a[i] = isa::pack<Element>(pair[0], pair[1]);
    }
    KVCACHE_UNROLL
    for (int d = 0; d < HeadDim / 16; ++d) {
      std::uint32_t b[4];
      isa::ldmatrix_transposed<4>(warp, b, past(at, n * 16 * row_bytes<HeadDim> + d * 32));
      if constexpr (Apart) {
        set_apart<Element>(warp, state.o[2 * d], a, b[0], b[1]);
        set_apart<Element>(warp, state.o[2 * d + 1], a, b[2], b[3]);
      }
      multiply_pair<Element>(warp, state.o[2 * d], state.o[2 * d + 1], a, b);
    }
  }
}

/// O += P V, with what rounding of P takes off where that shows. `apart`, the same in all lanes, and **Pre** as `add_values`.
template <class Element, int HeadDim, int Rows, class W>
KVCACHE_HOST_DEVICE void add_all_values(
  W& warp, RowStates<HeadDim>& state, Fragments<Rows>& p, std::byte const* values, bool apart)
{
  for (bool rest = false;; rest = true) {  // one body for both: ptxas spills with two
    if (apart) {
      add_values<Element, HeadDim, true, Rows>(warp, state, p, values);
    } else {
      add_values<Element, HeadDim, false, Rows>(warp, state, p, values);
    }
    if (rest || !rounding_shows<Element>(warp, state)) {
      return;
    }
    keep_rest<Element, Rows>(p);
  }
}

}  // namespace kvcache::inline v0_1::detail
