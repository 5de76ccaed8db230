// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/owned_array.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace kvcache::inline v0_1::detail {

/// A set of numbers that finds the next member from any place on: a bit each, and above 64 bits one that says
/// whether any of them is set, and so on up.
/// **Cost** every call but `reserve` looks at one word a level: 3 for 262,144 numbers, 4 for 16 million.
class SlotSet {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// An empty set for numbers below `numbers`; false when there is no memory, and then nothing changed.
  [[nodiscard]] bool reserve(std::uint32_t numbers) noexcept
  {
    std::uint32_t levels = 0;
    std::size_t at[max_levels + 1]{};
    for (std::size_t words = numbers; levels == 0 || words > 1; ++levels) {
      words = (words + 63) / 64;
      at[levels + 1] = at[levels] + words;
    }
    OwnedArray<std::uint64_t> made(new (std::nothrow) std::uint64_t[at[levels]]());
    if (!made) {
      return false;
    }
    words_ = std::move(made);
    levels_ = levels;
    for (std::uint32_t level = 0; level <= levels; ++level) {
      at_[level] = at[level];
    }
    return true;
  }

  void clear() noexcept
  {
    for (std::size_t i = 0; i < at_[levels_]; ++i) {
      words_[i] = 0;
    }
  }
  void insert(std::uint32_t number) noexcept
  {
    for (std::uint32_t level = 0; level < levels_; ++level, number /= 64) {
      words_[at_[level] + number / 64] |= std::uint64_t{1} << number % 64;
    }
  }
  void erase(std::uint32_t number) noexcept
  {
    bool empty = true;
    for (std::uint32_t level = 0; level < levels_ && empty; ++level, number /= 64) {
      std::uint64_t& word = words_[at_[level] + number / 64];
      word &= ~(std::uint64_t{1} << number % 64);
      empty = word == 0;
    }
  }
  [[nodiscard]] bool contains(std::uint32_t number) const noexcept
  {
    return (words_[number / 64] >> number % 64 & 1) != 0;
  }
  /// The smallest member that is not below `from`, or `none`.
  [[nodiscard]] std::uint32_t next(std::uint32_t from) const noexcept
  {
    std::size_t at = from;
    for (std::uint32_t level = 0; level < levels_; ++level) {
      if (at / 64 >= at_[level + 1] - at_[level]) {
        return none;
      }
      if (std::uint64_t const ahead = words_[at_[level] + at / 64] >> at % 64; ahead != 0) {
        at += static_cast<std::size_t>(std::countr_zero(ahead));
        while (level-- > 0) {
          at = at * 64 + static_cast<std::size_t>(std::countr_zero(words_[at_[level] + at]));
        }
        return static_cast<std::uint32_t>(at);
      }
      at = at / 64 + 1;
    }
    return none;
  }

 private:
  static constexpr std::uint32_t max_levels = 6;  // 64^6 > 2^32

  OwnedArray<std::uint64_t> words_;   // level by level, the bits of the numbers first
  std::size_t at_[max_levels + 1]{};  // where each level begins; the last one: their end
  std::uint32_t levels_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
