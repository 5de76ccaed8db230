// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/text.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

/// \file Hashes for tables whose keys strangers choose: with a secret in every round, so that who knows this source and
/// not the secret cannot find keys that meet.
///
/// `mix` alone does not do: x = h ^ 0x9e37... makes it 0 whatever came before, and a secret start is forgotten there.
///
/// Pages, of a length known beforehand, are summed with one secret number a token (Multilinear-HM: Lemire and Kaser,
/// arXiv 1202.4961): any two different pages have equal upper halves with odds 2^-32 over the secrets, whatever the
/// pages are, and the sum is as cheap as a chain of `mix`, of which each waits for the one before. The last product
/// takes the sum's linearity away, which a table with linear probing would show. Bytes of any length take SipHash-1-3
/// (Aumasson and Bernstein, 2012), made for this.
///
/// No result may depend on these hashes: ranks draw different secrets, and must agree.

namespace kvcache::inline v0_1::detail {

/// The next of the secrets that follow from `state` (splitmix64).
[[nodiscard]] constexpr std::uint64_t next_secret(std::uint64_t& state) noexcept
{
  state += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = (state ^ state >> 30) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
  return z ^ z >> 31;
}

/// A number that nobody outside knows. Where the system has none to give, where this process lies in memory is all there is.
[[nodiscard]] inline std::uint64_t draw_secret() noexcept
{
  std::uint64_t secret = 0;
  if (::getentropy(&secret, sizeof(secret)) != 0) {
    secret = mix(reinterpret_cast<std::uintptr_t>(&secret),
                 reinterpret_cast<std::uintptr_t>(&::getentropy));
  }
  return secret;
}

/// The secret that the caller gives, or one that nobody knows.
[[nodiscard]] inline std::uint64_t secret_of(std::optional<std::uint64_t> given) noexcept
{
  return given ? *given : draw_secret();
}

/// SipHash-1-3. **Cost** about two instructions a byte.
class ByteHash {
 public:
  explicit ByteHash(std::uint64_t seed) noexcept
      : key0_(next_secret(seed)), key1_(next_secret(seed))
  {
  }

  [[nodiscard]] std::uint64_t operator()(Text bytes, std::uint64_t more = 0) const noexcept
  {
    Lanes v{key0_ ^ 0x736f6d6570736575ULL,
            key1_ ^ 0x646f72616e646f6dULL,
            key0_ ^ 0x6c7967656e657261ULL,
            key1_ ^ 0x7465646279746573ULL};
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, 8);
      v.take(word);
    }
    std::uint64_t last = static_cast<std::uint64_t>(bytes.size()) << 56;
    for (std::size_t i = 0; at + i < bytes.size(); ++i) {
      last |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << 8 * i;
    }
    v.take(last);
    v.take(more);
    v.c ^= 0xff;
    v.round();
    v.round();
    v.round();
    return v.a ^ v.b ^ v.c ^ v.d;
  }

 private:
  struct Lanes {
    std::uint64_t a, b, c, d;

    static constexpr std::uint64_t turn(std::uint64_t x, int by) noexcept
    {
      return x << by | x >> (64 - by);
    }
    constexpr void round() noexcept
    {
      a += b;
      b = turn(b, 13) ^ a;
      a = turn(a, 32);
      c += d;
      d = turn(d, 16) ^ c;
      a += d;
      d = turn(d, 21) ^ a;
      c += b;
      b = turn(b, 17) ^ c;
      c = turn(c, 32);
    }
    constexpr void take(std::uint64_t word) noexcept
    {
      d ^= word;
      round();
      a ^= word;
    }
  };

  std::uint64_t key0_;
  std::uint64_t key1_;
};

/// Hashes of pages of tokens, each with a number that says what comes before it.
class PageHash {
 public:
  /// **Errors** `std::bad_alloc`.
  PageHash(std::size_t page_tokens, std::uint64_t seed)
      : secrets_((page_tokens + 1) / 2 * 2 + 2), page_tokens_(page_tokens)
  {
    for (std::uint64_t& secret : secrets_) {
      secret = next_secret(seed);
    }
    last_ = next_secret(seed);
  }

  /// Of the tokens alone; `finish` makes a hash of it. **Cost** one product per two tokens.
  [[nodiscard]] std::uint64_t sum(Token const* page) const noexcept
  {
    std::uint64_t const* const secret = secrets_.data() + 2;
    std::uint64_t even = 0;
    std::uint64_t odd = 0;
    std::size_t i = 0;
    for (; i + 4 <= page_tokens_; i += 4) {
      even += (secret[i] + word(page[i])) * (secret[i + 1] + word(page[i + 1]));
      odd += (secret[i + 2] + word(page[i + 2])) * (secret[i + 3] + word(page[i + 3]));
    }
    for (; i < page_tokens_; i += 2) {
      std::uint64_t const next = i + 1 < page_tokens_ ? word(page[i + 1]) : 0;
      even += (secret[i] + word(page[i])) * (secret[i + 1] + next);
    }
    return even + odd;
  }
  /// The hash of what `sum` was taken of, after `before`.
  [[nodiscard]] std::uint64_t finish(std::uint64_t before, std::uint64_t sum) const noexcept
  {
    std::uint64_t const first = secrets_[0] + (before & 0xffffffffU);
    return mix(sum + first * (secrets_[1] + (before >> 32)), last_);
  }
  [[nodiscard]] std::uint64_t operator()(std::uint64_t before, Token const* page) const noexcept
  {
    return finish(before, sum(page));
  }
  /// Of a first token alone.
  [[nodiscard]] std::uint64_t of_token(std::uint64_t before, Token token) const noexcept
  {
    return finish(before, (secrets_[2] + word(token)) * secrets_[3]);
  }

 private:
  static constexpr std::uint64_t word(Token token) noexcept
  {
    return static_cast<std::uint32_t>(token);
  }

  List<std::uint64_t> secrets_;  // two of what comes before, then one a token
  std::size_t page_tokens_;
  std::uint64_t last_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
