// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace llama {

/// Something to ask about a text, and the four digits that answer it.
struct RecallQuestion {
  std::string text;    // "what is the room of zoe?"
  std::string answer;  // "1142"
};

/// A text in the language of the recall model: facts scattered among sentences that say nothing of use.
struct RecallText {
  std::string context;  // starts with <s>
  std::vector<RecallQuestion> questions;
  std::size_t facts = 0;
};

/// Makes a text that is `tokens` long once its questions are asked and answered (12 tokens each), or a sentence
/// less: with 3/128 facts a token, as the model was trained and measured. **Pre** `tokens` holds its facts and
/// questions, there are fewer than 256 facts. **Post** equal arguments give equal texts on every machine.
[[nodiscard]] RecallText make_recall_text(std::size_t tokens,
                                          std::size_t questions,
                                          std::uint64_t seed);

}  // namespace llama
