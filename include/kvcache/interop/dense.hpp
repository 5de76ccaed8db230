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
/// Page after page, eight tiles side by side where the copy is large, is the order that memory likes: head after head
/// would read small pieces from everywhere, once a head. `view/gather.hpp` has the same for a kernel, a head at a time.

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

/// Copies the rows of tiles to where rows follow each other. Large copies go past the caches, and as many tiles as
/// there are strips side by side.
template <class T>
class TileCopies {
 public:
  /// Rows of `dim` elements that lie `stride` apart.
  TileCopies(std::size_t stride, std::size_t dim, bool streams)
      : stride_(stride), dim_(dim), streams_(streams)
  {
  }

  /// `next`: the tile of `strips_ahead` heads later, which will take this one's place.
  void add(T* target, T const* source, std::size_t rows, T const* next) noexcept
  {
    bool const contiguous = stride_ == dim_;
    std::size_t const bytes = (contiguous ? rows : 1) * dim_ * sizeof(T);
    if (contiguous && streams_ && makes_strip(target, bytes)) {
      add_strip({bytes_of(target), bytes_of(source), bytes_of(next)}, bytes);
      return;
    }
    std::size_t const pieces = contiguous ? 1 : rows;
    for (std::size_t i = 0; i < pieces; ++i) {
      T const* const from = source + i * stride_;
      if (streams_) {
        stream_copy(bytes_of(target + i * dim_), bytes_of(from), bytes, bytes_of(from + stride_));
      } else {
        std::memcpy(target + i * dim_, from, bytes);
      }
    }
  }
  /// **Post** all that was added is there.
  void finish() noexcept
  {
    flush();
    if (streams_) {
      stream_fence();
    }
  }

  static constexpr std::int32_t strips_ahead = strips / 2;

 private:
  static std::byte* bytes_of(T* p) { return reinterpret_cast<std::byte*>(p); }
  static std::byte const* bytes_of(T const* p) { return reinterpret_cast<std::byte const*>(p); }

  void add_strip(Strip const& strip, std::size_t bytes) noexcept
  {
    if (bytes != bytes_) {
      flush();
      bytes_ = bytes;
    }
    strips_[count_++] = strip;
    if (count_ == strips) {
      stream_strips(strips_, bytes);
      count_ = 0;
    }
  }
  /// Copies what waits for others to go beside.
  void flush() noexcept
  {
    for (std::size_t i = 0; i < count_; ++i) {
      stream_copy(strips_[i].target, strips_[i].source, bytes_, strips_[i].source);
    }
    count_ = 0;
  }

  std::size_t stride_;
  std::size_t dim_;
  bool streams_;
  Strip strips_[strips];  // the first `count_` wait, `bytes_` long
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace detail

/// Copies rows of table row `row` out of their pages, for one layer and its first `heads` KV heads.
/// **Pre** the rows were written, and the view's memory can be read from here. Entries that are no page of the pool give
/// zeros. **Cost** reads and writes each byte once; large copies go past the caches. Allocates nothing.
/// **Errors** no head, a span that is too small, or rows that no table row has, with the figure; nothing is written.
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
  if (heads < 1) {
    return Error{Why::bad_config, "heads", heads, "must be at least", 1};
  }
  std::size_t const needed = static_cast<std::size_t>(heads) * rows * dim;
  if (out.k.size() < needed || out.v.size() < needed) {
    bool const is_k = out.k.size() < needed;
    return detail::too_small(is_k ? "k" : "v", is_k ? out.k.size() : out.v.size(), needed);
  }
  bool const streams =
    2 * needed * sizeof(typename Layout::element) >= detail::least_streamed_bytes;
  using Copies = detail::TileCopies<typename Layout::element>;
  Copies copies(view.map.row_elements(), dim, streams);
  for (Index at = out.first; at < static_cast<Index>(end);) {
    Index const p = at / page_tokens;
    auto const skipped = static_cast<std::size_t>(at - p * page_tokens);
    std::size_t const to = static_cast<std::size_t>(at - out.first) * dim;
    std::size_t const from = skipped * view.map.row_elements();
    std::size_t n = 0;
    for (std::int32_t head = 0; head < heads; ++head) {
      auto const raw = view.tile(layer, head, row, p, static_cast<Index>(end)).raw();
      auto next = raw;
      std::int32_t const later = head + Copies::strips_ahead;
      if (Index const q = p + later / heads; streams && std::int64_t{q} * page_tokens < end) {
        next = view.tile(layer, later % heads, row, q, static_cast<Index>(end)).raw();
      }
      std::size_t const before = static_cast<std::size_t>(head) * rows * dim + to;
      n = static_cast<std::size_t>(raw.rows) - skipped;
      copies.add(out.k.data() + before, raw.k + from, n, next.k);
      copies.add(out.v.data() + before, raw.v + from, n, next.v);
    }
    at += static_cast<Index>(n);
  }
  copies.finish();
  return Done{};
}

}  // namespace kvcache::inline v0_1
