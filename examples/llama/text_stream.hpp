// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer.hpp"

namespace llama {

/// Holds back the bytes of an unfinished UTF-8 sequence so that a terminal never sees half a
/// letter.
class Utf8Stream {
 public:
  /// Adds bytes; returns the part that is whole. Bytes that can never become UTF-8 pass unchanged.
  [[nodiscard]] std::string push(std::string_view bytes);
  /// Returns what was held back.
  [[nodiscard]] std::string finish();

 private:
  std::string held_;  // at most 3 bytes
};

/// Tokens in, printable text out, one at a time. Control tokens give nothing.
/// **Pre** the tokenizer outlives the stream.
class TextStream {
 public:
  /// `previous` is the last token of the text already shown, -1 for none.
  explicit TextStream(Tokenizer const& tokenizer, std::int32_t previous = -1)
      : tokenizer_(&tokenizer), previous_(previous)
  {
  }
  [[nodiscard]] std::string push(std::int32_t id);
  [[nodiscard]] std::string finish() { return utf8_.finish(); }

 private:
  Tokenizer const* tokenizer_;
  std::int32_t previous_;
  Utf8Stream utf8_;
};

}  // namespace llama
