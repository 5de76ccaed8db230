// SPDX-License-Identifier: Apache-2.0
#pragma once

// A bounds-checked walk over the bytes of a file; included by the reader's own files only.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "error.hpp"

namespace llama {

/// Reads a file from front to back and never past its end.
/// **Errors** every reading call: `Error` naming the file, `field` and how many bytes are missing.
class GgufCursor {
 public:
  GgufCursor(std::span<std::byte const> bytes, std::string_view file) : bytes_(bytes), file_(file)
  {
  }

  [[nodiscard]] std::byte const* begin() const { return bytes_.data(); }
  [[nodiscard]] std::byte const* here() const { return bytes_.data() + at_; }
  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] std::uint64_t left() const { return bytes_.size() - at_; }

  /// The next `count` bytes.
  std::byte const* take(std::uint64_t count, std::string_view field)
  {
    if (count > left()) {
      fail(std::string(field) + " needs " + std::to_string(count) + " bytes at byte " +
           std::to_string(at_) + ", but the file has " + std::to_string(left()) +
           " left; it is cut short or lies about its sizes");
    }
    std::byte const* const taken = here();
    at_ += count;
    return taken;
  }

  template <class T>
  [[nodiscard]] T number(std::string_view field)
  {
    T value;
    std::memcpy(&value, take(sizeof(T), field), sizeof(T));
    return value;
  }

  /// A count of things that take at least `each` bytes: it is refused when they cannot all be
  /// there, so that the caller may reserve room for them.
  [[nodiscard]] std::uint64_t count(std::string_view field, std::uint64_t each)
  {
    auto const value = number<std::uint64_t>(field);
    if (value > left() / each) {
      fail(std::string(field) + " is " + std::to_string(value) + ", but the " +
           std::to_string(left()) + " bytes left hold at most " + std::to_string(left() / each) +
           "; the file is cut short or lies about its sizes");
    }
    return value;
  }

  [[nodiscard]] std::string_view string(std::string_view field)
  {
    auto const length = number<std::uint64_t>(field);
    return {reinterpret_cast<char const*>(take(length, field)), length};
  }

  [[noreturn]] void fail(std::string const& sentence) const
  {
    throw Error(std::string(file_) + ": " + sentence);
  }

 private:
  std::span<std::byte const> bytes_;
  std::string_view file_;
  std::size_t at_ = 0;
};

}  // namespace llama
