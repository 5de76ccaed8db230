// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/left_out.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/view/team.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file Joining attention over parts of the rows.
///
///   part i:  O_i = sum p V / sum p,  L_i = log sum exp(logit)       natural logarithm
///   all:     L = log sum exp(L_i),   O = sum exp(L_i - L) O_i
///
/// A part without rows has L = -infinity and weight 0, whatever its O holds; parts that are all empty give
/// O = 0 and L = -infinity. So a merge needs no special case for a sequence shorter than its parts.

namespace kvcache::inline v0_1 {

namespace detail::inline KVCACHE_FLAGS {

/// Sums of `N` numbers at once: of 64 each, of 64 such sums, and of those, so that the error does not grow with their number.
template <std::int32_t N>
struct NestedSums {
  float of[3][static_cast<std::size_t>(N)] = {};
  std::uint32_t count = 0;

  /// Adds the first `n` of `x`, times `weight`.
  KVCACHE_HOST_DEVICE void add(float weight, float const* x, std::int32_t n)
  {
    if (n == N) {
      for (std::int32_t i = 0; i < N; ++i) {  // a fixed length, for whole vectors
        of[0][i] += weight * x[i];
      }
    } else {
      for (std::int32_t i = 0; i < n; ++i) {
        of[0][i] += weight * x[i];
      }
    }
    if (++count % 64 == 0) {
      up(0);
      if (count % 4096 == 0) {
        up(1);
      }
    }
  }
  [[nodiscard]] KVCACHE_HOST_DEVICE float sum(std::int32_t i) const
  {
    return of[2][i] + (of[1][i] + of[0][i]);
  }

 private:
  KVCACHE_HOST_DEVICE void up(std::int32_t level)
  {
    for (std::int32_t i = 0; i < N; ++i) {
      of[level + 1][i] += of[level][i];
      of[level][i] = 0.0F;
    }
  }
};

/// A state that `join_states` reads: its O and its L.
struct PartState {
  float const* o;
  float lse;
};

/// Joins states that `part(i)` gives, `i < parts`; see `merge_states`.
template <Team T, class Part>
KVCACHE_HOST_DEVICE float join_states(
  T const& team, Part const& part, std::size_t parts, std::int32_t head_dim, float* out)
{
  float most = -3.402823466e38F;
  bool empty = true;
  for (std::size_t i = 0; i < parts; ++i) {
    float const l = part(i).lse;
    empty = empty && is_minus_infinity(l);
    most = l > most ? l : most;
  }
  auto const weight = [most](float l) {  // -infinity - -infinity is no number
    return is_minus_infinity(l) ? 0.0F : ::expf(l - most);
  };
  NestedSums<1> weights;
  for (std::size_t i = 0; i < parts; ++i) {
    float const x = weight(part(i).lse);
    weights.add(1.0F, &x, 1);
  }
  float const sum = weights.sum(0);
  // One thread looks at a part for as many numbers as pay for its exponential, many threads for a few each.
  constexpr std::int32_t piece = std::is_same_v<T, Solo> ? 64 : 8;
  for (std::int32_t d = team.rank() * piece; d < head_dim; d += team.size() * piece) {
    std::int32_t const n = head_dim - d < piece ? head_dim - d : piece;
    NestedSums<piece> o;
    for (std::size_t i = 0; i < parts; ++i) {
      PartState const state = part(i);
      if (!is_minus_infinity(state.lse)) {  // an empty part's O may be anything
        o.add(weight(state.lse) / sum, state.o + d, n);
      }
    }
    for (std::int32_t i = 0; i < n; ++i) {
      out[d + i] = o.sum(i);
    }
  }
  return or_no_score(empty, most + ::logf(sum));
}

}  // namespace detail::inline KVCACHE_FLAGS

inline namespace KVCACHE_FLAGS {

/// Joins `parts` states of one query row; each member of `team` writes a part of `out`. Returns L.
/// **Shape** part i's O at `o + i * o_stride`, `(head_dim)`, its L at `lse[i * lse_stride]`.
/// **Pre** `out` is none of the parts. **Cost** reads each part once; no allocation. The error does not grow with `parts`.
template <Team T>
KVCACHE_HOST_DEVICE float merge_states(T const& team,
                                       float const* o,
                                       std::size_t o_stride,
                                       float const* lse,
                                       std::size_t lse_stride,
                                       std::size_t parts,
                                       std::int32_t head_dim,
                                       float* out)
{
  auto const part = [=](std::size_t i) {
    return detail::PartState{o + i * o_stride, lse[i * lse_stride]};
  };
  return detail::join_states(team, part, parts, head_dim, out);
}

}  // namespace KVCACHE_FLAGS

}  // namespace kvcache::inline v0_1
