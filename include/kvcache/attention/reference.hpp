// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/bias.hpp>
#include <kvcache/attention/left_out.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// \file Attention written for the eye: what every faster kernel must equal, and a start for one's own.
///
/// It reads rows through `tile`, `key`, `value` and `bias` only, and runs on a CPU thread, a GPU thread or
/// a warp. Each member of the team computes every logit itself and keeps its share of the output, so no
/// member waits for another: simple, and head_dim times too slow for a warp that minds. Its sums run in float from the
/// first row to the last, so their error grows with the context. It knows no two-way spans.

namespace kvcache::inline v0_1 {

/// Attention of one query row over the rows that `token` sees; its own row included.
/// Writes zeros and returns -infinity for padding, and where the bias leaves no row.
/// **Shape** q, out `(head_dim)`; `out` may not be `q`. **Returns** the natural log of the sum of exponentials.
/// **Pre** `shape` is valid. **Cost** two passes over K, one over V; tiles outside the window are not touched.
template <Team T, class Layout, ScoreBias Bias = NoBias>
KVCACHE_HOST_DEVICE float reference_attention(T const& team,
                                              BatchView<Layout> const& view,
                                              AttentionShape const& shape,
                                              std::int32_t layer,
                                              std::int32_t query_head,
                                              Index token,
                                              float const* q,
                                              float* out,
                                              Bias const& bias = {})
{
  using Tile = TileView<Layout>;
  std::int32_t const dim = view.map.dim.get();
  float const scale = shape.scale > 0.0F ? shape.scale : 1.0F / ::sqrtf(static_cast<float>(dim));
  Sight const sight = sight_of(view, shape.window, token);
  auto const each_row = [&](auto const& body) {
    for (Index p = sight.first / view.map.tokens.get(); p < view.tiles_of(sight.last); ++p) {
      Tile const tile = view.tile(layer,
                                  query_head / shape.group(),
                                  view.token_row[token],
                                  p,
                                  sight.last,
                                  view.hidden(token));
      for (Index r = 0; r < tile.rows(); ++r) {
        if (tile.first() + r >= sight.first) {
          body(tile, r);
        }
      }
    }
  };
  auto const added = [&](Tile const& tile, Index r) {
    return bias(ScoreAt{token, query_head, tile.first() + r});
  };
  // What a tree hides or a bias leaves out is not looked at: its K and V may be anything.
  auto const each_seen = [&](auto const& body) {
    each_row([&](Tile const& tile, Index r) {
      if (tile.sees(r) && !detail::leaves_out(added(tile, r))) {
        body(tile, r);
      }
    });
  };
  auto const score = [&](Tile const& tile, Index r) {
    float x = 0.0F;
    for (std::int32_t d = 0; d < dim; ++d) {
      x += q[d] * tile.key(r, d);
    }
    x *= scale;
    if (shape.soft_cap > 0.0F) {
      x = shape.soft_cap * ::tanhf(x / shape.soft_cap);
    }
    return x + added(tile, r);
  };

  float most = detail::lowest_score;
  each_seen([&](Tile const& tile, Index r) {
    float const x = score(tile, r);
    most = x > most ? x : most;
  });
  for (std::int32_t d = team.rank(); d < dim; d += team.size()) {
    out[d] = 0.0F;
  }
  float sum = 0.0F;
  each_seen([&](Tile const& tile, Index r) {
    float const p = ::expf(score(tile, r) - most);
    sum += p;
    for (std::int32_t d = team.rank(); d < dim; d += team.size()) {
      out[d] += p * tile.value(r, d);
    }
  });
  if (sum == 0.0F) {
    return detail::or_no_score(true, 0.0F);
  }
  for (std::int32_t d = team.rank(); d < dim; d += team.size()) {
    out[d] /= sum;
  }
  return most + ::logf(sum);
}

}  // namespace kvcache::inline v0_1
