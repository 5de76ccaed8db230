// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file Which elements of a (16, K), b (K, 8) and d (16, 8) a lane of `mma` holds.
///
/// `Parts` is how many elements a register packs: 2 (half, bfloat16; K = 16) or 4 (bytes; K = 32); part 0 is the lowest.
/// Source: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16" and "for mma.m16n8k32".

namespace kvcache::inline v0_1::isa {

/// A place in a matrix.
struct Place {
  std::int32_t row;
  std::int32_t column;
};

/// Where part `part` of register `reg` (0 to 3) of a lies.
template <int Parts>
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr Place place_in_a(std::int32_t lane,
                                                             std::int32_t reg,
                                                             std::int32_t part)
{
  return {lane / 4 + 8 * (reg % 2), lane % 4 * Parts + part + 4 * Parts * (reg / 2)};
}

/// Where part `part` of register `reg` (0 or 1) of b lies.
template <int Parts>
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr Place place_in_b(std::int32_t lane,
                                                             std::int32_t reg,
                                                             std::int32_t part)
{
  return {lane % 4 * Parts + part + 4 * Parts * reg, lane / 4};
}

/// Where value `i` (0 to 3) of d lies. So a row of d is held by the four lanes of equal `lane / 4`.
[[nodiscard]] KVCACHE_HOST_DEVICE constexpr Place place_in_d(std::int32_t lane, std::int32_t i)
{
  return {lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2};
}

}  // namespace kvcache::inline v0_1::isa
