// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Text to token ids and back, as the model file asks for it.
///
/// The text is raw: special tokens written in it (`<|im_start|>`, `<s>`) are recognised, the
/// longest first, and nothing is added in front. What lies between them goes to the model's own
/// splitter:
///   gpt2   byte-level byte-pair encoding, pre-tokenizers `smollm` and `gpt-2` (bpe.hpp)
///   llama  SentencePiece's byte-pair encoding by scores (sentence_piece.hpp)
///   words  one token per known word, digit or mark of punctuation (words.hpp)

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bpe.hpp"
#include "chat_template.hpp"
#include "gguf.hpp"
#include "sentence_piece.hpp"
#include "vocabulary.hpp"
#include "words.hpp"

namespace llama {

class Tokenizer {
 public:
  /// **Errors** `Error`: a tokenizer this program does not know, a vocabulary that contradicts
  /// itself. The `Gguf` may go afterwards.
  explicit Tokenizer(Gguf const& model);

  /// **Cost** O(n log n) in the length of the longest word, linear in the text.
  /// **Errors** `Error` naming the word or byte that the vocabulary cannot write.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;

  /// The bytes that `id` adds to a text whose last token is `previous` (-1: the text starts here).
  /// The bytes may end inside a UTF-8 sequence; see `TextStream`. **Errors** `Error` when `id` is
  /// out of range.
  [[nodiscard]] std::string decode(std::int32_t id, std::int32_t previous = -1) const;
  [[nodiscard]] std::string decode(std::span<std::int32_t const> ids) const;

  [[nodiscard]] std::int32_t vocab_size() const { return vocabulary_.size(); }
  /// The id of the token written `text` (as in the text, e.g. "<|im_end|>"), if there is one.
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view text) const;
  /// The tokens after which a chat program stops; empty for the words model.
  [[nodiscard]] std::span<std::int32_t const> eos() const { return vocabulary_.eos(); }
  [[nodiscard]] bool is_eos(std::int32_t id) const { return vocabulary_.is_eos(id); }
  /// A control token: it steers the model and is not shown to the reader.
  [[nodiscard]] bool is_control(std::int32_t id) const { return vocabulary_.is_control(id); }

  /// `--chat`: wraps what the user said as one turn of the model's family, up to where the answer starts.
  /// **Errors** `Error` when the file's chat template is of no known family and its vocabulary has neither
  /// `<|im_start|>` nor, for the words model, `<s>`.
  [[nodiscard]] std::string chat_turn(std::string_view user) const;

 private:
  Vocabulary vocabulary_;
  std::variant<Bpe, SentencePiece, Words> splitter_;
  ChatFamily family_ = ChatFamily::none;
  std::string system_;  // what --chat tells the model first; empty for most models
};

}  // namespace llama
