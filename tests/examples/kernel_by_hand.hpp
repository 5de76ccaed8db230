// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Kernels that load by themselves, as docs/plug-into-your-kernel.md shows them.

#include <kvcache/view.hpp>

#include <math.h>

#include <cstddef>
#include <cstdint>

/// The key of row `index` of the sequence that `token` belongs to, from plain numbers alone.
template <class Layout>
KVCACHE_HOST_DEVICE typename Layout::element const* key_by_hand(
  kvcache::BatchView<Layout> const& kv,
  std::uint32_t layer,
  std::uint32_t kv_head,
  kvcache::Index token,
  kvcache::Index index)
{
  kvcache::SegmentView const& s = kv.segment;
  auto const page_tokens = static_cast<std::uint32_t>(kv.map.tokens.get());
  auto const place = static_cast<std::uint32_t>(index);
  std::size_t const row =
    std::size_t{kv.token_row[token]} * s.seq_rows + std::size_t{kv_head} * s.head_rows;
  std::size_t const at =
    std::size_t{layer} * s.layer_stride + row * s.row_stride + place / page_tokens;
  auto page = static_cast<std::uint32_t>(s.table[at]);
  page = page < s.num_pages ? page : 0;  // never leave the pool
  std::uint32_t const unit = page * s.page_scale + s.layer_offset[layer] + kv_head * s.head_scale;
  std::byte const* const tile = s.base + std::size_t{unit} * s.unit_bytes;
  return reinterpret_cast<typename Layout::element const*>(tile) +
         std::size_t{place % page_tokens} * kv.map.row_elements();
}

/// The largest logit of one query, page by page, with the kernel's own loads. **Pre** pages of 64 tokens or fewer.
template <class Layout>
KVCACHE_HOST_DEVICE float largest_logit(kvcache::BatchView<Layout> const& kv,
                                        std::int32_t layer,
                                        std::int32_t kv_head,
                                        kvcache::Index token,
                                        float const* q)
{
  using Element = typename Layout::element;
  float largest = -INFINITY;
  for (auto const tile : kv.tiles(layer, kv_head, token)) {
    auto const raw = tile.raw();  // k, v, row_elements, rows
    std::uint64_t const hidden = tile.hidden();
    for (kvcache::Index r = 0; r < raw.rows; ++r) {
      if ((hidden >> r & 1) != 0) {
        continue;  // of another branch of the tree
      }
      Element const* const key = raw.k + static_cast<std::size_t>(r) * raw.row_elements;
      float dot = 0.0F;
      for (std::int32_t d = 0; d < kv.map.dim.get(); ++d) {
        dot += q[d] * kvcache::ElementTraits<Element>::to_float(key[d]);
      }
      largest = dot > largest ? dot : largest;
    }
  }
  return largest;
}

/// The kernel that verifies drafts: of chunk `c` the first `accepted` tokens stay.
template <class Layout>
KVCACHE_HOST_DEVICE void keep_accepted(kvcache::BatchView<Layout> const& kv,
                                       kvcache::Index c,
                                       kvcache::Index accepted)
{
  kv.set_length(c, kv.chunk(c).first_index + accepted);
}
