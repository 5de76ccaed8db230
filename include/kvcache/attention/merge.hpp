// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/view/team.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// \file Joining attention over parts of the rows.
///
///   part i:  O_i = sum p V / sum p,  L_i = log sum exp(logit)       natural logarithm
///   all:     L = log sum exp(L_i),   O = sum exp(L_i - L) O_i
///
/// A part without rows has L = -infinity and weight 0, whatever its O holds; parts that are all empty give
/// O = 0 and L = -infinity. So a merge needs no special case for a sequence shorter than its parts.

namespace kvcache::inline v0_1 {

namespace detail {

/// out += weight * part, in pieces of eight so that a compiler sees whole vectors.
template <Team T>
KVCACHE_HOST_DEVICE void add_weighted(T const& team,
                                      float weight,
                                      float const* __restrict__ part,
                                      std::int32_t head_dim,
                                      float* __restrict__ out)
{
  constexpr std::int32_t piece = 8;
  for (std::int32_t d = team.rank() * piece; d < head_dim; d += team.size() * piece) {
    if (d + piece <= head_dim) {
      for (std::int32_t i = 0; i < piece; ++i) {
        out[d + i] += weight * part[d + i];
      }
    } else {
      for (std::int32_t i = d; i < head_dim; ++i) {
        out[i] += weight * part[i];
      }
    }
  }
}

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
  constexpr float empty = -__builtin_huge_valf();
  float most = empty;
  for (std::size_t i = 0; i < parts; ++i) {
    float const l = part(i).lse;
    most = l > most ? l : most;
  }
  float sum = 0.0F;
  for (std::size_t i = 0; i < parts; ++i) {
    float const l = part(i).lse;
    sum += l == empty ? 0.0F : ::expf(l - most);  // -infinity - -infinity is no number
  }
  constexpr std::int32_t piece = 8;
  for (std::int32_t d = team.rank() * piece; d < head_dim; d += team.size() * piece) {
    for (std::int32_t i = d; i < d + piece && i < head_dim; ++i) {
      out[i] = 0.0F;
    }
  }
  for (std::size_t i = 0; i < parts; ++i) {
    PartState const state = part(i);
    if (state.lse != empty) {  // an empty part's O may be anything
      add_weighted(team, ::expf(state.lse - most) / sum, state.o, head_dim, out);
    }
  }
  return sum == 0.0F ? empty : most + ::logf(sum);
}

}  // namespace detail

/// Joins `parts` states of one query row; each member of `team` writes a part of `out`. Returns L.
/// **Shape** part i's O at `o + i * o_stride`, `(head_dim)`, its L at `lse[i * lse_stride]`.
/// **Pre** `out` is none of the parts. **Cost** reads each part once; no allocation.
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

}  // namespace kvcache::inline v0_1
