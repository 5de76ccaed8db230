// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Sixteen weight rows decoded once for many activation rows. What one multiply adds up, two words or four bytes,
/// lies together, so that it serves eight rows in an AVX2 register and all of them in an AVX-512 or AMX one:
///
///   panel[block][pair of columns][row] = {q, q}      panel[block][four columns][row] = {q, q, q, q}
///
/// For x86-64 only.

#include <type_traits>
#include <vector>

#include "avx2_blocks.hpp"
#include "ops_kernels.hpp"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace llama::avx2 {

constexpr std::size_t panel_rows = 2 * wide;
constexpr std::size_t panel_block_values = rounded_block * panel_rows;
constexpr std::size_t panel_block_scales = 3 * panel_rows;

/// Sixteen rows of weights as words (std::int16_t) or bytes (std::int8_t).
template <class Value>
struct Panel {
  Value* q;       // (blocks, columns / step, 16 rows, step), step = 4 / sizeof(Value)
  float* scales;  // (blocks, 3, 16 rows): d of both halves, m

  [[nodiscard]] Panel from(std::size_t block) const
  {
    return {q + block * panel_block_values, scales + block * panel_block_scales};
  }
};

/// Eight rows of eight times 32 bits become eight times 32 bits of eight rows, sixteen rows apart.
template <class Value>
inline void turn(__m256i const (&row)[wide], Value* out)
{
  constexpr std::size_t line = panel_rows * 4 / sizeof(Value);
  __m256i two[wide];
  __m256i four[wide];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < wide; i += 2) {
    two[i] = _mm256_unpacklo_epi32(row[i], row[i + 1]);
    two[i + 1] = _mm256_unpackhi_epi32(row[i], row[i + 1]);
  }
#pragma GCC unroll 2
  for (std::size_t i = 0; i < wide; i += 4) {
    four[i] = _mm256_unpacklo_epi64(two[i], two[i + 2]);
    four[i + 1] = _mm256_unpackhi_epi64(two[i], two[i + 2]);
    four[i + 2] = _mm256_unpacklo_epi64(two[i + 1], two[i + 3]);
    four[i + 3] = _mm256_unpackhi_epi64(two[i + 1], two[i + 3]);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    auto* near = reinterpret_cast<__m256i*>(out + i * line);
    auto* far = reinterpret_cast<__m256i*>(out + (i + 4) * line);
    _mm256_storeu_si256(near, _mm256_permute2x128_si256(four[i], four[i + 4], 0x20));
    _mm256_storeu_si256(far, _mm256_permute2x128_si256(four[i], four[i + 4], 0x31));
  }
}

/// 32 whole numbers as bytes, in order.
template <class Format>
inline __m256i bytes_of(std::byte const* from, std::size_t part)
{
  if constexpr (requires { Format::pairs; }) {
    __m256i const twice = _mm256_broadcastsi128_si256(bytes_at(from + Format::pairs));
    __m256i const shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    return _mm256_and_si256(_mm256_srlv_epi32(twice, shift), _mm256_set1_epi8(15));
  } else {
    Words const q = Format::words(from, part);
    return pack_bytes(q.low, q.high);
  }
}

/// Lays out blocks [first, first + blocks) of eight rows; `half` 0 or 1 says which eight of the panel.
template <class Format, class Value>
inline void fill_half(std::byte const* w,
                      std::size_t stride,
                      std::size_t first,
                      std::size_t blocks,
                      std::size_t half,
                      Panel<Value> panel)
{
  constexpr BlockSize size = block_size(Format::type);
  constexpr std::size_t parts = size.values / rounded_block;
  for (std::size_t b = 0; b < blocks; ++b) {
    std::byte const* from = w + (first + b) / parts * size.bytes;
    std::size_t const part = (first + b) % parts;
    Panel<Value> const to = panel.from(b);
    Value* const out = to.q + half * wide * 4 / sizeof(Value);
    __m256i low[wide];
    __m256i high[wide];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < wide; ++r) {
      if constexpr (std::is_same_v<Value, std::int8_t>) {
        low[r] = bytes_of<Format>(from + r * stride, part);
      } else {
        Words const q = Format::words(from + r * stride, part);
        low[r] = q.low;
        high[r] = q.high;
      }
    }
    turn(low, out);
    if constexpr (std::is_same_v<Value, std::int16_t>) {
      turn(high, out + panel_block_values / 2);
    }
    Scales const scales = Format::scales(from, stride, part);
    _mm256_storeu_ps(to.scales + half * wide, scales.d[0]);
    _mm256_storeu_ps(to.scales + panel_rows + half * wide, scales.d[1]);
    _mm256_storeu_ps(to.scales + 2 * panel_rows + half * wide, scales.m);
  }
}

/// Lays out blocks [first, first + blocks) of at most sixteen rows. What stands for the rows that are missing means
/// nothing.
template <class Format, class Value>
inline void fill_panel(EncodedRows w, std::size_t first, std::size_t blocks, Panel<Value> panel)
{
  std::size_t const stride = row_bytes(Format::type, w.cols);
  for (std::size_t r = 0; r < w.rows; r += wide) {
    std::byte const* from = w.at + r * stride;
    static thread_local std::vector<std::byte> last;
    if (r + wide > w.rows) {  // bytes of the file's end must not be read past
      last.assign(from, w.at + w.rows * stride);
      last.resize(wide * stride);
      from = last.data();
    }
    fill_half<Format>(from, stride, first, blocks, r / wide, panel);
  }
}

}  // namespace llama::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
