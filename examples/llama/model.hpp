// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "config.hpp"
#include "gguf.hpp"
#include "ops.hpp"

namespace llama {

/// The weights of one layer; they stay in the file.
struct Layer {
  float const* attention_norm;  // (width)
  Weights q;                    // (heads * head_dim, width)
  Weights k;                    // (kv_heads * head_dim, width)
  Weights v;                    // as k
  Weights o;                    // (width, heads * head_dim)
  float const* ffn_norm;        // (width)
  Weights gate;                 // (ffn, width)
  Weights up;                   // as gate
  Weights down;                 // (width, ffn)
};

/// A Llama: its shape and its weights, by name out of a GGUF file.
struct Model {
  Gguf file;  // owns, or borrows, the bytes below
  Config config;
  Weights embedding;  // (vocab, width)
  std::vector<Layer> layers;
  float const* output_norm = nullptr;  // (width)
  Weights head;                        // (vocab, width); the embedding where the model is tied
};

/// Finds the weights of a model. **Errors** `Error` naming the field or tensor, its value or shape, and what would
/// be right.
[[nodiscard]] Model load_model(Gguf file);

}  // namespace llama
