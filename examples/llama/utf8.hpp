// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llama {

/// One code point at the front of a text.
struct CodePoint {
  std::uint32_t code = 0;
  std::uint32_t bytes = 0;  // 0: the text is empty
  bool valid = false;       // not valid: `bytes` is 1 and the byte belongs to no code point
};

/// Bytes of a sequence that starts with `lead`; 0 for a byte that starts none.
[[nodiscard]] constexpr std::uint32_t utf8_length(unsigned char lead)
{
  if (lead < 0x80) {
    return 1;
  }
  if (lead < 0xc2 || lead > 0xf4) {
    return 0;
  }
  return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/// Decodes the front of `text`; over-long forms, surrogates and codes past U+10FFFF are not valid.
[[nodiscard]] constexpr CodePoint decode_utf8(std::string_view text)
{
  if (text.empty()) {
    return {};
  }
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  CodePoint const invalid = {.code = 0xfffd, .bytes = 1, .valid = false};
  std::uint32_t const length = utf8_length(byte(0));
  if (length == 0 || length > text.size()) {
    return invalid;
  }
  std::uint32_t code = length == 1 ? byte(0) : byte(0) & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) {
      return invalid;
    }
    code = (code << 6U) | (byte(i) & 0x3fU);
  }
  bool const over_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  bool const surrogate = code >= 0xd800 && code <= 0xdfff;
  if (over_long || surrogate || code > 0x10ffff) {
    return invalid;
  }
  return {.code = code, .bytes = length, .valid = true};
}

/// Appends `code`, which is below U+0800.
inline void append_utf8(std::string& out, std::uint32_t code)
{
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xc0U | (code >> 6U));
    out += static_cast<char>(0x80U | (code & 0x3fU));
  }
}

}  // namespace llama
