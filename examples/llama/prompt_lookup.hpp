// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace llama {

/// Guesses at how `text` goes on, without a second model: where its last few tokens stood before, and what followed
/// them there (prompt lookup, Saxena 2023). The longest such run of tokens counts, then the latest place.
/// **Shape** at most `count` guesses, the best first, that begin with different tokens; each at most `most` tokens, a
/// part of `text`. None if its last two tokens never stood together before. **Cost** O(count * text).
[[nodiscard]] inline std::vector<std::span<std::int32_t const>> look_up_several(
  std::span<std::int32_t const> text, std::size_t most, std::size_t count)
{
  constexpr std::size_t longest = 8;
  constexpr std::size_t shortest = 2;
  std::vector<std::span<std::int32_t const>> guesses;
  while (most > 0 && guesses.size() < count) {
    std::size_t best_run = shortest - 1;
    std::size_t best_at = 0;
    for (std::size_t at = text.size(); at-- > 1;) {  // text[at] would be the first token guessed
      std::size_t run = 0;
      while (run < longest && run < at && text[at - 1 - run] == text[text.size() - 1 - run]) {
        ++run;
      }
      if (run > best_run && std::none_of(guesses.begin(), guesses.end(), [&](auto guess) {
            return guess.front() == text[at];
          })) {
        best_run = run;
        best_at = at;
      }
    }
    if (best_run < shortest) {
      break;
    }
    guesses.push_back(text.subspan(best_at, std::min(most, text.size() - best_at)));
  }
  return guesses;
}

/// The best of them, or nothing.
[[nodiscard]] inline std::span<std::int32_t const> look_up(std::span<std::int32_t const> text,
                                                           std::size_t most)
{
  auto const guesses = look_up_several(text, most, 1);
  return guesses.empty() ? std::span<std::int32_t const>{} : guesses.front();
}

}  // namespace llama
