// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gguf.hpp"

namespace llama {

/// The shape of a Llama model. All fields are checked: a `Config` from `read_config` is sound.
struct Config {
  int layers = 0;
  int width = 0;     // of the residual stream
  int heads = 0;     // query heads; a multiple of kv_heads
  int kv_heads = 0;  // query head h reads KV head h / (heads / kv_heads)
  int head_dim = 0;  // independent of width / heads; a multiple of 8, at most 256
  int ffn = 0;       // width of the SwiGLU part
  int vocab = 0;     // rows of the embedding
  int context = 0;   // longest sequence the model was made for, tokens
  int rope_dim = 0;  // the first rope_dim channels of a head rotate, in pairs (2i, 2i + 1)
  float rope_base = 10000.0F;
  float rms_eps = 1e-5F;
  bool tied = false;  // no output.weight: the embedding is the head
};

/// Reads the metadata of `model` and checks that every tensor of a Llama is there with the right
/// shape and that there is none this decoder would ignore (biases, experts, rope factors). Names
/// and dims: `token_embd.weight` {width, vocab}; per layer N `blk.N.` + `attn_norm.weight` {width},
/// `attn_q.weight` {width, heads * head_dim}, `attn_k.weight`, `attn_v.weight` {width, kv_heads *
/// head_dim}, `attn_output.weight` {heads * head_dim, width}, `ffn_norm.weight` {width},
/// `ffn_gate.weight`, `ffn_up.weight` {width, ffn}, `ffn_down.weight` {ffn, width};
/// `output_norm.weight` {width} and, unless tied, `output.weight` {width, vocab}. Norms are F32.
/// **Errors** `Error` naming field, value and what is right.
[[nodiscard]] Config read_config(Gguf const& model);

}  // namespace llama
