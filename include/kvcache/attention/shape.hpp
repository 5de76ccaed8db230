// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/instruction_set.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>

/// \file What an attention call is told: the heads, how to divide the work, where the numbers lie.

namespace kvcache::inline v0_1 {

/// The query side of a model. Query head `q` reads KV head `q / group()`.
struct AttentionShape {
  std::int32_t query_heads = 0;
  std::int32_t kv_heads = 0;
  float scale = 0.0F;  ///< of the logits; 0 means 1 / sqrt(head_dim)

  static constexpr std::int32_t max_query_heads = 65536;

  /// Query heads to a KV head: 1 is MHA, all of them is MQA.
  KVCACHE_HOST_DEVICE constexpr std::int32_t group() const { return query_heads / kv_heads; }

  /// The first field that cannot work, or `Why::ok`.
  [[nodiscard]] constexpr Error validate() const noexcept
  {
    if (kv_heads < 1) {
      return {Why::bad_config, "kv_heads", kv_heads, "must be at least", 1};
    }
    if (query_heads < 1 || query_heads > max_query_heads || query_heads % kv_heads != 0) {
      return {
        Why::bad_config, "query_heads", query_heads, "must be a multiple of kv_heads =", kv_heads};
    }
    if (!(scale >= 0.0F && scale <= 3.0e38F)) {
      return {
        Why::bad_config, "scale", 0, "must be finite and not negative; 0 means 1 / sqrt(head_dim)"};
    }
    return {};
  }
};

/// How the work of a step is divided.
struct AttentionOptions {
  std::int32_t workers = 1;  ///< threads that will run the items
  /// Rows of KV to a part. 0 cuts only where that keeps the workers busy; a multiple of 16 cuts there always,
  /// so that a row of output has the same bits whatever the batch, the chunks and the workers.
  Index split_rows = 0;
  InstructionSet instructions = InstructionSet::best;

  static constexpr std::int32_t max_workers = 4096;
  static constexpr Index rows_per_block = 16;  ///< rows that the softmax takes at once

  /// The first field that cannot work, or `Why::ok`.
  [[nodiscard]] constexpr Error validate() const noexcept
  {
    if (workers < 1 || workers > max_workers) {
      return {Why::bad_config, "workers", workers, "must be 1 to", max_workers};
    }
    if (split_rows < 0 || split_rows % rows_per_block != 0) {
      return {
        Why::bad_config, "split_rows", split_rows, "must be 0 or a multiple of", rows_per_block};
    }
    return {};
  }
};

/// Where the numbers of one layer lie. All but `scratch` may be different memory for each layer.
struct AttentionTensors {
  float const* q = nullptr;  ///< **Shape** `(tokens, query_heads, head_dim)`
  float* out =
    nullptr;  ///< **Shape** `(tokens, query_heads, head_dim)`; may be `q` itself where the plan has no merges
  float* lse =
    nullptr;  ///< **Shape** `(tokens, query_heads)`, natural log of the sum of exponentials; or null
  float* scratch =
    nullptr;  ///< `plan.scratch_floats()` floats, free again after the layer's merges
};

}  // namespace kvcache::inline v0_1
