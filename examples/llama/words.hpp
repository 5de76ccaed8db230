// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary.hpp"

namespace llama {

/// The recall model's tokenizer: lower-case words; each digit and each of `. , ?` is a token of its
/// own. Tokens join with spaces, none before `. , ?` and none between digits.
class Words {
 public:
  /// Appends the ids of `text`. **Errors** `Error` naming a word that the vocabulary lacks.
  void encode(std::string_view text,
              Vocabulary const& vocabulary,
              std::vector<std::int32_t>& out) const;
  /// `token` with the space in front that it needs after `previous` (empty: nothing before it).
  [[nodiscard]] std::string joined(std::string_view token, std::string_view previous) const;
};

}  // namespace llama
