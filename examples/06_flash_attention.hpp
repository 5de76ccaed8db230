// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A layer of our pool as the paged part of FlashAttention-3's `Flash_fwd_params` (hopper/flash.h): K and V
/// `[num_pages, page_size, heads, dim]` by strides, a page table and lengths.

#include <kvcache/core/error.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/interop/block_table.hpp>
#include <kvcache/interop/layer_tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace flash_attention {

/// The fields that speak of the cache. `batch` strides step from page to page where there is a page table.
struct FlashFwdParams {
  void* k_ptr;
  void* v_ptr;
  std::int64_t k_batch_stride;
  std::int64_t v_batch_stride;
  std::int64_t k_row_stride;
  std::int64_t v_row_stride;
  std::int64_t k_head_stride;
  std::int64_t v_head_stride;
  int h_k;
  int d;
  int b;
  int* seqused_k;
  int* page_table;
  std::int64_t page_table_batch_stride;
  int page_size;
  int num_pages;
};

/// Row `row` of line `line`, counted from `ptr` in elements: what the kernel computes from a page table.
[[nodiscard]] inline std::int64_t offset_of(FlashFwdParams const& p,
                                            std::int64_t line,
                                            std::int64_t head,
                                            std::int64_t row)
{
  std::int64_t const page = p.page_table[line * p.page_table_batch_stride + row / p.page_size];
  return page * p.k_batch_stride + row % p.page_size * p.k_row_stride + head * p.k_head_stride;
}

/// `table` went through `kvcache::fill`. Where sequences are table rows in order, the view's own table serves as it is:
/// `segment.table`, with `row_stride` a line.
/// **Errors** elements of a size that its kernels do not have.
template <class T>
[[nodiscard]] kvcache::Result<FlashFwdParams> fwd_params(kvcache::LayerTensor<T> const& t,
                                                         kvcache::BlockTable const& table)
{
  if (sizeof(T) > 2) {
    return kvcache::Error{kvcache::Why::bad_config,
                          "element bytes",
                          static_cast<std::int64_t>(sizeof(T)),
                          "FlashAttention-3 reads f16, bf16 or fp8, so at most",
                          2};
  }
  return FlashFwdParams{.k_ptr = t.k,
                        .v_ptr = t.v,
                        .k_batch_stride = t.page_stride,
                        .v_batch_stride = t.page_stride,
                        .k_row_stride = t.token_stride,
                        .v_row_stride = t.token_stride,
                        .k_head_stride = t.head_stride,
                        .v_head_stride = t.head_stride,
                        .h_k = static_cast<int>(t.kv_heads),
                        .d = static_cast<int>(t.head_dim),
                        .b = static_cast<int>(table.seq_lens.size()),
                        .seqused_k = table.seq_lens.data(),
                        .page_table = table.pages.data(),
                        .page_table_batch_stride = static_cast<std::int64_t>(table.width),
                        .page_size = static_cast<int>(t.page_tokens),
                        .num_pages = static_cast<int>(t.pages)};
}

}  // namespace flash_attention
