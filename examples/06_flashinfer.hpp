// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A layer of our pool as FlashInfer's `paged_kv_t` (include/flashinfer/page.cuh), by its constructor with own strides.

#include <kvcache/core/error.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/interop/layer_tensor.hpp>
#include <kvcache/interop/page_lists.hpp>

#include <cstddef>
#include <cstdint>

namespace flashinfer {

/// The fields of `paged_kv_t` and where its kernels look.
template <class DType, class IdType>
struct PagedKv {
  std::uint32_t page_size;
  std::uint32_t num_heads;
  std::uint32_t head_dim;
  std::uint32_t batch_size;
  std::uint32_t stride_page;
  std::uint32_t stride_n;
  std::uint32_t stride_h;
  std::uint32_t v_stride_page;
  std::uint32_t v_stride_n;
  std::uint32_t v_stride_h;
  DType* k_data;
  DType* v_data;
  IdType* indices;
  IdType* indptr;
  IdType* last_page_len;
  IdType* rope_pos_offset;

  [[nodiscard]] std::size_t offset(std::size_t page, std::size_t head, std::size_t entry) const
  {
    return page * stride_page + head * stride_h + entry * stride_n;
  }
  [[nodiscard]] DType* k_at(std::size_t page_iter, std::size_t head, std::size_t entry) const
  {
    return k_data + offset(static_cast<std::size_t>(indices[page_iter]), head, entry);
  }
  [[nodiscard]] DType* v_at(std::size_t page_iter, std::size_t head, std::size_t entry) const
  {
    return v_data + static_cast<std::size_t>(indices[page_iter]) * v_stride_page +
           head * v_stride_h + entry * v_stride_n;
  }
};

/// Its `QKVLayout` is in the strides, so NHD, HND and our own order are all taken. `lists` went through `kvcache::fill`.
/// **Errors** a stride that its 32 bits cannot hold.
template <class T>
[[nodiscard]] kvcache::Result<PagedKv<T, std::int32_t>> paged_kv(kvcache::LayerTensor<T> const& t,
                                                                 kvcache::PageLists const& lists)
{
  constexpr std::int64_t most = 0xffffffff;
  for (std::int64_t const stride : {t.page_stride, t.head_stride, t.token_stride}) {
    if (stride > most) {
      return kvcache::Error{
        kvcache::Why::bad_config,
        "stride in elements",
        stride,
        "FlashInfer keeps strides in 32 bits (layers first has smaller ones), up to",
        most};
    }
  }
  auto const narrow = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  return PagedKv<T, std::int32_t>{
    .page_size = narrow(t.page_tokens),
    .num_heads = narrow(t.kv_heads),
    .head_dim = narrow(t.head_dim),
    .batch_size = static_cast<std::uint32_t>(lists.last_page_len.size()),
    .stride_page = narrow(t.page_stride),
    .stride_n = narrow(t.token_stride),
    .stride_h = narrow(t.head_stride),
    .v_stride_page = narrow(t.page_stride),
    .v_stride_n = narrow(t.token_stride),
    .v_stride_h = narrow(t.head_stride),
    .k_data = t.k,
    .v_data = t.v,
    .indices = lists.indices.data(),
    .indptr = lists.indptr.data(),
    .last_page_len = lists.last_page_len.data(),
    .rope_pos_offset = nullptr};
}

}  // namespace flashinfer
