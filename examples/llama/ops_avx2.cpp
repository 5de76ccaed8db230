// SPDX-License-Identifier: Apache-2.0
#include "ops_avx2.hpp"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "avx2_blocks.hpp"

// Loops over registers are unrolled by a pragma: g++ at -O2 does not, and then the registers are memory.
// Only what lies between push and pop may use AVX2: the rest of the program must run anywhere. Includes
// stay outside, so that no inline function of a header is compiled for AVX2.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace llama::avx2 {
namespace {

inline float sum_of(__m256 v)
{
  __m128 const four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 const two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// The first `count` of eight values of `from`, zeros after them.
inline __m256 masked_at(float const* from, std::size_t count)
{
  __m256i const lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i const mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  return _mm256_maskload_ps(from, mask);
}

/// Eight values of a row that start at `i`, for the types without blocks.
template <WeightType Type>
inline __m256 eight(std::byte const* row, std::size_t i)
{
  if constexpr (Type == WeightType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<float const*>(row + 4 * i));
  } else if constexpr (Type == WeightType::f16) {
    return _mm256_cvtph_ps(bytes_at(row + 2 * i));
  } else {
    __m256i const wide = _mm256_cvtepu16_epi32(bytes_at(row + 2 * i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
}

template <WeightType Type>
constexpr std::size_t value_bytes = Type == WeightType::f32 ? 4 : 2;

/// The values after the last whole eight of a row, zeros after them.
template <WeightType Type>
inline __m256 rest(std::byte const* row, std::size_t cols)
{
  std::size_t const from = cols & ~std::size_t{7};
  alignas(32) std::byte buffer[32] = {};
  __builtin_memcpy(buffer, row + from * value_bytes<Type>, (cols - from) * value_bytes<Type>);
  return eight<Type>(buffer, 0);
}

template <WeightType Type>
void decode_plain(std::byte const* row, std::size_t cols, float* out)
{
  std::size_t i = 0;
  for (; i + 8 <= cols; i += 8) {
    _mm256_storeu_ps(out + i, eight<Type>(row, i));
  }
  if (i < cols) {
    _mm256_storeu_ps(out + i, rest<Type>(row, cols));
  }
}

/// Sixteen whole numbers times d plus m.
inline void scale(__m256i q, float d, float m, float* out)
{
  __m256i const first = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(q));
  __m256i const second = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(q, 1));
  __m256 const ds = _mm256_set1_ps(d);
  __m256 const ms = _mm256_set1_ps(m);
  _mm256_storeu_ps(out, _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), ds, ms));
  _mm256_storeu_ps(out + 8, _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), ds, ms));
}

template <class Format>
void decode_blocks(std::byte const* row, std::size_t cols, float* out)
{
  constexpr BlockSize size = block_size(Format::type);
  for (std::size_t i = 0; i < cols; row += size.bytes) {
    for (std::size_t part = 0; part < size.values / 32; ++part, i += 32) {
      BlockScales const scales = block_scales(Format::type, row, part);
      Words const q = Format::words(row, part);
      scale(q.low, scales.d[0], scales.m, out + i);
      scale(q.high, scales.d[1], scales.m, out + i + 16);
    }
  }
}

/// `Rows` weight rows times `Tokens` activation rows: 4 x 3 sums fill the registers.
template <std::size_t Rows, std::size_t Tokens>
inline void corner(FloatRows w, std::size_t cols, FloatRows x, OutRows y)
{
  __m256 sum[Rows][Tokens];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (std::size_t t = 0; t < Tokens; ++t) {
      sum[r][t] = _mm256_setzero_ps();
    }
  }
  std::size_t i = 0;
  for (; i + 8 <= cols; i += 8) {
    __m256 xs[Tokens];
#pragma GCC unroll 4
    for (std::size_t t = 0; t < Tokens; ++t) {
      xs[t] = _mm256_loadu_ps(x.at + t * x.stride + i);
    }
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Rows; ++r) {
      __m256 const ws = _mm256_loadu_ps(w.at + r * w.stride + i);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < Tokens; ++t) {
        sum[r][t] = _mm256_fmadd_ps(ws, xs[t], sum[r][t]);
      }
    }
  }
  if (i < cols) {
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Rows; ++r) {
      __m256 const ws = _mm256_loadu_ps(w.at + r * w.stride + i);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < Tokens; ++t) {
        sum[r][t] = _mm256_fmadd_ps(ws, masked_at(x.at + t * x.stride + i, cols - i), sum[r][t]);
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t t = 0; t < Tokens; ++t) {
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Rows; ++r) {
      y.at[t * y.stride + r] = sum_of(sum[r][t]);
    }
  }
}

