// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>

#include "bpe.hpp"
#include "unicode_ranges.hpp"
#include "utf8.hpp"

namespace llama {

namespace {

/// What the patterns ask of a code point; `end` stands outside of the text.
enum class Class : std::uint8_t { end, letter, number, space, other };

bool contains(std::span<CodeRange const> ranges, std::uint32_t code)
{
  auto const after = std::ranges::upper_bound(ranges, code, {}, &CodeRange::first);
  return after != ranges.begin() && code <= (after - 1)->last;
}

/// \s: Unicode's White_Space.
bool is_space(std::uint32_t c)
{
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

Class class_of(CodePoint const& point)
{
  if (!point.valid) {
    return Class::other;  // stray bytes stay together and keep their value
  }
  if (is_space(point.code)) {
    return Class::space;
  }
  if (contains(letter_ranges, point.code)) {
    return Class::letter;
  }
  return contains(number_ranges, point.code) ? Class::number : Class::other;
}

/// GPT-2's pattern by hand:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text)
  {
    starts_.reserve(text.size() + 1);
    classes_.reserve(text.size() + 1);
    for (std::size_t at = 0; at < text.size();) {
      CodePoint const point = decode_utf8(text.substr(at));
      starts_.push_back(at);
      classes_.push_back(class_of(point));
      at += point.bytes;
    }
    count_ = starts_.size();
    starts_.push_back(text.size());
  }

  void run(bool digits_alone, std::vector<std::string_view>& out)
  {
    if (!digits_alone) {
      scan(0, count_, out);
      return;
    }
    // Each digit is a word, and the pattern sees what is between them as texts of their own.
    std::size_t from = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (classes_[i] == Class::number) {
        scan(from, i, out);
        out.push_back(cut(i, i + 1));
        from = i + 1;
      }
    }
    scan(from, count_, out);
  }

 private:
  [[nodiscard]] std::string_view cut(std::size_t from, std::size_t to) const
  {
    return text_.substr(starts_[from], starts_[to] - starts_[from]);
  }

  void scan(std::size_t from, std::size_t to, std::vector<std::string_view>& out)
  {
    end_ = to;
    while (from < to) {
      std::size_t const next = word_end(from);
      out.push_back(cut(from, next));
      from = next;
    }
  }

  [[nodiscard]] Class at(std::size_t i) const { return i < end_ ? classes_[i] : Class::end; }

  [[nodiscard]] std::size_t run_end(std::size_t i, Class wanted) const
  {
    while (at(i) == wanted) {
      ++i;
    }
    return i;
  }

  [[nodiscard]] std::size_t word_end(std::size_t from) const
  {
    std::string_view const left = cut(from, end_);
    if (left[0] == '\'') {
      for (std::string_view const ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
        if (left.starts_with(ending)) {
          return from + ending.size();  // ASCII: as many code points as bytes
        }
      }
    }
    std::size_t const start = left[0] == ' ' ? from + 1 : from;
    Class const kind = at(start);
    if (kind != Class::space && kind != Class::end) {
      return run_end(start, kind);
    }
    // White space leaves its last character to the word that follows.
    std::size_t const stop = run_end(from, Class::space);
    return stop < end_ && stop - from > 1 ? stop - 1 : stop;
  }

  std::string_view text_;
  std::vector<std::size_t> starts_;  // of each code point, and the end
  std::vector<Class> classes_;
  std::size_t count_ = 0;
  std::size_t end_ = 0;  // of the part that is scanned
};

}  // namespace

std::vector<std::string_view> pre_tokenize(std::string_view text, bool digits_alone)
{
  std::vector<std::string_view> out;
  Scanner(text).run(digits_alone, out);
  return out;
}

}  // namespace llama
