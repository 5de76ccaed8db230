// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/hash.hpp>

#include <bit>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.hpp"

using kvcache::hash_words;
using kvcache::mix;

TEST_CASE("mix: order and value matter", "[core][hash]")
{
  CHECK(mix(1, 2) != mix(1, 3));
  CHECK(mix(mix(0, 1), 2) != mix(mix(0, 2), 1));
  CHECK(mix(0, 0) != 0);
}

TEST_CASE("mix: a flipped bit of the input flips about half of the output", "[core][hash]")
{
  int flipped = 0;
  int trials = 0;
  for (std::uint64_t x = 1; x < 200; ++x) {
    for (int bit = 0; bit < 64; ++bit, ++trials) {
      flipped += std::popcount(mix(7, x) ^ mix(7, x ^ std::uint64_t{1} << bit));
    }
  }
  double const share = flipped / (64.0 * trials);
  CAPTURE(share);
  CHECK(share > 0.45);
  CHECK(share < 0.55);
}

TEST_CASE("hash_words: length, seed, order and each word count", "[core][hash]")
{
  std::vector<std::int32_t> words{1, 2, 3, 4, 5};
  std::set<std::uint64_t> seen;
  for (std::size_t n = 0; n <= words.size(); ++n) {
    seen.insert(hash_words(0, words.data(), n));
  }
  CHECK(seen.size() == words.size() + 1);
  std::uint64_t const before = hash_words(0, words.data(), words.size());
  CHECK(before == hash_words(0, words.data(), words.size()));
  CHECK(before != hash_words(1, words.data(), words.size()));
  for (std::int32_t& word : words) {
    word ^= 1;
    CHECK(before != hash_words(0, words.data(), words.size()));
    word ^= 1;
  }
  std::vector<std::int32_t> const trailing_zero{1, 0};
  CHECK(hash_words(0, trailing_zero.data(), 1) != hash_words(0, trailing_zero.data(), 2));
}

TEST_CASE("hash_words: 100000 short prompts do not meet", "[core][hash]")
{
  std::set<std::uint64_t> seen;
  for (std::int32_t i = 0; i < 100000; ++i) {
    std::int32_t const words[3] = {i % 100, i / 100 % 100, i / 10000};
    seen.insert(hash_words(0, words, 3));
  }
  CHECK(seen.size() == 100000);
}

TEST_CASE("hash: works at compile time", "[core][hash]")
{
  constexpr std::int32_t words[2] = {1, 2};
  static_assert(hash_words(0, words, 2) != hash_words(0, words, 1));
  CHECK(hash_words(0, words, 2) == mix(mix(0, 2), std::uint64_t{1} << 32 | 2));
}