template <std::size_t Rows>
inline void strip(FloatRows w, std::size_t cols, FloatRows x, std::size_t n, OutRows y)
{
  auto const out = [&](std::size_t t) { return OutRows{y.at + t * y.stride, y.stride}; };
  std::size_t t = 0;
  for (; t + 3 <= n; t += 3) {
    corner<Rows, 3>(w, cols, x.from(t), out(t));
  }
  if (n - t == 2) {
    corner<Rows, 2>(w, cols, x.from(t), out(t));
  } else if (n - t == 1) {
    corner<Rows, 1>(w, cols, x.from(t), out(t));
  }
}

/// e^v to within two units in the last place: 2^n times a polynomial on [-ln(2)/2, ln(2)/2].
inline __m256 exp_of(__m256 v)
{
  v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-87.0f)), _mm256_set1_ps(88.0f));
  __m256 const n = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 f = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), v);  // ln 2 in two parts
  f = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), f);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(f, f), _mm256_add_ps(f, _mm256_set1_ps(1.0f)));
  __m256i const power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}

inline __m256 swiglu_of(__m256 gate, __m256 up)
{
  __m256 const one = _mm256_set1_ps(1.0f);
  __m256 const e = exp_of(_mm256_sub_ps(_mm256_setzero_ps(), gate));
  return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(one, e)), up);
}

}  // namespace

void decode(WeightType type, std::byte const* row, std::size_t cols, float* out)
{
  switch (type) {
    case WeightType::f32:
      return decode_plain<WeightType::f32>(row, cols, out);
    case WeightType::f16:
      return decode_plain<WeightType::f16>(row, cols, out);
    case WeightType::bf16:
      return decode_plain<WeightType::bf16>(row, cols, out);
    default:
      return with_format(type,
                         [&]<class Format>(Format) { decode_blocks<Format>(row, cols, out); });
  }
}

/// Four weight rows stay in the first-level cache, a block of activations in the second.
void times(FloatRows w, std::size_t rows, std::size_t cols, FloatRows x, std::size_t n, OutRows y)
{
  constexpr std::size_t block_tokens = 48;
  for (std::size_t t = 0; t < n; t += block_tokens) {
    std::size_t const tokens = std::min(block_tokens, n - t);
    float* const ys = y.at + t * y.stride;
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      strip<4>(w.from(r), cols, x.from(t), tokens, {ys + r, y.stride});
    }
    for (; r < rows; ++r) {
      strip<1>(w.from(r), cols, x.from(t), tokens, {ys + r, y.stride});
    }
  }
}

/// The four sums of the portable loop are the four places of a register, and a product of two floats is exact in double:
/// the same bits.
void rms_norm(float const* x, float const* gain, std::size_t width, float epsilon, float* out)
{
  __m256d squares = _mm256_setzero_pd();
  std::size_t i = 0;
  for (; i + 4 <= width; i += 4) {
    __m256d const four = _mm256_cvtps_pd(_mm_loadu_ps(x + i));
    squares = _mm256_fmadd_pd(four, four, squares);
  }
  alignas(32) double sum[4];
  _mm256_store_pd(sum, squares);
  for (; i < width; ++i) {
    sum[i % 4] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  double const mean = ((sum[0] + sum[1]) + (sum[2] + sum[3])) / static_cast<double>(width);
  auto const scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
  for (i = 0; i + 8 <= width; i += 8) {
    __m256 const scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(gain + i)));
  }
  for (; i < width; ++i) {
    out[i] = x[i] * scale * gain[i];
  }
}

void add(float* x, float const* y, std::size_t width)
{
  std::size_t i = 0;
  for (; i + 8 <= width; i += 8) {
    _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  }
  for (; i < width; ++i) {
    x[i] += y[i];
  }
}

void swiglu(float* gate, float const* up, std::size_t width)
{
  std::size_t i = 0;
  for (; i + 8 <= width; i += 8) {
    _mm256_storeu_ps(gate + i, swiglu_of(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  }
  if (i < width) {
    alignas(32) float last[8];
    _mm256_store_ps(last, swiglu_of(masked_at(gate + i, width - i), masked_at(up + i, width - i)));
    __builtin_memcpy(gate + i, last, (width - i) * sizeof(float));
  }
}

}  // namespace llama::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace llama {
namespace {

bool machine_has_avx2()
{
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  // clang 14 has no name for F16C in __builtin_cpu_supports.
  bool const f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

}  // namespace

Kernels const* avx2_kernels()
{
  static constexpr Kernels table{"avx2",
                                 avx2::decode,
                                 avx2::times,
                                 avx2::round,
                                 avx2::rounded_times_one,
                                 avx2::rounded_times_many,
                                 avx2::rms_norm,
                                 avx2::add,
                                 avx2::swiglu};
  static bool const usable = machine_has_avx2();
  return usable ? &table : nullptr;
}

}  // namespace llama

#else

namespace llama {
Kernels const* avx2_kernels()
{
  return nullptr;
}
}  // namespace llama

#endif
