// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

namespace kvcache::inline v0_1 {

/// A piece of text that somebody else owns: what `std::string_view` is, which is a fifth of what `kvcache.hpp` costs to parse.
/// It comes from a literal, a `std::string`, a `std::string_view` or whatever else has chars in a row, and goes where a
/// `std::string_view` is wanted. A text without data (`{}`) is not the empty text (`""`).
class Text {
 public:
  constexpr Text() = default;
  constexpr Text(char const* text)
      : data_(text), size_(text == nullptr ? 0 : __builtin_strlen(text))
  {
  }
  constexpr Text(char const* data, std::size_t size) : data_(data), size_(size) {}
  template <class Chars>
    requires requires(Chars const& chars, char const* data, std::size_t size) {
      data = chars.data();
      size = chars.size();
    }
  constexpr Text(Chars const& chars) : data_(chars.data()), size_(chars.size())
  {
  }

  [[nodiscard]] constexpr char const* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr char operator[](std::size_t i) const noexcept { return data_[i]; }

  /// A `std::string_view`: whatever else has character traits and owns nothing.
  template <class View>
    requires requires { typename View::traits_type; } &&
             (!requires { typename View::allocator_type; })
  constexpr operator View() const noexcept
  {
    return View(data_, size_);
  }

  /// Below, equal or above 0 as the first byte that differs says, or the length. **Cost** O(bytes).
  [[nodiscard]] int compare(Text other) const noexcept
  {
    std::size_t const both = size_ < other.size_ ? size_ : other.size_;
    int const order = both == 0 ? 0 : std::memcmp(data_, other.data_, both);
    return order != 0 ? order : size_ == other.size_ ? 0 : size_ < other.size_ ? -1 : 1;
  }
  friend bool operator==(Text a, Text b) noexcept { return a.compare(b) == 0; }

 private:
  char const* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kvcache::inline v0_1
