// SPDX-License-Identifier: Apache-2.0

/// \file Many rounded rows of activations times quantised weights, in AVX2.
///
/// Sixteen weight rows are decoded once for all tokens and laid out so that one multiply serves eight of them:
///
///   panel[block][pair of columns][row] = {q, q'}
///
/// 2 x 3 sums (sixteen weight rows, three tokens) stay in registers for a block; the pair of a token's activations
/// goes to all places. No sum ever crosses the places of a register.

#include "ops_avx2.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <vector>

#include "avx2_blocks.hpp"

// Loops over registers are unrolled by a pragma: g++ at -O2 does not, and then the registers are memory.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace llama::avx2 {
namespace {

constexpr std::size_t panel_rows = 2 * wide;
constexpr std::size_t panel_blocks = 16;  // at a time: 16 KiB, half of a first-level cache
constexpr std::size_t tile_tokens = 3;

inline __m256i pair_everywhere(std::int16_t const* from)
{
  std::int32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return _mm256_set1_epi32(pair);
}

/// Sixteen rows of weights, laid out for many activation rows.
struct Panel {
  std::int16_t* q;  // (blocks, 16 pairs, 16 rows, 2)
  float* scales;    // (blocks, 3, 16 rows): d of both halves, m
};
constexpr std::size_t panel_block_words = rounded_block * panel_rows;
constexpr std::size_t panel_block_scales = 3 * panel_rows;

/// Eight rows of eight pairs become eight pairs of eight rows, `panel_rows` pairs apart.
inline void turn(__m256i const (&row)[wide], std::int16_t* out)
{
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
    auto* near = reinterpret_cast<__m256i*>(out + i * 2 * panel_rows);
    auto* far = reinterpret_cast<__m256i*>(out + (i + 4) * 2 * panel_rows);
    _mm256_storeu_si256(near, _mm256_permute2x128_si256(four[i], four[i + 4], 0x20));
    _mm256_storeu_si256(far, _mm256_permute2x128_si256(four[i], four[i + 4], 0x31));
  }
}

/// Lays out blocks [first, first + blocks) of eight rows; `half` 0 or 1 says which eight of the panel.
template <class Format>
inline void fill(std::byte const* w,
                 std::size_t stride,
                 std::size_t first,
                 std::size_t blocks,
                 std::size_t half,
                 Panel panel)
{
  constexpr BlockSize size = block_size(Format::type);
  constexpr std::size_t parts = size.values / rounded_block;
  for (std::size_t b = 0; b < blocks; ++b) {
    std::byte const* from = w + (first + b) / parts * size.bytes;
    std::size_t const part = (first + b) % parts;
    __m256i low[wide];
    __m256i high[wide];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < wide; ++r) {
      Words const q = Format::words(from + r * stride, part);
      low[r] = q.low;
      high[r] = q.high;
    }
    std::int16_t* out = panel.q + b * panel_block_words + half * 2 * wide;
    turn(low, out);
    turn(high, out + wide * 2 * panel_rows);
    Scales const scales = Format::scales(from, stride, part);
    float* to = panel.scales + b * panel_block_scales + half * wide;
    _mm256_storeu_ps(to, scales.d[0]);
    _mm256_storeu_ps(to + panel_rows, scales.d[1]);
    _mm256_storeu_ps(to + 2 * panel_rows, scales.m);
  }
}

