// SPDX-License-Identifier: Apache-2.0
// B-001. Keys that a stranger makes with this source in hand, and without the secret: in a table as `IdTable` has it they cost
// no more steps than random ones.
#include <kvcache/core/hash.hpp>
#include <kvcache/core/keyed_hash.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using kvcache_test::Random;

namespace {

constexpr std::size_t num_keys = 64'000;
constexpr std::uint64_t secrets[] = {3, 0x123456789abcdefULL, 0xfeedULL << 40};
using Page = std::vector<Token>;

/// Looks and insertions together, with linear probing at less than two thirds full.
double steps_a_key(std::vector<std::uint32_t> const& hashes)
{
  std::vector<bool> used(std::size_t{1} << 17);
  std::size_t steps = 0;
  for (std::uint32_t const hash : hashes) {
    std::size_t at = hash & (used.size() - 1);
    for (++steps; used[at]; ++steps) {
      at = (at + 1) & (used.size() - 1);
    }
    used[at] = true;
  }
  return static_cast<double>(steps) / static_cast<double>(hashes.size());
}

std::uint32_t folded(std::uint64_t hash)
{
  return static_cast<std::uint32_t>(hash ^ hash >> 32);
}

template <class Make>
double cost_of_pages(std::uint64_t secret, Make&& make)
{
  detail::PageHash const hash(16, secret);
  std::vector<std::uint32_t> hashes;
  for (std::size_t i = 0; i < num_keys; ++i) {
    hashes.push_back(folded(hash(std::uint64_t{1} << 32, make(i).data())));
  }
  return steps_a_key(hashes);
}

template <class Make>
double cost_of_bytes(std::uint64_t secret, Make&& make)
{
  detail::ByteHash const hash(secret);
  std::vector<std::uint32_t> hashes;
  for (std::size_t i = 0; i < num_keys; ++i) {
    hashes.push_back(static_cast<std::uint32_t>(hash(make(i))));
  }
  return steps_a_key(hashes);
}

Page random_page(Random& random)
{
  Page page(16);
  for (Token& token : page) {
    token = static_cast<Token>(random.next() & 0x7fffffffU);
  }
  return page;
}

void put(std::string& bytes, std::size_t at, std::uint64_t word, int step)
{
  for (std::size_t i = 0; i < 8; ++i, word = step > 0 ? word >> 8 : word << 8) {
    bytes[at + i] = static_cast<char>(step > 0 ? word & 0xffU : word >> 56);
  }
}

}  // namespace

TEST_CASE("PageHash: pages crafted without the secret cost what random ones do",
          "[core][keyed_hash]")
{
  constexpr std::uint64_t constant = 0x9e3779b97f4a7c15ULL;  // of `mix`
  for (std::uint64_t const secret : secrets) {
    CAPTURE(secret);
    Random random(7);
    double const plain = cost_of_pages(secret, [&](std::size_t) { return random_page(random); });
    CHECK(plain < 1.7);
    auto const zeroed = [&](std::uint64_t guess) {  // the last two tokens make a chain of `mix` 0
      return cost_of_pages(secret, [&](std::size_t) {
        for (;;) {
          Page page = random_page(random);
          std::uint64_t const h =
            hash_words(mix(guess, std::uint64_t{1} << 32), page.data(), 14) ^ constant;
          page[14] = static_cast<Token>(h >> 32);
          page[15] = static_cast<Token>(h & 0xffffffffU);
          std::uint64_t const other = mix(mix(mix(guess, std::uint64_t{1} << 32), 16), 0);
          if (page[14] >= 0 && page[15] >= 0 && other != 0) {
            return page;
          }
        }
      });
    };
    CHECK(zeroed(0) <= 1.5 * plain);
    for (std::size_t const place :
         {0U, 1U, 7U, 14U, 15U}) {  // one token counts up, by many strides
      for (std::uint32_t const stride : {1U, 2U, 1U << 8, 1U << 14, 0x7fffU, 0x9e37U}) {
        CAPTURE(place, stride);
        CHECK(cost_of_pages(secret, [&](std::size_t i) {
                Page page(16, 7);
                page[place] =
                  static_cast<Token>(stride * static_cast<std::uint32_t>(i) & 0x7fffffffU);
                return page;
              }) <= 1.5 * plain);
      }
    }
    CHECK(cost_of_pages(secret, [&](std::size_t i) {  // one token a bit, as in a cube
            Page page(16);
            for (std::size_t bit = 0; bit < 16; ++bit) {
              page[bit] = static_cast<Token>((i >> bit & 1U) << 30);
            }
            return page;
          }) <= 1.5 * plain);
    CHECK(cost_of_pages(secret, [&](std::size_t i) {  // what one token gains its neighbour loses
            Page page(16, 1 << 20);
            page[2] += static_cast<Token>(i);
            page[3] -= static_cast<Token>(i);
            return page;
          }) <= 1.5 * plain);
  }
}

