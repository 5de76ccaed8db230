// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Byte-level byte-pair encoding, as GPT-2 introduced it.
///
///   "low lower"  ->  pre-tokenizer  "low" | " lower"              no merge crosses a bar
///   " lower"     ->  l o w e r, the space written as U+0120       each byte has a printable letter
///                ->  the neighbours with the best rank merge, again and again, until none are left
///
/// Cost: a heap of candidate pairs, O(n log n) a word; words are short, but a prompt without spaces
/// is one long word.
/// Source: Sennrich et al. 2016 (merges); Radford et al. 2019 (bytes); llama.cpp's pre-tokenizers
/// `smollm` (each digit alone, then GPT-2's pattern) and `gpt-2`.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vocabulary.hpp"

namespace llama {

/// Cuts `text` into the words inside which merges may happen. The pieces join to `text`.
/// `digits_alone` is the difference between `smollm` (true) and `gpt-2`.
[[nodiscard]] std::vector<std::string_view> pre_tokenize(std::string_view text, bool digits_alone);

class Bpe {
 public:
  /// Reads `tokenizer.ggml.merges` and `.pre`.
  /// **Errors** `Error`: an unknown pre-tokenizer, a merge whose parts are not tokens.
  Bpe(Gguf const& model, Vocabulary const& vocabulary);

  /// Appends the ids of `text`, which holds no special tokens.
  /// **Errors** `Error` when a byte has no token.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  /// The bytes that the token text `token` stands for.
  [[nodiscard]] std::string bytes_of(std::string_view token) const;

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t id;  // of the joined token
  };
  struct Scratch;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;
  [[nodiscard]] Merge const* merge(std::int32_t left, std::int32_t right) const;

  std::array<std::int32_t, 256> byte_ids_{};         // -1: this vocabulary lacks the byte
  std::unordered_map<std::uint64_t, Merge> merges_;  // by left id << 32 | right id
  bool digits_alone_ = false;
};

}  // namespace llama
