// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf.hpp"

namespace llama {

/// The token list of a model file: text and kind of each id, and which of them are special.
class Vocabulary {
 public:
  /// Reads `tokenizer.ggml.tokens`, `.token_type` and the end-of-text ids. **Errors** `Error`: no
  /// tokens, the same token twice, arrays of different lengths, ids out of range.
  explicit Vocabulary(Gguf const& model);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(texts_.size()); }
  /// The token's text as the file has it. **Errors** `Error` when `id` is out of range.
  [[nodiscard]] std::string const& text(std::int32_t id) const;
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view text) const;
  [[nodiscard]] bool is_control(std::int32_t id) const;
  [[nodiscard]] bool is_normal(std::int32_t id) const;
  /// A token that stands for one byte, written `<0x0A>`.
  [[nodiscard]] bool is_byte(std::int32_t id) const;
  /// Control or user-defined: matched in the raw text and never split or merged.
  [[nodiscard]] bool is_special(std::int32_t id) const;
  [[nodiscard]] std::span<std::int32_t const> eos() const { return eos_; }
  [[nodiscard]] bool is_eos(std::int32_t id) const;

  /// Part of a text: either plain bytes or one special token.
  struct Part {
    std::string_view plain;
    std::int32_t special = -1;  // -1: plain
  };
  /// Cuts `text` at its special tokens, the longest token first.
  [[nodiscard]] std::vector<Part> split_special(std::string_view text) const;

 private:
  enum class Kind : std::uint8_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user = 4,
    unused = 5,
    byte = 6
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::vector<std::string> texts_;
  std::vector<Kind> kinds_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::int32_t> special_;  // longest text first
  std::vector<std::int32_t> eos_;
};

}  // namespace llama
