// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Other engines' address arithmetic, written from their own descriptions and knowing nothing of our views.

#include <cstddef>
#include <cstdint>

namespace kvcache_test {

/// One layer of a pool as a foreign kernel knows it: two base pointers and strides in elements.
template <class T>
struct ForeignLayer {
  T const* k;
  T const* v;
  std::size_t page_stride;
  std::size_t head_stride;
  std::size_t token_stride;
  std::int32_t page_tokens;

  [[nodiscard]] std::size_t element(std::size_t page, std::int32_t head, std::size_t offset) const
  {
    return page * page_stride + static_cast<std::size_t>(head) * head_stride +
           offset * token_stride;
  }
};

/// FlashInfer's `paged_kv_t`: pages as compressed rows.
template <class T>
struct FlashInferPages {
  ForeignLayer<T> layer;
  std::int32_t const* indptr;
  std::int32_t const* indices;
  std::int32_t const* last_page_len;

  /// As its kernels count where they append: in 32 bits, without asking whether there is a page.
  [[nodiscard]] std::uint32_t length(std::size_t line) const
  {
    auto const pages = static_cast<std::uint32_t>(indptr[line + 1] - indptr[line]);
    return (pages - 1) * static_cast<std::uint32_t>(layer.page_tokens) +
           static_cast<std::uint32_t>(last_page_len[line]);
  }
  [[nodiscard]] std::size_t at(std::size_t line, std::int32_t head, std::uint32_t row) const
  {
    auto const tokens = static_cast<std::uint32_t>(layer.page_tokens);
    auto const page = indices[static_cast<std::uint32_t>(indptr[line]) + row / tokens];
    return layer.element(static_cast<std::size_t>(page), head, row % tokens);
  }
};

/// The block table of vLLM and of FlashAttention's paged kernels.
template <class T>
struct BlockTablePages {
  ForeignLayer<T> layer;
  std::int32_t const* block_table;
  std::size_t width;

  [[nodiscard]] std::size_t at(std::size_t line, std::int32_t head, std::size_t row) const
  {
    auto const tokens = static_cast<std::size_t>(layer.page_tokens);
    auto const page = block_table[line * width + row / tokens];
    return layer.element(static_cast<std::size_t>(page), head, row % tokens);
  }
};

/// Where vLLM's `reshape_and_cache_flash` stores.
template <class T>
[[nodiscard]] std::size_t slot_at(ForeignLayer<T> const& layer,
                                  std::int64_t slot,
                                  std::int32_t head)
{
  return layer.element(static_cast<std::size_t>(slot / layer.page_tokens),
                       head,
                       static_cast<std::size_t>(slot % layer.page_tokens));
}

}  // namespace kvcache_test
