// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The tokenizer of Llama 1 and 2: SentencePiece's byte-pair encoding over scored pieces.
///
///   "hi there"  ->  U+2581 h i U+2581 t h e r e     a space in front, spaces written as U+2581
///               ->  the neighbours whose joined piece has the best score merge, the leftmost of equals,
///                   again and again, until no two neighbours join to a piece
///               ->  a letter without a piece becomes its bytes: <0xF0> <0x9F> ...
///
/// There is no pre-tokenizer: merges run over the whole text. A heap of candidates makes that O(n log n).
/// Source: Kudo and Richardson 2018; llama.cpp's tokenizer `llama`.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary.hpp"

namespace llama {

class SentencePiece {
 public:
  /// Reads `tokenizer.ggml.scores`, `.add_space_prefix`, and the tokens of bytes.
  /// **Errors** `Error`: no scores, or not one for each token.
  SentencePiece(Gguf const& model, Vocabulary const& vocabulary);

  /// Appends the ids of `text`, which holds no special tokens. `starts`: it is at the start of the text or behind
  /// a special token, where a space goes in front.
  /// **Errors** `Error` when a letter has no piece and a byte of it no token.
  void encode(std::string_view text,
              bool starts,
              Vocabulary const& vocabulary,
              std::vector<std::int32_t>& out) const;

  /// The bytes that token `id` stands for; without the space in front where the text `starts` here.
  [[nodiscard]] std::string bytes_of(std::int32_t id,
                                     bool starts,
                                     Vocabulary const& vocabulary) const;

 private:
  std::vector<float> scores_;                 // by id
  std::array<std::int32_t, 256> byte_ids_{};  // -1: this vocabulary lacks the byte
  bool space_in_front_ = true;
};

}  // namespace llama
