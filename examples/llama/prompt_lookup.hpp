// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace llama {

/// A guess at how `text` goes on, without a second model: where its last few tokens stood before, and what followed
/// them there (prompt lookup, Saxena 2023). The longest such run of tokens counts, then the latest place.
/// **Shape** at most `most` tokens, a part of `text`; empty if its last two tokens never stood together before.
/// **Cost** O(text).
[[nodiscard]] inline std::span<std::int32_t const> look_up(std::span<std::int32_t const> text,
                                                           std::size_t most)
{
  constexpr std::size_t longest = 8;
  constexpr std::size_t shortest = 2;
  std::size_t best_run = shortest - 1;
  std::size_t best_at = 0;
  for (std::size_t at = text.size(); at-- > 1;) {  // text[at] would be the first token guessed
    std::size_t run = 0;
    while (run < longest && run < at && text[at - 1 - run] == text[text.size() - 1 - run]) {
      ++run;
    }
    if (run > best_run) {
      best_run = run;
      best_at = at;
    }
  }
  return best_run < shortest ? std::span<std::int32_t const>{}
                             : text.subspan(best_at, std::min(most, text.size() - best_at));
}

}  // namespace llama
