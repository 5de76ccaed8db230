// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/fragment.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>
#include <kvcache/view/tile_view.hpp>

#include <cstddef>
#include <cstdint>

/// \file Rows of a sequence, copied out of their pages into one piece of memory.
///
/// For kernels that know no pages, for exports and for checks. Whatever the layout, the copy has rows one after the
/// other. Rows are multiples of 16 bytes and begin at one, so all of it goes in loads and stores of that width.

namespace kvcache::inline v0_1 {

namespace detail {

/// Copies `bytes`, a multiple of 16, between places that begin at one. The members of `team` take turns.
template <Team T>
KVCACHE_HOST_DEVICE void copy_fragments(T const& team,
                                        void* target,
                                        void const* source,
                                        std::size_t bytes)
{
  auto* const to = static_cast<Fragment*>(target);
  auto const* const from = static_cast<Fragment const*>(source);
  auto const step = static_cast<std::size_t>(team.size());
  for (auto i = static_cast<std::size_t>(team.rank()); i < bytes / sizeof(Fragment); i += step) {
    to[i] = from[i];
  }
}

}  // namespace detail

/// Copies rows `first .. first + rows - 1` of table row `row` for (layer, KV head).
/// **Shape** k, v `(rows, head_dim)`, at multiples of 16 bytes. **Pre** the rows were written. Entries that are no page of
/// the pool give zeros. **Cost** reads and writes each byte once.
template <Team T, class Layout>
KVCACHE_HOST_DEVICE void gather(T const& team,
                                BatchView<Layout> const& view,
                                std::int32_t layer,
                                std::int32_t head,
                                std::uint32_t row,
                                Index first,
                                Index rows,
                                typename Layout::element* k,
                                typename Layout::element* v)
{
  auto const dim = static_cast<std::size_t>(view.map.dim.get());
  std::size_t const row_bytes = dim * sizeof(typename Layout::element);
  Index const page_tokens = view.map.tokens.get();
  Index const end = first + rows;
  for (Index at = first; at < end;) {
    Index const p = at / page_tokens;
    auto const raw = view.tile(layer, head, row, p, end).raw();
    Index const from = at - p * page_tokens;
    auto const begin = static_cast<std::size_t>(from) * raw.row_elements;
    auto const n = static_cast<std::size_t>(raw.rows - from);
    if (raw.row_elements == dim) {
      detail::copy_fragments(team, k, raw.k + begin, n * row_bytes);
      detail::copy_fragments(team, v, raw.v + begin, n * row_bytes);
    } else {
      for (std::size_t r = 0; r < n; ++r) {
        detail::copy_fragments(team, k + r * dim, raw.k + begin + r * raw.row_elements, row_bytes);
        detail::copy_fragments(team, v + r * dim, raw.v + begin + r * raw.row_elements, row_bytes);
      }
    }
    k += n * dim;
    v += n * dim;
    at += static_cast<Index>(n);
  }
}

}  // namespace kvcache::inline v0_1
