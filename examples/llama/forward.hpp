// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file One forward pass of a Llama over the tokens of a step.
///
///   token -> embedding -> [ norm q,k,v rope | store k,v and attend | o + ; norm gate,up swiglu down + ] x layers
///                                             ^ the only part that knows of a cache        -> norm -> logits
///
/// Tokens of different sequences go through together; only attention tells them apart. That part is an
/// object, asked once per layer, so this file is compiled once whatever the cache's layout.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model.hpp"
#include "ops.hpp"
#include "threads.hpp"

namespace llama {

/// Stores the rows of a step and attends over all rows that each token may see.
class Attention {
 public:
  Attention() = default;
  Attention(Attention const&) = delete;
  Attention& operator=(Attention const&) = delete;
  virtual ~Attention() = default;

  /// **Shape** q, out `(tokens, heads, head_dim)`; k, v `(tokens, kv_heads, head_dim)`; q and k are rotated,
  /// q is not scaled.
  virtual void attend(int layer, float const* q, float const* k, float const* v, float* out) = 0;
};

/// How products with quantised weights are computed, see ops.hpp.
enum class Arithmetic : std::uint8_t { float32, rounded };

/// Runs a model; keeps its buffers from step to step.
class Forward {
 public:
  /// **Pre** `model` and `threads` outlive this.
  Forward(Model const& model, Threads& threads, Arithmetic arithmetic = Arithmetic::float32);

  /// Computes the logits of the tokens numbered `wanted`.
  /// **Shape** tokens, positions `(n)`; the result `(wanted, vocab)`, valid until the next call.
  /// **Pre** tokens lie inside the vocabulary; `wanted` ascends.
  [[nodiscard]] std::span<float const> run(std::span<std::int32_t const> tokens,
                                           std::span<std::int64_t const> positions,
                                           std::span<std::size_t const> wanted,
                                           Attention& attention);

 private:
  void norm_rows(std::size_t n, float const* gain);
  void add_rows(std::size_t n);
  void products(std::span<Product const> all, float const* x, std::size_t n);

  Model const* model_;
  Threads* threads_;
  Arithmetic arithmetic_;
  Rope rope_;
  RoundedRows rounded_;
  std::vector<float> x_;       // (n, width) the residual stream
  std::vector<float> normed_;  // (n, width)
  std::vector<float> q_;       // (n, heads * head_dim)
  std::vector<float> k_;       // (n, kv_heads * head_dim)
  std::vector<float> v_;       // as k_
  std::vector<float> mixed_;   // as q_
  std::vector<float> gate_;    // (n, ffn)
  std::vector<float> up_;      // (n, ffn)
  std::vector<float> change_;  // (n, width) what a layer adds to x_
  std::vector<float> logits_;  // (wanted, vocab)
};

}  // namespace llama
