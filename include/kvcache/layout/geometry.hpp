// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/layout/arrangement.hpp>

#include <cstdint>

/// \file The numbers of a model that decide where a row lies.

namespace kvcache::inline v0_1 {

/// The model as the cache sees it, and how its pages are arranged. Query heads are not here: MHA, GQA and MQA
/// differ only in how many query heads an attention kernel maps to one KV head.
struct Geometry {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;     ///< may stay 0 where the layout fixes it
  std::int32_t page_tokens = 0;  ///< may stay 0 where the layout fixes it
  Arrangement arrangement = Arrangement::page_first;

  static constexpr std::int32_t max_layers = 4096;
  static constexpr std::int32_t max_kv_heads = 4096;
  static constexpr std::int32_t max_head_dim = 256;
  static constexpr std::int32_t max_page_tokens = 256;

  /// The first field that cannot work, or `Why::ok`.
  [[nodiscard]] constexpr Error validate() const noexcept
  {
    if (layers < 1 || layers > max_layers) {
      return {Why::bad_config, "layers", layers, "must be 1 to", max_layers};
    }
    if (kv_heads < 1 || kv_heads > max_kv_heads) {
      return {Why::bad_config, "kv_heads", kv_heads, "must be 1 to", max_kv_heads};
    }
    if (head_dim < 8 || head_dim > max_head_dim || head_dim % 8 != 0) {
      return {
        Why::bad_config, "head_dim", head_dim, "must be a multiple of 8, from 8 to", max_head_dim};
    }
    if (page_tokens < 1 || page_tokens > max_page_tokens) {
      return {Why::bad_config, "page_tokens", page_tokens, "must be 1 to", max_page_tokens};
    }
    if (arrangement != Arrangement::page_first && arrangement != Arrangement::layer_first) {
      return {Why::bad_config,
              "arrangement",
              static_cast<std::int64_t>(arrangement),
              "must be page_first or layer_first"};
    }
    return {};
  }
};

}  // namespace kvcache::inline v0_1
