// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include "half.hpp"

namespace llama {
namespace {

int byte_at(std::byte const* from)
{
  return std::to_integer<int>(*from);
}

/// The nibbles of 16 bytes: the low ones are the first 16 values.
void nibbles(std::byte const* pairs, Block& out)
{
  for (std::size_t i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int16_t>(byte_at(pairs + i) & 15);
    out.q[i + 16] = static_cast<std::int16_t>(byte_at(pairs + i) >> 4);
  }
}

void decode_q5_0(std::byte const* from, Block& out)
{
  auto const high = load<std::uint32_t>(from + 2);
  nibbles(from + 6, out);
  for (std::size_t i = 0; i < 32; ++i) {
    out.q[i] = static_cast<std::int16_t>((out.q[i] | static_cast<int>(high >> i & 1u) << 4) - 16);
  }
}

void decode_q4_k(std::byte const* from, std::size_t part, Block& out)
{
  std::byte const* pairs = from + 16 + part / 2 * 32;
  for (std::size_t i = 0; i < 32; ++i) {
    out.q[i] = static_cast<std::int16_t>(byte_at(pairs + i) >> (part % 2 * 4) & 15);
  }
}

/// Four rows of 32 in each half: two share their bytes of low nibbles, all four their bytes of high bits.
void decode_q6_k(std::byte const* from, std::size_t part, Block& out)
{
  std::size_t const half = part / 4;
  std::size_t const row = part % 4;
  std::byte const* low = from + half * 64 + row % 2 * 32;
  std::byte const* high = from + 128 + half * 32;
  for (std::size_t i = 0; i < 32; ++i) {
    int const four = byte_at(low + i) >> (row / 2 * 4) & 15;
    int const two = byte_at(high + i) >> (row * 2) & 3;
    out.q[i] = static_cast<std::int16_t>((four | two << 4) - 32);
  }
}

/// Eight 6-bit scales and eight 6-bit offsets in 12 bytes: the first four of each lie whole in bytes 0-3 and
/// 4-7; of the last four the low nibbles lie in bytes 8-11 and the high two bits atop the first four.
BlockScales scales_q4_k(std::byte const* from, std::size_t part)
{
  std::byte const* packed = from + 4;
  int scale = byte_at(packed + part % 4) & 63;
  int offset = byte_at(packed + 4 + part % 4) & 63;
  if (part >= 4) {
    scale = (byte_at(packed + 4 + part) & 15) | byte_at(packed + part - 4) >> 6 << 4;
    offset = byte_at(packed + 4 + part) >> 4 | byte_at(packed + part) >> 6 << 4;
  }
  float const d = float_of_half(load<std::uint16_t>(from)) * static_cast<float>(scale);
  float const m = float_of_half(load<std::uint16_t>(from + 2)) * static_cast<float>(offset);
  return {{d, d}, -m};
}

BlockScales scales_q6_k(std::byte const* from, std::size_t part)
{
  float const d = float_of_half(load<std::uint16_t>(from + 208));
  auto const scale = [&](std::size_t i) {
    return static_cast<float>(load<std::int8_t>(from + 192 + part * 2 + i));
  };
  return {{d * scale(0), d * scale(1)}, 0.0f};
}

}  // namespace

BlockScales block_scales(WeightType type, std::byte const* from, std::size_t part)
{
  if (type == WeightType::q4_k) {
    return scales_q4_k(from, part);
  }
  if (type == WeightType::q6_k) {
    return scales_q6_k(from, part);
  }
  float const d = float_of_half(load<std::uint16_t>(from));
  if (type == WeightType::q4_0) {
    return {{d, d}, -8.0f * d};  // d (q - 8): the offset of a Q4_1, and exact
  }
  bool const offset = type == WeightType::q4_1;
  return {{d, d}, offset ? float_of_half(load<std::uint16_t>(from + 2)) : 0.0f};
}

void decode_block(WeightType type, std::byte const* row, std::size_t number, Block& out)
{
  BlockSize const size = block_size(type);
  std::size_t const parts = size.values / 32;
  std::byte const* from = row + number / parts * size.bytes;
  std::size_t const part = number % parts;
  out.scales = block_scales(type, from, part);
  if (type == WeightType::q4_k) {
    decode_q4_k(from, part, out);
  } else if (type == WeightType::q6_k) {
    decode_q6_k(from, part, out);
  } else if (type == WeightType::q5_0) {
    decode_q5_0(from, out);
  } else if (type == WeightType::q4_1) {
    nibbles(from + 4, out);
  } else if (type == WeightType::q4_0) {
    nibbles(from + 2, out);
  } else {
    for (std::size_t i = 0; i < 32; ++i) {
      out.q[i] = load<std::int8_t>(from + 2 + i);
    }
  }
}

}  // namespace llama
