// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/layout/footprint.hpp>
#include <kvcache/layout/geometry.hpp>

#include <cstddef>
#include <cstdint>

/// \file A layer of the pool as other engines see one: K and V as tensors of strides, over the same bytes.
///
///   K[page][token][head][dim]     k + page * page_stride + token * token_stride + head * head_stride + dim
///   V[page][token][head][dim]     v + the same
///
/// All that the layouts differ in is in the three strides, and all that layers differ in is in the two addresses. Page ids
/// are indices: the tensor begins at the page of zeros, which is page 0. Nothing is copied, so a kernel that takes
/// strides (FlashInfer, FlashAttention, vLLM) reads and writes the pool itself; `examples/06_*.hpp` fill their structs.

namespace kvcache::inline v0_1 {

/// See the file comment. Strides in elements.
template <class T>
struct LayerTensor {
  T* k;
  T* v;
  std::int64_t pages;  ///< the page of zeros among them
  std::int64_t page_tokens;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t page_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
  std::int64_t layer_stride;  ///< from a layer to the next, for a tensor of all layers

  /// Elements from a row's K to its V.
  [[nodiscard]] std::int64_t value_stride() const noexcept { return v - k; }
};

/// The tensors of `layer` in a pool of `pages` pages whose memory begins at `arena`: `SegmentView::base` of its views, or
/// the caller's own. **Pre** `geometry` went through `Layout::complete`; the pool was made from it. **Cost** a few products.
template <class Layout>
[[nodiscard]] LayerTensor<typename Layout::element> layer_tensor(Geometry const& geometry,
                                                                 PageCount pages,
                                                                 std::byte* arena,
                                                                 std::int32_t layer) noexcept
{
  using T = typename Layout::element;
  Footprint const f = Layout::footprint(geometry);
  auto const map = Layout::map(geometry);
  auto const elements = [&f](std::uint64_t units) {
    return static_cast<std::int64_t>(units * f.unit_bytes / sizeof(T));
  };
  std::int64_t const layer_stride = elements(f.layer_stride(pages));
  T* const k = reinterpret_cast<T*>(arena) + layer_stride * layer;
  return {.k = k,
          .v = k + map.value_elements(),
          .pages = std::int64_t{pages} + 1,
          .page_tokens = geometry.page_tokens,
          .kv_heads = geometry.kv_heads,
          .head_dim = geometry.head_dim,
          .page_stride = elements(f.page_units()),
          .token_stride = map.row_elements(),
          .head_stride = elements(f.head_units),
          .layer_stride = layer_stride};
}

}  // namespace kvcache::inline v0_1
