// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/interop/block_table.hpp>
#include <kvcache/interop/check_source.hpp>
#include <kvcache/interop/layer_tensor.hpp>
#include <kvcache/interop/table_source.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file Planes of K and of V by number, which TensorRT-LLM's kernels take: an offset table `[B, beam, 2, M]`, int32.
///
///   plane    [kv_heads][page_tokens][head_dim], a "block" there         byte = pool + offset * plane_bytes
///   page 7   K is plane 7 * page_planes, V is the next one              with 2 layers, pages first: 28 and 29
///
/// One table serves all layers; each has its own `pool` address, which is `LayerTensor::k`. The top bit of an offset names
/// a second pool there, and ours is never set. Requests with beams have a line a beam.

namespace kvcache::inline v0_1 {

/// How pages count in planes; see the file comment.
struct PlaneNumbers {
  std::int32_t page_planes;  ///< from a page to the next
  std::int32_t plane_bytes;
};

/// Whether the pool is made of such planes, and how they count. `RowOrder::planes` is; V lies behind K in all orders.
/// **Errors** the stride, or the number of tokens, pages or bytes, that TensorRT-LLM's arithmetic cannot express.
template <class T>
[[nodiscard]] Result<PlaneNumbers> plane_numbers(LayerTensor<T> const& t)
{
  auto const wrong = [](
                       char const* field, std::int64_t value, char const* right, Limit limit = {}) {
    return Error{Why::bad_config, field, value, right, limit};
  };
  if ((t.page_tokens & (t.page_tokens - 1)) != 0) {
    return wrong("page_tokens", t.page_tokens, "must be a power of two for TensorRT-LLM");
  }
  if (t.page_tokens > 1 && t.token_stride != t.head_dim) {
    return wrong("token stride",
                 t.token_stride,
                 "must be head_dim elements, as in RowOrder::planes:",
                 t.head_dim);
  }
  if (t.kv_heads > 1 && t.head_stride != t.page_tokens * t.head_dim) {
    return wrong("head stride",
                 t.head_stride,
                 "must be page_tokens * head_dim elements, as in RowOrder::planes:",
                 t.page_tokens * t.head_dim);
  }
  std::int64_t const plane = t.kv_heads * t.page_tokens * t.head_dim;
  auto const bytes = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t most = 0x7fffffff;
  if (plane > most / bytes) {
    return wrong("bytes of a plane", plane * bytes, "must fit an int32, so at most", most);
  }
  if (t.page_stride % plane != 0) {
    return wrong("page stride",
                 t.page_stride,
                 "must be a multiple of kv_heads * page_tokens * head_dim elements, without "
                 "padding:",
                 plane);
  }
  std::int64_t const page_planes = t.page_stride / plane;
  if (std::int64_t const largest = (most - 1) / page_planes; t.pages - 1 > largest) {
    return wrong("pages", t.pages - 1, "must leave offsets of 31 bits, so at most", largest);
  }
  return PlaneNumbers{static_cast<std::int32_t>(page_planes),
                      static_cast<std::int32_t>(plane * bytes)};
}

/// Memory for the table. A batch has as many lines, each a (request, beam), as `seq_lens` has places.
struct OffsetTable {
  std::span<std::int32_t> offsets;   ///< lines * 2 * width: a line's K, then its V
  std::span<std::int32_t> seq_lens;  ///< lines
  std::size_t width = 0;             ///< "M", pages of a line
  PlaneNumbers planes{};
};

/// Writes the `i`-th line, `2 * width` places from `offsets` on and one at `seq_len`: the body of a kernel. Each member of
/// `team` writes a part; behind the last page stands the page of zeros. **Cost** O(width).
template <Team T>
KVCACHE_HOST_DEVICE void write_offset_table(T const& team,
                                            TableSource const& source,
                                            Index i,
                                            PlaneNumbers const& planes,
                                            std::int32_t* offsets,
                                            Index width,
                                            std::int32_t* seq_len)
{
  TableSource::Line const line = source.line(i);
  if (team.rank() == 0) {
    *seq_len = line.length;
  }
  for (Index p = team.rank(); p < width; p += team.size()) {
    std::int32_t const k = p < line.pages ? source.page(line, p) * planes.page_planes : 0;
    offsets[p] = k;
    offsets[width + p] = k + 1;
  }
}

/// Fills the table and the lengths; lines behind the source's last are empty.
/// **Shape** `offsets[lines][2][width]`, `seq_lens[lines]`, int32. **Pre** the view's memory can be read from here;
/// `planes` is of the source's pool. **Cost** O(lines * width). Allocates nothing.
/// **Errors** a span or a width that is too small, with the figure; nothing is written.
[[nodiscard]] inline Result<Done> fill(OffsetTable const& out, TableSource const& source)
{
  std::size_t const lines = out.seq_lens.size();
  if (Error const error = detail::check(source, "seq_lens", lines); error.why != Why::ok) {
    return error;
  }
  if (std::size_t const least = least_width(source, lines); out.width < least) {
    return detail::too_small("width", out.width, least);
  }
  if (out.width != 0 && out.offsets.size() / out.width / 2 < lines) {
    return detail::too_small("offsets", out.offsets.size(), lines * 2 * out.width);
  }
  for (std::size_t i = 0; i < lines; ++i) {
    write_offset_table(Solo{},
                       source,
                       static_cast<Index>(i),
                       out.planes,
                       out.offsets.data() + i * 2 * out.width,
                       static_cast<Index>(out.width),
                       out.seq_lens.data() + i);
  }
  return Done{};
}

}  // namespace kvcache::inline v0_1
