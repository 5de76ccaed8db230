// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace llama {

/// How the numbers of a matrix are stored; the blocks are those of GGUF. First the types without blocks.
enum class WeightType : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,  ///< 32 values: f16 d, 32 int8 q; value = d q
  q4_0,  ///< 32 values: f16 d, 16 bytes of nibbles (low ones first); value = d (q - 8)
  q4_1,  ///< 32 values: f16 d, f16 m, 16 bytes of nibbles (low ones first); value = d q + m
  q5_0,  ///< 32 values: f16 d, 32 high bits, 16 bytes of nibbles; value = d (q - 16)
  q4_k,  ///< 256 values: f16 d and dmin, 8 pairs of 6-bit s and t, 128 bytes; value = d s q - dmin t
  q6_k,  ///< 256 values: 128 bytes of low, 64 of high bits, 16 int8 s, f16 d; value = d s (q - 32)
};
inline constexpr std::size_t num_weight_types = 9;

/// Values and bytes of the smallest piece of a row that stands for itself.
struct BlockSize {
  std::size_t values;
  std::size_t bytes;
};
[[nodiscard]] constexpr BlockSize block_size(WeightType type)
{
  constexpr BlockSize sizes[num_weight_types] = {
    {1, 4}, {1, 2}, {1, 2}, {32, 34}, {32, 18}, {32, 20}, {32, 22}, {256, 144}, {256, 210}};
  return sizes[static_cast<std::size_t>(type)];
}

[[nodiscard]] constexpr bool has_blocks(WeightType type)
{
  return type >= WeightType::q8_0;
}

/// Bytes of `cols` values. **Pre** `cols` is a multiple of the block's values.
[[nodiscard]] constexpr std::size_t row_bytes(WeightType type, std::size_t cols)
{
  return cols / block_size(type).values * block_size(type).bytes;
}

}  // namespace llama
