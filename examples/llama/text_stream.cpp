// SPDX-License-Identifier: Apache-2.0
#include "text_stream.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "utf8.hpp"

namespace llama {

namespace {

/// How many bytes at the end of `text` start a sequence whose rest may still come.
std::size_t unfinished(std::string_view text)
{
  std::size_t const longest = std::min<std::size_t>(3, text.size());
  for (std::size_t back = 1; back <= longest; ++back) {
    auto const byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0U) != 0x80U) {
      return utf8_length(byte) > back ? back : 0;
    }
  }
  return 0;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes)
{
  std::string text = std::exchange(held_, "");
  text += bytes;
  std::size_t const whole = text.size() - unfinished(text);
  held_ = text.substr(whole);
  text.resize(whole);
  return text;
}

std::string Utf8Stream::finish()
{
  return std::exchange(held_, "");
}

std::string TextStream::push(std::int32_t id)
{
  if (tokenizer_->is_control(id)) {
    previous_ = -1;  // what is not shown needs no space after it
    return finish();
  }
  return utf8_.push(tokenizer_->decode(id, std::exchange(previous_, id)));
}

}  // namespace llama
