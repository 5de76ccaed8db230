// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The block formats of GGUF, decoded by the book: the truth that faster code is tested against.
///
/// All of them are 32 whole numbers q with one or two scales and perhaps an offset:
///
///   value[i] = d[i / 16] * q[i] + m           q5_0, say:  | f16 d | 32 high bits | 32 nibbles |
///
/// The K formats pack eight such blocks into 256 values with scales that are themselves quantised.
/// Source: ggml-common.h and ggml-quants.c of the ggml repository.

#include <cstddef>
#include <cstdint>

#include "weight_type.hpp"

namespace llama {

/// The scales of one block of 32 values.
struct BlockScales {
  float d[2];  // of the first and the last 16 values
  float m;
};

/// One block of 32 values.
struct Block {
  std::int16_t q[32];
  BlockScales scales;
};

/// Decodes block `number` (values 32 * number and on) of the row that starts at `row`.
/// **Pre** `has_blocks(type)`.
void decode_block(WeightType type, std::byte const* row, std::size_t number, Block& out);

/// The scales of part `part` of the piece (`block_size(type)`) that starts at `from`.
[[nodiscard]] BlockScales block_scales(WeightType type, std::byte const* from, std::size_t part);

}  // namespace llama
