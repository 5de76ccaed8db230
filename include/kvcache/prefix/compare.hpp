// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// \file How far two runs of tokens agree. A long match spends most of its time here.

namespace kvcache::inline v0_1::detail {

[[nodiscard]] inline bool equal_tokens(Token const* a, Token const* b, std::size_t count) noexcept
{
  return std::memcmp(a, b, count * sizeof(Token)) == 0;
}

/// How many tokens `a` and `b` have in common from the start, at most `count`.
/// **Cost** O(result), at the speed of `memcmp` but for the last block.
[[nodiscard]] inline std::size_t common_tokens(Token const* a,
                                               Token const* b,
                                               std::size_t count) noexcept
{
  std::size_t at = 0;
  for (std::size_t block = 256; block >= 16; block /= 16) {
    while (at + block <= count && equal_tokens(a + at, b + at, block)) {
      at += block;
    }
  }
  while (at < count && a[at] == b[at]) {
    ++at;
  }
  return at;
}

}  // namespace kvcache::inline v0_1::detail
