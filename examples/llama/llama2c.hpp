// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Models of llama2.c (stories260K and its kin): a checkpoint and a tokenizer become one GGUF.
///
///   checkpoint  seven int32 {dim, hidden, layers, heads, KV heads, vocabulary, context}, then float32:
///               embedding | attention norms | q | k | v | o | ffn norms | gate | down | up | norm | two rope tables
///               [ | head, where the vocabulary is written negative ]
///               each for all layers in a row
///   tokenizer   int32 longest piece, then {float32 score, int32 bytes, the piece} for each token
///
/// Source: run.c and export.py (version 0) of the llama2.c repository.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace llama {

/// The bytes of a GGUF file with the same model. **Errors** `Error` naming `name`, the field and what would be right.
[[nodiscard]] std::vector<std::byte> gguf_of_llama2c(std::span<std::byte const> checkpoint,
                                                     std::span<std::byte const> tokenizer,
                                                     std::string const& name);

}  // namespace llama
