// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A small JSON reader for tests: whole documents, an exception for anything odd.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvcache_test {

/// A JSON value. Reading it as another kind than it is throws `std::runtime_error`.
class Json {
 public:
  using List = std::vector<Json>;
  using Map = std::map<std::string, Json, std::less<>>;

  /// **Errors** `std::runtime_error` with the byte at which the text is not JSON.
  [[nodiscard]] static Json parse(std::string_view text);

  Json() = default;

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  [[nodiscard]] bool boolean() const { return get<bool>("a bool"); }
  [[nodiscard]] double number() const { return get<double>("a number"); }
  [[nodiscard]] std::string const& text() const { return get<std::string>("a string"); }
  [[nodiscard]] List const& list() const { return get<List>("a list"); }
  [[nodiscard]] Map const& map() const { return get<Map>("an object"); }

  [[nodiscard]] Json const& operator[](std::string_view key) const
  {
    auto const at = map().find(key);
    if (at == map().end()) {
      throw std::runtime_error("JSON: no key " + std::string(key));
    }
    return at->second;
  }
  [[nodiscard]] Json const& operator[](std::size_t i) const { return list().at(i); }
  [[nodiscard]] std::size_t size() const { return list().size(); }

  /// A list of numbers as integers.
  [[nodiscard]] std::vector<int> integers() const
  {
    std::vector<int> out;
    for (Json const& element : list()) {
      out.push_back(static_cast<int>(element.number()));
    }
    return out;
  }

 private:
  class Parser;

  template <class T>
  [[nodiscard]] T const& get(char const* kind) const
  {
    if (!std::holds_alternative<T>(value_)) {
      throw std::runtime_error(std::string("JSON: the value is not ") + kind);
    }
    return std::get<T>(value_);
  }

  std::variant<std::nullptr_t, bool, double, std::string, List, Map> value_ = nullptr;
};

class Json::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document()
  {
    Json out = value(0);
    skip_space();
    if (at_ != text_.size()) {
      fail();
    }
    return out;
  }

 private:
  static constexpr int max_depth = 200;

  [[noreturn]] void fail() const
  {
    throw std::runtime_error("JSON: not understood at byte " + std::to_string(at_));
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  [[nodiscard]] bool accept(std::string_view wanted)
  {
    skip_space();
    bool const found = text_.substr(at_).starts_with(wanted);
    at_ += found ? wanted.size() : 0;
    return found;
  }

  void expect(std::string_view wanted)
  {
    if (!accept(wanted)) {
      fail();
    }
  }

  Json value(int depth)
  {
    Json out;
    if (depth > max_depth) {
      fail();
    }
    if (accept("{")) {
      out.value_ = object(depth);
    } else if (accept("[")) {
      out.value_ = array(depth);
    } else if (accept("\"")) {
      out.value_ = string();
    } else if (accept("true")) {
      out.value_ = true;
    } else if (accept("false")) {
      out.value_ = false;
    } else if (!accept("null")) {
      out.value_ = digits();
    }
    return out;
  }

  Map object(int depth)
  {
    Map out;
    if (accept("}")) {
      return out;
    }
    do {
      expect("\"");
      std::string key = string();
      expect(":");
      out.insert_or_assign(std::move(key), value(depth + 1));
    } while (accept(","));
    expect("}");
    return out;
  }

  List array(int depth)
  {
    List out;
    if (accept("]")) {
      return out;
    }
    do {
      out.push_back(value(depth + 1));
    } while (accept(","));
    expect("]");
    return out;
  }

  double digits()
  {
    std::size_t const end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    std::string const token(text_.substr(at_, end - at_));
    char* stop = nullptr;
    double const number = std::strtod(token.c_str(), &stop);
    if (token.empty() || stop != token.c_str() + token.size()) {
      fail();
    }
    at_ = end;
    return number;
  }

  unsigned hex4()
  {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) {
      std::size_t const digit =
        std::string_view("0123456789abcdef").find(static_cast<char>(next() | 0x20));
      if (digit == std::string_view::npos) {
        fail();
      }
      code = code * 16 + static_cast<unsigned>(digit);
    }
    return code;
  }

  char next()
  {
    if (at_ == text_.size()) {
      fail();
    }
    return text_[at_++];
  }

  static void append_utf8(std::string& out, unsigned code)
  {
    if (code < 0x80) {
      out += static_cast<char>(code);
      return;
    }
    unsigned const length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    unsigned const lead = length == 2 ? 0xc0U : length == 3 ? 0xe0U : 0xf0U;
    out += static_cast<char>(lead | (code >> (6 * (length - 1))));
    for (unsigned i = length - 1; i-- > 0;) {
      out += static_cast<char>(0x80U | ((code >> (6 * i)) & 0x3fU));
    }
  }

  std::string string()
  {
    std::string out;
    for (char c = next(); c != '"'; c = next()) {
      if (c != '\\') {
        out += c;
        continue;
      }
      c = next();
      std::size_t const plain = std::string_view("\"\\/bfnrt").find(c);
      if (plain != std::string_view::npos) {
        out += "\"\\/\b\f\n\r\t"[plain];
      } else if (c == 'u') {
        unsigned code = hex4();
        if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
          at_ += 2;
          code = 0x10000 + ((code - 0xd800) << 10U) + (hex4() - 0xdc00);
        }
        append_utf8(out, code);
      } else {
        fail();
      }
    }
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline Json Json::parse(std::string_view text)
{
  return Parser(text).document();
}

}  // namespace kvcache_test
