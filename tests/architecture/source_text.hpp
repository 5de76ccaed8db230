// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file C++ text as the architecture rules read it: without comments and strings, with its scopes.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvcache_test {

inline bool is_word(char c)
{
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

inline std::size_t line_of(std::string_view text, std::size_t at)
{
  std::size_t line = 1;
  for (char const c : text.substr(0, at)) {
    line += c == '\n' ? 1U : 0U;
  }
  return line;
}

inline std::vector<std::string> lines_of(std::string_view text)
{
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t const end = text.find('\n', at);
    lines.emplace_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
  return lines;
}

/// `text` with comments and the insides of string and character literals as spaces; every other character
/// stays where it is, so offsets and lines agree with the original.
inline std::string code_only(std::string const& text)
{
  std::string out = text;
  auto const blank = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to && i < out.size(); ++i) {
      out[i] = out[i] == '\n' ? '\n' : ' ';
    }
  };
  std::size_t i = 0;
  while (i < text.size()) {
    char const c = text[i];
    char const next = i + 1 < text.size() ? text[i + 1] : '\0';
    bool const after_word = i > 0 && is_word(text[i - 1]);
    if (c == '/' && (next == '/' || next == '*')) {
      std::size_t end = next == '/' ? text.find('\n', i) : text.find("*/", i + 2);
      end = end == std::string::npos ? text.size() : (next == '/' ? end : end + 2);
      blank(i, end);
      i = end;
    } else if (c == 'R' && next == '"' && !after_word) {
      std::size_t const open = text.find('(', i);
      std::string const close = ")" + text.substr(i + 2, open - i - 2) + "\"";
      std::size_t const end = text.find(close, open);
      blank(i + 2, end == std::string::npos ? text.size() : end + close.size() - 1);
      i = end == std::string::npos ? text.size() : end + close.size();
    } else if (c == '"' || (c == '\'' && !after_word)) {  // 1'000 is no character literal
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != c && text[end] != '\n') {
        end += text[end] == '\\' ? 2U : 1U;
      }
      blank(i + 1, end);
      i = end + 1;
    } else {
      ++i;
    }
  }
  return out;
}

/// The offset just past the bracket that closes the one at `open`, or the end.
inline std::size_t past_close(std::string_view code, std::size_t open)
{
  char const opening = code[open];
  char const closing = opening == '(' ? ')' : opening == '[' ? ']' : opening == '<' ? '>' : '}';
  std::size_t depth = 0;
  for (std::size_t i = open; i < code.size(); ++i) {
    depth += code[i] == opening ? 1U : 0U;
    if (code[i] == closing && --depth == 0) {
      return i + 1;
    }
  }
  return code.size();
}

/// `code` with preprocessor lines, continuations included, as spaces.
inline std::string without_directives(std::string code)
{
  bool directive = false;
  for (std::size_t at = 0; at < code.size();) {
    std::size_t const end = std::min(code.find('\n', at), code.size());
    std::size_t const first = code.find_first_not_of(" \t", at);
    directive = directive || (first < end && code[first] == '#');
    bool const continued = end > at && code[end - 1] == '\\';
    if (directive) {
      code.replace(at, end - at, end - at, ' ');
    }
    directive = directive && continued;
    at = end + 1;
  }
  return code;
}

enum class Scope { space, type, body };  // a namespace, a class, or anything else in braces

/// One statement or the head before a brace: where it stands, and its text on one line.
struct Statement {
  Scope scope;
  std::size_t at;
  std::string text;
};

inline bool has_word(std::string const& text, std::string const& word)
{
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    bool const starts = at == 0 || !is_word(text[at - 1]);
    bool const ends = at + word.size() == text.size() || !is_word(text[at + word.size()]);
    if (starts && ends) {
      return true;
    }
  }
  return false;
}

/// Every statement of `code` with the kind of scope it stands in.
/// **Pre** `code` went through `code_only` and `without_directives`.
inline std::vector<Statement> statements(std::string const& code)
{
  std::vector<Statement> out;
  std::vector<Scope> scopes{Scope::space};
  std::size_t start = 0;
  auto const take = [&](std::size_t end) {
    std::string text = code.substr(start, end - start);
    // `template <class T>` says nothing about what follows.
    for (std::size_t at = text.find("template"); at != std::string::npos;
         at = text.find("template", at)) {
      std::size_t const open = text.find('<', at);
      if (open == std::string::npos) {
        break;
      }
      text.erase(at, past_close(text, open) - at);
    }
    for (char& c : text) {
      c = c == '\n' ? ' ' : c;
    }
    std::size_t const first = text.find_first_not_of(' ');
    std::size_t const offset = code.find_first_not_of(" \n", start);
    out.push_back(
      {scopes.back(), std::min(offset, end), first == std::string::npos ? "" : text.substr(first)});
    return out.back().text;
  };
  for (std::size_t i = 0; i < code.size(); ++i) {
    char const c = code[i];
    if (c == '{') {
      std::string const head = take(i);
      bool const type = has_word(head, "class") || has_word(head, "struct") ||
                        has_word(head, "union") || has_word(head, "enum");
      std::size_t const last = head.find_last_not_of(' ');
      bool const ends_in_paren = last != std::string::npos && head[last] == ')';
      scopes.push_back(has_word(head, "namespace") ? Scope::space
                       : type && !ends_in_paren    ? Scope::type
                                                   : Scope::body);
      start = i + 1;
    } else if (c == '}') {
      take(i);
      if (scopes.size() > 1) {
        scopes.pop_back();
      }
      start = i + 1;
    } else if (c == ';') {
      take(i);
      start = i + 1;
    }
  }
  return out;
}

}  // namespace kvcache_test
