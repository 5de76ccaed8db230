// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file An attention kernel as an engine would write it: one query head of one token, in one pass over the rows.
/// The same text runs on a CPU (01_plug_into_your_kernel.cpp) and in a CUDA kernel (01_plug_into_your_kernel.cu).
///
/// Softmax is taken online: `largest` is the largest logit so far, `sum` and `out` are relative to it and
/// shrink when a larger one comes. Trees of drafts work as they are: `bias` takes the other branches out.

#include <kvcache/view.hpp>

#include <math.h>

#include <cstdint>

/// **Shape** q, out `(head_dim)`.
template <class Layout>
KVCACHE_HOST_DEVICE void attend(kvcache::BatchView<Layout> const& kv,
                                std::int32_t layer,
                                std::int32_t kv_head,
                                kvcache::Index token,
                                float const* q,
                                float* out)
{
  std::int32_t const dim = kv.map.dim.get();
  float const scale = 1.0F / sqrtf(static_cast<float>(dim));
  float largest = -INFINITY;
  float sum = 0.0F;
  for (std::int32_t d = 0; d < dim; ++d) {
    out[d] = 0.0F;
  }
  for (auto const tile : kv.tiles(layer, kv_head, token)) {  // the token's own row included: causal
    for (kvcache::Index r = 0; r < tile.rows(); ++r) {
      float dot = 0.0F;
      for (std::int32_t d = 0; d < dim; ++d) {
        dot += q[d] * tile.key(r, d);
      }
      float const logit = dot * scale + tile.bias(r);
      float const before = largest;
      largest = logit > largest ? logit : largest;
      float const shrink = expf(before - largest);
      float const weight = expf(logit - largest);
      sum = sum * shrink + weight;
      for (std::int32_t d = 0; d < dim; ++d) {
        out[d] = out[d] * shrink + weight * tile.value(r, d);
      }
    }
  }
  for (std::int32_t d = 0; d < dim; ++d) {
    out[d] = sum > 0.0F ? out[d] / sum : 0.0F;  // padding has no rows
  }
}