TEST_CASE("ByteHash: bytes crafted without the secret cost what random ones do",
          "[core][keyed_hash]")
{
  constexpr std::uint64_t constant = 0x9e3779b97f4a7c15ULL;
  for (std::uint64_t const secret : secrets) {
    CAPTURE(secret);
    Random random(11);
    auto const text = [&] {
      std::string bytes(32, 'x');
      put(bytes, 9, random.next(), 1);
      put(bytes, 17, random.next(), 1);
      return bytes;
    };
    std::string kept;
    double const plain = cost_of_bytes(secret, [&](std::size_t) { return Text(kept = text()); });
    CHECK(plain < 1.7);
    CHECK(cost_of_bytes(secret, [&](std::size_t) {  // the fourth word makes a chain of `mix` 0
            kept = text();
            std::uint64_t h = mix(0, kept.size());
            for (std::size_t word = 0; word < 3; ++word) {
              std::uint64_t x = 0;
              for (std::size_t i = 0; i < 8; ++i) {
                x = x << 8 | static_cast<unsigned char>(kept[word * 8 + i]);
              }
              h = mix(h, x);
            }
            put(kept, 24, h ^ constant, -1);
            return Text(kept);
          }) <= 1.5 * plain);
    for (std::size_t const at : {0U, 8U, 23U, 24U}) {
      CAPTURE(at);
      CHECK(cost_of_bytes(secret, [&](std::size_t i) {
              kept.assign(32, 'x');
              put(kept, at, i << 13, 1);
              return Text(kept);
            }) <= 1.5 * plain);
    }
  }
}

TEST_CASE("ByteHash: is SipHash-1-3 of the bytes and a number", "[core][keyed_hash]")
{
  detail::ByteHash const hash(1);
  CHECK(hash("abc") == hash(Text("abcd", 3)));
  CHECK(hash("abc") != hash("abd"));
  CHECK(hash("abc", 1) != hash("abc", 2));
  CHECK(hash("abc") != detail::ByteHash(2)("abc"));
  CHECK(hash(Text("\0", 1)) != hash(Text("", 0)));  // zeros at the end count
  CHECK(hash(Text("12345678", 8)) != hash(Text("12345678\0", 9)));
}

TEST_CASE("PageHash: every token and what comes before count, at every page size",
          "[core][keyed_hash]")
{
  for (std::size_t size : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 16U, 17U, 256U}) {
    CAPTURE(size);
    detail::PageHash const hash(size, 5);
    Page page(size, 3);
    std::uint64_t const before = hash(9, page.data());
    CHECK(before == hash.finish(9, hash.sum(page.data())));
    CHECK(before != hash(10, page.data()));
    CHECK(before != hash(std::uint64_t{1} << 32 | 9, page.data()));
    CHECK(before != detail::PageHash(size, 6)(9, page.data()));
    for (Token& token : page) {
      token = 4;
      CHECK(before != hash(9, page.data()));
      token = 3;
    }
  }
}

TEST_CASE("draw_secret: the system's numbers differ", "[core][keyed_hash]")
{
  CHECK(detail::draw_secret() != detail::draw_secret());
}
