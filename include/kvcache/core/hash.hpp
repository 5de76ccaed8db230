// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// \file Fast 64-bit mixing for tables and digests. Not cryptographic: nothing trusts a hash alone.

namespace kvcache::inline v0_1 {

/// Folds `x` into the running hash `h`. **Cost** one 128-bit product.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t x) noexcept
{
  __extension__ using u128 = unsigned __int128;
  u128 const product = static_cast<u128>(h ^ x ^ 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Hash of `count` 32-bit words, starting from `seed`. **Cost** one product per two words.
template <class Word>
[[nodiscard]] constexpr std::uint64_t hash_words(std::uint64_t seed,
                                                 Word const* words,
                                                 std::size_t count) noexcept
{
  static_assert(sizeof(Word) == 4);
  std::uint64_t h = mix(seed, count);
  std::size_t i = 0;
  for (; i + 2 <= count; i += 2) {
    h = mix(h,
            static_cast<std::uint64_t>(static_cast<std::uint32_t>(words[i])) << 32 |
              static_cast<std::uint32_t>(words[i + 1]));
  }
  return i < count ? mix(h, static_cast<std::uint32_t>(words[i])) : h;
}

}  // namespace kvcache::inline v0_1
