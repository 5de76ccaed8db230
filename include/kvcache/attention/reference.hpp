// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// \file Attention written for the eye: what every faster kernel must equal, and a start for one's own.
///
/// It reads rows through `tiles`, `key`, `value` and `bias` only, and runs on a CPU thread, a GPU thread or
/// a warp. Each member of the team computes every logit itself and keeps its share of the output, so no
/// member waits for another: simple, and head_dim times too slow for a warp that minds. Rows that a tree
/// hides come with a bias so low that their weight is exactly 0.

namespace kvcache::inline v0_1 {

/// Attention of one query row over the rows that `token` may see; its own row included.
/// Writes zeros and returns -infinity for padding.
/// **Shape** q, out `(head_dim)`; `out` may not be `q`. **Returns** the natural log of the sum of exponentials.
/// **Units** `scale` multiplies the logits. **Cost** two passes over K, one over V.
template <Team T, class Layout>
KVCACHE_HOST_DEVICE float reference_attention(T const& team,
                                              BatchView<Layout> const& view,
                                              std::int32_t layer,
                                              std::int32_t kv_head,
                                              Index token,
                                              float scale,
                                              float const* q,
                                              float* out)
{
  using Tile = TileView<Layout>;
  std::int32_t const dim = view.map.dim.get();
  auto const logit = [&](Tile const& tile, Index r) {
    float dot = 0.0F;
    for (std::int32_t d = 0; d < dim; ++d) {
      dot += q[d] * tile.key(r, d);
    }
    return dot * scale + tile.bias(r);
  };

  constexpr float empty = -__builtin_huge_valf();
  float most = empty;
  for (Tile const tile : view.tiles(layer, kv_head, token)) {
    for (Index r = 0; r < tile.rows(); ++r) {
      float const x = logit(tile, r);
      most = x > most ? x : most;
    }
  }
  for (std::int32_t d = team.rank(); d < dim; d += team.size()) {
    out[d] = 0.0F;
  }
  float sum = 0.0F;
  for (Tile const tile : view.tiles(layer, kv_head, token)) {
    for (Index r = 0; r < tile.rows(); ++r) {
      float const p = ::expf(logit(tile, r) - most);
      sum += p;
      for (std::int32_t d = team.rank(); d < dim; d += team.size()) {
        out[d] += p * tile.value(r, d);
      }
    }
  }
  if (sum == 0.0F) {
    return empty;
  }
  for (std::int32_t d = team.rank(); d < dim; d += team.size()) {
    out[d] /= sum;
  }
  return most + ::logf(sum);
}

}  // namespace kvcache::inline v0_1