/// Adds one block of a panel times `Tokens` rows to `sums` (Tokens, 16).
template <class Format, std::size_t Tokens>
inline void tile_block(
  std::int16_t const* q, float const* scales, RoundedView x, std::size_t b, float* sums)
{
  constexpr std::size_t groups = Format::halves ? 2 : 1;
  constexpr std::size_t pairs = 16 / groups;
#pragma GCC unroll 2
  for (std::size_t group = 0; group < groups; ++group) {
    __m256i dot[Tokens][2];
#pragma GCC unroll 4
    for (std::size_t t = 0; t < Tokens; ++t) {
      dot[t][0] = dot[t][1] = _mm256_setzero_si256();
    }
    std::int16_t const* xs = x.q + b * rounded_block + group * 16;
    std::int16_t const* ws = q + group * pairs * 2 * panel_rows;
#pragma GCC unroll 4
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      __m256i const w0 = words_at(ws + pair * 2 * panel_rows);
      __m256i const w1 = words_at(ws + pair * 2 * panel_rows + 2 * wide);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < Tokens; ++t) {
        __m256i const both = pair_everywhere(xs + t * x.cols + 2 * pair);
        dot[t][0] = _mm256_add_epi32(dot[t][0], _mm256_madd_epi16(w0, both));
        dot[t][1] = _mm256_add_epi32(dot[t][1], _mm256_madd_epi16(w1, both));
      }
    }
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      __m256 const d = _mm256_loadu_ps(scales + group * panel_rows + half * wide);
      __m256 const m = _mm256_loadu_ps(scales + 2 * panel_rows + half * wide);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < Tokens; ++t) {
        float* const at = sums + t * panel_rows + half * wide;
        __m256 const x_scale = _mm256_broadcast_ss(x.scales + t * x.blocks() + b);
        __m256 sum = _mm256_fmadd_ps(
          _mm256_cvtepi32_ps(dot[t][half]), _mm256_mul_ps(d, x_scale), _mm256_loadu_ps(at));
        if constexpr (Format::offset) {
          sum = _mm256_fmadd_ps(m, _mm256_broadcast_ss(x.sums + t * x.blocks() + b), sum);
        }
        _mm256_storeu_ps(at, sum);
      }
    }
  }
}

template <class Format, std::size_t Tokens>
inline void tile(Panel panel, std::size_t first, std::size_t blocks, RoundedView x, float* sums)
{
  for (std::size_t b = 0; b < blocks; ++b) {
    tile_block<Format, Tokens>(
      panel.q + b * panel_block_words, panel.scales + b * panel_block_scales, x, first + b, sums);
  }
}

/// At most sixteen rows times `n` activation rows.
template <class Format>
void sixteen_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  std::size_t const stride = row_bytes(Format::type, w.cols);
  alignas(32) static thread_local std::int16_t q[panel_blocks * panel_block_words];
  alignas(32) static thread_local float scales[panel_blocks * panel_block_scales];
  static thread_local std::vector<std::byte> last;
  static thread_local std::vector<float> sums;
  sums.assign(n * panel_rows, 0.0f);
  Panel const panel{q, scales};
  std::size_t const rest = w.rows % wide;
  if (rest != 0) {  // the last rows of a matrix: zeros stand for those that are missing
    std::byte const* from = w.at + (w.rows - rest) * stride;
    last.assign(from, from + rest * stride);
    last.resize(wide * stride);
  }
  for (std::size_t first = 0; first < x.blocks(); first += panel_blocks) {
    std::size_t const blocks = std::min(panel_blocks, x.blocks() - first);
    for (std::size_t r = 0; r < w.rows; r += wide) {
      std::byte const* from = r + wide <= w.rows ? w.at + r * stride : last.data();
      fill<Format>(from, stride, first, blocks, r / wide, panel);
    }
    std::size_t t = 0;
    for (; t + tile_tokens <= n; t += tile_tokens) {
      tile<Format, tile_tokens>(panel, first, blocks, x.from(t), &sums[t * panel_rows]);
    }
    for (; t < n; ++t) {
      tile<Format, 1>(panel, first, blocks, x.from(t), &sums[t * panel_rows]);
    }
  }
  for (std::size_t t = 0; t < n; ++t) {
    std::copy_n(&sums[t * panel_rows], w.rows, y.at + t * y.stride);
  }
}

}  // namespace

void rounded_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  std::size_t const stride = row_bytes(w.type, w.cols);
  with_format(w.type, [&]<class Format>(Format) {
    for (std::size_t r = 0; r < w.rows; r += panel_rows) {
      std::size_t const rows = std::min(panel_rows, w.rows - r);
      sixteen_times_many<Format>(
        {w.type, w.at + r * stride, rows, w.cols}, x, n, {y.at + r, y.stride});
    }
  });
}

}  // namespace llama::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
