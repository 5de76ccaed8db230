// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file Counting and finding bits on both sides of nvcc, where `<bit>` does not reach.

namespace kvcache::inline v0_1 {

/// How many bits of `x` are set. **Cost** a dozen instructions, no table, no loop.
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::int32_t count_bits(std::uint64_t x) noexcept
{
  x -= x >> 1 & 0x5555555555555555ULL;
  x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
  return static_cast<std::int32_t>(x * 0x0101010101010101ULL >> 56);
}

/// The number of the highest bit of `x` that is set, -1 for 0. **Cost** two dozen instructions.
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::int32_t highest_bit(std::uint64_t x) noexcept
{
  x |= x >> 1;
  x |= x >> 2;
  x |= x >> 4;
  x |= x >> 8;
  x |= x >> 16;
  x |= x >> 32;
  return count_bits(x) - 1;
}

static_assert(count_bits(~0ULL) == 64 && highest_bit(1) == 0 && highest_bit(0) == -1);

}  // namespace kvcache::inline v0_1
