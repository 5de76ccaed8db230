// SPDX-License-Identifier: Apache-2.0

/// \file Many rounded rows of activations times quantised weights, in AVX2.
///
/// Sixteen weight rows are decoded once for all tokens (avx2_panel.hpp).
///
/// 2 x 3 sums (sixteen weight rows, three tokens) stay in registers for a block; the pair of a token's activations
/// goes to all places. No sum ever crosses the places of a register.

#include "ops_avx2.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <vector>

#include "avx2_panel.hpp"

// Loops over registers are unrolled by a pragma: g++ at -O2 does not, and then the registers are memory.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace llama::avx2 {
namespace {

constexpr std::size_t panel_blocks = 16;  // at a time: 16 KiB, half of a first-level cache
constexpr std::size_t tile_tokens = 3;

inline __m256i pair_everywhere(std::int16_t const* from)
{
  std::int32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return _mm256_set1_epi32(pair);
}

/// Adds one block of a panel times `Tokens` rows to `sums` (Tokens, 16).
template <class Format, std::size_t Tokens>
inline void tile_block(Panel<std::int16_t> panel, RoundedView x, std::size_t b, float* sums)
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
    std::int16_t const* ws = panel.q + group * pairs * 2 * panel_rows;
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
      __m256 const d = _mm256_loadu_ps(panel.scales + group * panel_rows + half * wide);
      __m256 const m = _mm256_loadu_ps(panel.scales + 2 * panel_rows + half * wide);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < Tokens; ++t) {
        float* const at = sums + t * panel_rows + half * wide;
        __m256 const x_scale = _mm256_broadcast_ss(x.scales + b * x.step + t);
        __m256 sum = _mm256_fmadd_ps(
          _mm256_cvtepi32_ps(dot[t][half]), _mm256_mul_ps(d, x_scale), _mm256_loadu_ps(at));
        if constexpr (Format::offset) {
          sum = _mm256_fmadd_ps(m, _mm256_broadcast_ss(x.sums + b * x.step + t), sum);
        }
        _mm256_storeu_ps(at, sum);
      }
    }
  }
}

template <class Format, std::size_t Tokens>
inline void tile(
  Panel<std::int16_t> panel, std::size_t first, std::size_t blocks, RoundedView x, float* sums)
{
  for (std::size_t b = 0; b < blocks; ++b) {
    tile_block<Format, Tokens>(panel.from(b), x, first + b, sums);
  }
}

/// At most sixteen rows times `n` activation rows.
template <class Format>
void sixteen_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  alignas(32) static thread_local std::int16_t q[panel_blocks * panel_block_values];
  alignas(32) static thread_local float scales[panel_blocks * panel_block_scales];
  static thread_local std::vector<float> sums;
  sums.assign(n * panel_rows, 0.0f);
  Panel<std::int16_t> const panel{q, scales};
  for (std::size_t first = 0; first < x.blocks(); first += panel_blocks) {
    std::size_t const blocks = std::min(panel_blocks, x.blocks() - first);
    fill_panel<Format>(w, first, blocks, panel);
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
