// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Our pool as the tensors that vLLM keeps (v1/attention/backends, `get_kv_cache_shape`), by shape and strides as
/// `torch::from_blob` takes them: a tensor a layer in either of its two shapes, or one of all layers for its connectors.

#include <kvcache/core/error.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/interop/layer_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace vllm {

/// What `torch::from_blob` asks for. Strides in elements.
template <class T, std::size_t Dims>
struct Tensor {
  T* data;
  std::array<std::int64_t, Dims> sizes;
  std::array<std::int64_t, Dims> strides;

  [[nodiscard]] T* at(std::array<std::int64_t, Dims> const& index) const
  {
    T* p = data;
    for (std::size_t i = 0; i < Dims; ++i) {
      p += index[i] * strides[i];
    }
    return p;
  }
};

/// `(2, pages, page_tokens, heads, dim)`: FlashAttention, ROCm AITER. `tensor[0]` and `tensor[1]` are K and V.
template <class T>
[[nodiscard]] Tensor<T, 5> kv_then_pages(kvcache::LayerTensor<T> const& t)
{
  return {t.k,
          {2, t.pages, t.page_tokens, t.kv_heads, t.head_dim},
          {t.value_stride(), t.page_stride, t.token_stride, t.head_stride, 1}};
}

/// `(pages, 2, page_tokens, heads, dim)`: FlashInfer, Triton.
template <class T>
[[nodiscard]] Tensor<T, 5> pages_then_kv(kvcache::LayerTensor<T> const& t)
{
  return {t.k,
          {t.pages, 2, t.page_tokens, t.kv_heads, t.head_dim},
          {t.page_stride, t.value_stride(), t.token_stride, t.head_stride, 1}};
}

/// `(pages, layers, 2, page_tokens, heads, dim)`: the one tensor that a connector registers to move whole pages.
/// `first` is layer 0's. **Errors** layers first: a page is not one extent then.
template <class T>
[[nodiscard]] kvcache::Result<Tensor<T, 6>> cross_layer(kvcache::LayerTensor<T> const& first,
                                                        std::int64_t layers)
{
  if (layers > 1 && first.page_stride < first.layer_stride * layers) {
    return kvcache::Error{kvcache::Why::bad_config,
                          "layer stride",
                          first.layer_stride,
                          "must leave a page of all layers in one extent: Arrangement::page_first"};
  }
  return Tensor<T, 6>{first.k,
                      {first.pages, layers, 2, first.page_tokens, first.kv_heads, first.head_dim},
                      {first.page_stride,
                       first.layer_stride,
                       first.value_stride(),
                       first.token_stride,
                       first.head_stride,
                       1}};
}

/// Whether its FlashAttention and Triton kernels take such pages.
template <class T>
[[nodiscard]] kvcache::Error check_pages(kvcache::LayerTensor<T> const& t)
{
  if (t.page_tokens % 16 != 0) {
    return {kvcache::Why::bad_config,
            "page_tokens",
            t.page_tokens,
            "vLLM's FlashAttention and Triton backends need a multiple of",
            16};
  }
  return {};
}

/// Whether a kernel may be given `pages_then_kv` that looks at the shape and at no stride of a page: what lies in a page
/// must follow each other as in the shape, and so must pages.
template <class T>
[[nodiscard]] kvcache::Error check_contiguous(kvcache::LayerTensor<T> const& t)
{
  auto const wrong =
    [](char const* field, std::int64_t value, char const* right, std::int64_t want) {
      return kvcache::Error{kvcache::Why::bad_config, field, value, right, want};
    };
  std::int64_t const row = t.kv_heads * t.head_dim;
  if (t.kv_heads > 1 && t.head_stride != t.head_dim) {
    return wrong(
      "head stride", t.head_stride, "must be head_dim, as in RowOrder::nhd:", t.head_dim);
  }
  if (t.page_tokens > 1 && t.token_stride != row) {
    return wrong(
      "token stride", t.token_stride, "must be kv_heads * head_dim, as in RowOrder::nhd:", row);
  }
  if (t.page_stride != 2 * t.page_tokens * row) {
    return wrong(
      "page stride",
      t.page_stride,
      "must be 2 * page_tokens * kv_heads * head_dim, as with Arrangement::layer_first and no "
      "padding to 128 bytes:",
      2 * t.page_tokens * row);
  }
  return {};
}

/// Where `reshape_and_cache_flash` stores `slot` of `slot_mapping`, counted from K or V; negative slots are skipped.
template <class T>
[[nodiscard]] std::int64_t slot_offset(kvcache::LayerTensor<T> const& t,
                                       std::int64_t slot,
                                       std::int64_t head)
{
  return slot / t.page_tokens * t.page_stride + slot % t.page_tokens * t.token_stride +
         head * t.head_stride;
}

}  // namespace vllm
