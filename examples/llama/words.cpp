// SPDX-License-Identifier: Apache-2.0
#include "words.hpp"

#include <cstddef>

#include "printable.hpp"

namespace llama {

namespace {

constexpr std::string_view spaces = " \t\n\r";
constexpr std::string_view digits = "0123456789";
constexpr std::string_view marks = ".,?";
constexpr std::string_view alone = "0123456789.,?";
constexpr std::string_view ends_word = " \t\n\r0123456789.,?";

bool is_one_of(std::string_view token, std::string_view set)
{
  return token.size() == 1 && set.find(token[0]) != std::string_view::npos;
}

}  // namespace

void Words::encode(std::string_view text,
                   Vocabulary const& vocabulary,
                   std::vector<std::int32_t>& out) const
{
  for (std::size_t at = 0; (at = text.find_first_not_of(spaces, at)) != std::string_view::npos;) {
    bool const single = alone.find(text[at]) != std::string_view::npos;
    std::size_t const end = single ? at + 1 : text.find_first_of(ends_word, at);
    std::string_view const word = text.substr(at, end - at);
    auto const id = vocabulary.find(word);
    if (!id || !vocabulary.is_normal(*id)) {
      throw Error("the prompt holds the word " + quoted(word) +
                  ", which this model does not know; it reads lower-case words of its own list, "
                  "digits and . , ?");
    }
    out.push_back(*id);
    at += word.size();
  }
}

std::string Words::joined(std::string_view token, std::string_view previous) const
{
  bool const tight = previous.empty() || is_one_of(token, marks) ||
                     (is_one_of(token, digits) && is_one_of(previous, digits));
  std::string out = tight ? "" : " ";
  out += token;
  return out;
}

}  // namespace llama
