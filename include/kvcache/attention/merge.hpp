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
  constexpr float empty = -__builtin_huge_valf();
  float most = empty;
  for (std::size_t i = 0; i < parts; ++i) {
    float const l = lse[i * lse_stride];
    most = l > most ? l : most;
  }
  for (std::int32_t d = team.rank(); d < head_dim; d += team.size()) {
    out[d] = 0.0F;
  }
  float sum = 0.0F;
  for (std::size_t i = 0; i < parts; ++i) {
    float const l = lse[i * lse_stride];
    if (l == empty) {
      continue;  // its O may be anything, and -infinity - -infinity is no number
    }
    float const weight = ::expf(l - most);
    sum += weight;
    float const* const part = o + i * o_stride;
    for (std::int32_t d = team.rank(); d < head_dim; d += team.size()) {
      out[d] += weight * part[d];
    }
  }
  if (sum == 0.0F) {
    return empty;
  }
  float const inverse = 1.0F / sum;
  for (std::int32_t d = team.rank(); d < head_dim; d += team.size()) {
    out[d] *= inverse;
  }
  return most + ::logf(sum);
}

}  // namespace kvcache::inline v0_1
