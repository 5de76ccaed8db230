// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/device/stream_copy.hpp>
#include <kvcache/interop/check_source.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

/// \file A layer of one sequence without pages: `[heads][rows][head_dim]`, as Hugging Face's caches and kernels that know
/// no pages have it.
///
///   pages    7: h0 K V | h1 K V     3: h0 K V | h1 K V         k   [ h0: 7 3 .. ][ h1: 7 3 .. ]
///                                                              v   [ h0: 7 3 .. ][ h1: 7 3 .. ]
///
/// Page after page, each read from one end to the other, is the order that memory likes: head after head would read
/// small pieces from everywhere, once a head. `view/gather.hpp` has the same for a kernel, a head at a time.

namespace kvcache::inline v0_1 {

/// Which rows, and memory for them. **Shape** k, v `(heads, rows, head_dim)`.
template <class T>
struct DenseRows {
  std::span<T> k;
  std::span<T> v;
  Index first = 0;  ///< row of the sequence
  Index rows = 0;
};

namespace detail {

/// Copies the rows of a tile to where rows follow each other.
template <class T>
void copy_rows(T* target,
               T const* source,
               std::size_t rows,
               std::size_t stride,
               std::size_t dim,
               T const* next,
               bool streams) noexcept
{
  bool const contiguous = stride == dim;
  std::size_t const pieces = contiguous ? 1 : rows;
  std::size_t const bytes = (contiguous ? rows : 1) * dim * sizeof(T);
  for (std::size_t i = 0; i < pieces; ++i) {
    T const* const from = source + i * stride;
    auto* const to = reinterpret_cast<std::byte*>(target + i * dim);
    if (streams) {
      stream_copy(to,
                  reinterpret_cast<std::byte const*>(from),
                  bytes,
                  reinterpret_cast<std::byte const*>(i + 1 < pieces ? from + stride : next));
    } else {
      std::memcpy(to, from, bytes);
    }
  }
}

}  // namespace detail

/// Copies rows of table row `row` out of their pages, for one layer and its first `heads` KV heads.
/// **Pre** the rows were written, and the view's memory can be read from here. Entries that are no page of the pool give
/// zeros. **Cost** reads and writes each byte once; large copies go past the caches. Allocates nothing.
/// **Errors** a span that is too small, or rows that no table row has, with the figure; nothing is written.
template <class Layout>
[[nodiscard]] Result<Done> fill(DenseRows<typename Layout::element> const& out,
                                BatchView<Layout> const& view,
                                std::int32_t layer,
                                std::int32_t heads,
                                std::uint32_t row)
{
  Index const page_tokens = view.map.tokens.get();
  auto const dim = static_cast<std::size_t>(view.map.dim.get());
  auto const rows = static_cast<std::size_t>(out.rows < 0 ? 0 : out.rows);
  auto const end = std::int64_t{out.first} + out.rows;
  std::int64_t const most = std::int64_t{view.segment.row_stride} * page_tokens;
  if (out.first < 0 || out.rows < 0 || end > most) {
    return Error{Why::bad_config,
                 out.first < 0 ? "first" : "rows",
                 out.first < 0 ? out.first : out.rows,
                 "must lie in a table row, which has rows 0 to",
                 most};
  }
  std::size_t const needed = static_cast<std::size_t>(heads) * rows * dim;
  if (out.k.size() < needed || out.v.size() < needed) {
    bool const is_k = out.k.size() < needed;
    return detail::too_small(is_k ? "k" : "v", is_k ? out.k.size() : out.v.size(), needed);
  }
  bool const streams =
    2 * needed * sizeof(typename Layout::element) >= detail::least_streamed_bytes;
  for (Index at = out.first; at < static_cast<Index>(end);) {
    Index const p = at / page_tokens;
    auto const skipped = static_cast<std::size_t>(at - p * page_tokens);
    std::size_t const to = static_cast<std::size_t>(at - out.first) * dim;
    std::size_t n = 0;
    for (std::int32_t head = 0; head < heads; ++head) {
      auto const raw = view.tile(layer, head, row, p, static_cast<Index>(end)).raw();
      std::size_t const from = skipped * raw.row_elements;
      std::size_t const before = static_cast<std::size_t>(head) * rows * dim + to;
      n = static_cast<std::size_t>(raw.rows) - skipped;
      auto const* next = raw.k + from;
      if (head + 1 < heads) {
        next = view.tile(layer, head + 1, row, p, static_cast<Index>(end)).raw().k + from;
      } else if (at + static_cast<Index>(n) < static_cast<Index>(end)) {
        next = view.tile(layer, 0, row, p + 1, static_cast<Index>(end)).raw().k;
      }
      detail::copy_rows(
        out.k.data() + before, raw.k + from, n, raw.row_elements, dim, raw.v + from, streams);
      detail::copy_rows(
        out.v.data() + before, raw.v + from, n, raw.row_elements, dim, next, streams);
    }
    at += static_cast<Index>(n);
  }
  if (streams) {
    detail::stream_fence();
  }
  return Done{};
}

}  // namespace kvcache::inline v0_1
