// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/instruction_set.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <span>

/// \file What an attention call is told: the heads, how to divide the work, where the numbers lie.

namespace kvcache::inline v0_1 {

/// The query side of a model's layers. Query head `q` reads KV head `q / group()`.
///
///   score = soft_cap * tanh(scale * (q . k) / soft_cap) + bias        without a cap: scale * (q . k) + bias
///
/// Layers that differ in it (windows in every other layer) take a plan each.
struct AttentionShape {
  std::int32_t query_heads = 0;
  std::int32_t kv_heads = 0;
  float scale = 0.0F;  ///< of the logits; 0 means 1 / sqrt(head_dim)
  /// Bounds logits to (-soft_cap, soft_cap); 0 means none. As in Gemma 2 (Gemma Team, 2024, section 2).
  float soft_cap = 0.0F;
  /// **Units** rows that a token sees, its own included; 0 means all. As in Mistral 7B (Jiang et al., 2023).
  Index window = 0;

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
    if (!(soft_cap == 0.0F || (soft_cap >= 1.0e-3F && soft_cap <= 1.0e6F))) {
      bool const shown = soft_cap > -1.0e9F && soft_cap < 1.0e9F;  // no NaN becomes a whole number
      return {Why::bad_config,
              "soft_cap",
              shown ? static_cast<std::int64_t>(soft_cap < 0.0F ? soft_cap - 0.999F : soft_cap) : 0,
              "must be 0 for none, or from 0.001 to",
              1000000};
    }
    if (window < 0) {
      return {Why::bad_config,
              "window",
              window,
              "must not be negative: rows that a token sees, its own included; 0 means all"};
    }
    return {};
  }
};

/// How the work of a step is divided, and what its tokens see besides the rows before them.
struct AttentionOptions {
  std::int32_t workers = 1;  ///< threads that will run the items
  /// Rows of KV to a part. 0 cuts only where that keeps the workers busy; a multiple of 32 cuts there always,
  /// so that a row of output has the same bits whatever the batch, the chunks and the workers.
  Index split_rows = 0;
  /// Chunks with at least so many leading rows in the same pages go over them together, each page loaded once
  /// for all of them; their rests go alone and a merge joins the two. 0 means never, 512 is a good start. A cut along
  /// KV like others: it takes scratch, and moves last bits unless `split_rows` is set.
  Index shared_rows = 0;
  /// Tokens of the step that see each other both ways, in the order of the step; read by `make` only.
  std::span<TwoWaySpan const> two_way = {};
  InstructionSet instructions = InstructionSet::best;

  static constexpr std::int32_t max_workers = 4096;
  static constexpr Index rows_per_block = 32;  ///< rows that the softmax takes at once

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
    if (shared_rows < 0) {
      return {Why::bad_config, "shared_rows", shared_rows, "must not be negative; 0 means never"};
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
