// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace llama {

/// `text` in quotes, for an error sentence: cut at 80 bytes, control bytes written as \xNN, because
/// what a file or a command line holds must not steer the terminal.
[[nodiscard]] inline std::string quoted(std::string_view text)
{
  constexpr std::string_view digits = "0123456789abcdef";
  constexpr std::size_t longest = 80;
  std::string out = "'";
  for (char const c : text.substr(0, longest)) {
    auto const byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += digits[byte >> 4U];
      out += digits[byte & 15U];
    } else {
      out += c;
    }
  }
  return out + (text.size() > longest ? "...'" : "'");
}

}  // namespace llama
