// SPDX-License-Identifier: Apache-2.0

/// \file Many rounded rows of activations times quantised weights, in AVX-512 with VNNI.
///
/// One instruction multiplies a pair of columns of sixteen weight rows (avx2_panel.hpp) by that pair of one token and
/// adds it up. Twelve tokens hide its latency; their sums stay in registers for all blocks of a panel. Sums of a block
/// are exact and those over blocks run in the order of rounded_one_avx2.cpp, so the bits are the same.

#include "ops_avx512.hpp"

#if defined(__x86_64__)

#include <algorithm>

#include "avx2_panel.hpp"

// Loops over registers are unrolled by a pragma: g++ at -O2 does not, and then the registers are memory.
#if defined(__clang__)
#pragma clang attribute push(                                                             \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))), \
  apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#endif

namespace llama::avx512 {
namespace {

using avx2::Panel;
using avx2::panel_block_scales;
using avx2::panel_block_values;
using avx2::panel_rows;

constexpr std::size_t panel_blocks = 24;  // at a time: 24 KiB, half of a first-level cache
constexpr std::size_t tile_tokens = 12;

/// Without a value that is undefined, which g++ 12 warns of in the plain conversion.
inline __m512 floats_of(__m512i whole)
{
  return _mm512_maskz_cvtepi32_ps(0xffff, whole);
}

inline __m512i pair_everywhere(std::int16_t const* from)
{
  std::int32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return _mm512_set1_epi32(pair);
}

/// Blocks [first, first + blocks) of a panel times `Tokens` rows: added to y, or put there by the first ones.
template <bool Halves, bool Offset, std::size_t Tokens>
void tile(Panel<std::int16_t> panel,
          std::size_t first,
          std::size_t blocks,
          RoundedView const& x,
          OutRows y,
          __mmask16 rows)
{
  constexpr std::size_t groups = Halves ? 2 : 1;
  constexpr std::size_t pairs = 16 / groups;
  __m512 sum[Tokens];
#pragma GCC unroll 12
  for (std::size_t t = 0; t < Tokens; ++t) {
    sum[t] = first == 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(rows, y.at + t * y.stride);
  }
  std::int16_t const* ws = panel.q;
  float const* scales = panel.scales;
  for (std::size_t b = first; b < first + blocks; ++b, scales += panel_block_scales) {
    std::int16_t const* xs = x.q + b * rounded_block;
#pragma GCC unroll 2
    for (std::size_t group = 0; group < groups; ++group) {
      __m512i dot[Tokens];
#pragma GCC unroll 12
      for (std::size_t t = 0; t < Tokens; ++t) {
        dot[t] = _mm512_setzero_si512();
      }
#pragma GCC unroll 16
      for (std::size_t pair = 0; pair < pairs; ++pair, ws += 2 * panel_rows, xs += 2) {
        __m512i const w = _mm512_loadu_si512(ws);
#pragma GCC unroll 12
        for (std::size_t t = 0; t < Tokens; ++t) {
          dot[t] = _mm512_dpwssd_epi32(dot[t], w, pair_everywhere(xs + t * x.cols));
        }
      }
      __m512 const d = _mm512_loadu_ps(scales + group * panel_rows);
#pragma GCC unroll 12
      for (std::size_t t = 0; t < Tokens; ++t) {
        __m512 const scale = _mm512_mul_ps(d, _mm512_set1_ps(x.scales[b * x.step + t]));
        sum[t] = _mm512_fmadd_ps(floats_of(dot[t]), scale, sum[t]);
      }
    }
    if constexpr (Offset) {
      __m512 const m = _mm512_loadu_ps(scales + 2 * panel_rows);
#pragma GCC unroll 12
      for (std::size_t t = 0; t < Tokens; ++t) {
        sum[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(x.sums[b * x.step + t]), sum[t]);
      }
    }
  }
#pragma GCC unroll 12
  for (std::size_t t = 0; t < Tokens; ++t) {
    _mm512_mask_storeu_ps(y.at + t * y.stride, rows, sum[t]);
  }
}

/// At most sixteen rows times `n` activation rows.
template <class Format>
void sixteen_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  alignas(64) static thread_local std::int16_t q[panel_blocks * panel_block_values];
  alignas(64) static thread_local float scales[panel_blocks * panel_block_scales];
  Panel<std::int16_t> const panel{q, scales};
  auto const rows = static_cast<__mmask16>((1U << w.rows) - 1);
  for (std::size_t first = 0; first < x.blocks(); first += panel_blocks) {
    std::size_t const blocks = std::min(panel_blocks, x.blocks() - first);
    avx2::fill_panel<Format>(w, first, blocks, panel);
    std::size_t t = 0;
    auto const some = [&]<std::size_t Tokens>(std::integral_constant<std::size_t, Tokens>) {
      for (; t + Tokens <= n; t += Tokens) {
        OutRows const out{y.at + t * y.stride, y.stride};
        tile<Format::halves, Format::offset, Tokens>(panel, first, blocks, x.from(t), out, rows);
      }
    };
    some(std::integral_constant<std::size_t, tile_tokens>{});
    some(std::integral_constant<std::size_t, 4>{});
    some(std::integral_constant<std::size_t, 1>{});
  }
}

}  // namespace

void rounded_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  std::size_t const stride = row_bytes(w.type, w.cols);
  avx2::with_format(w.type, [&]<class Format>(Format) {
    for (std::size_t r = 0; r < w.rows; r += panel_rows) {
      std::size_t const rows = std::min(panel_rows, w.rows - r);
      sixteen_times_many<Format>(
        {w.type, w.at + r * stride, rows, w.cols}, x, n, {y.at + r, y.stride});
    }
  });
}

}  // namespace llama::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
