// SPDX-License-Identifier: Apache-2.0
#include "ops_kernels.hpp"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <type_traits>

// Loops over registers are unrolled by a pragma: g++ at -O2 does not, and then the registers are memory.
// Only what lies between push and pop may use AVX2: the rest of the program must run anywhere. Includes
// stay outside, so that no inline function of a header is compiled for AVX2.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace llama {
namespace {

inline float sum_of(__m256 v)
{
  __m128 const four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 const two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// The one or two halves at the head of a block, as floats in the low places.
template <class Bits>
inline __m128 halves_at(std::byte const* from)
{
  Bits bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return _mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(bits)));
}

inline __m128i half_bytes_at(std::byte const* from)
{
  return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
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
    return _mm256_cvtph_ps(half_bytes_at(row + 2 * i));
  } else {
    __m256i const wide = _mm256_cvtepu16_epi32(half_bytes_at(row + 2 * i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
}

/// The 32 values of a block, eight at a time.
template <WeightType Type>
inline void block(std::byte const* from, __m256 (&out)[4])
{
  constexpr bool lowest = Type == WeightType::q4_1;
  using Halves = std::conditional_t<lowest, std::uint32_t, std::uint16_t>;
  __m128 const head = halves_at<Halves>(from);
  __m256 const d = _mm256_broadcastss_ps(head);
  if constexpr (Type == WeightType::q8_0) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) {
      __m128i const q = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(from + 2 + 8 * k));
      out[k] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
    }
  } else {
    __m256 const m = _mm256_broadcastss_ps(_mm_movehdup_ps(head));
    __m128i const pairs = half_bytes_at(from + (lowest ? 4 : 2));
    __m128i const nibble = _mm_set1_epi8(15);
    __m128i const low = _mm_and_si128(pairs, nibble);
    __m128i const high = _mm_and_si128(_mm_srli_epi16(pairs, 4), nibble);
    __m128i const q[4] = {low, _mm_srli_si128(low, 8), high, _mm_srli_si128(high, 8)};
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) {
      __m256i const wide = _mm256_cvtepu8_epi32(q[k]);
      if constexpr (lowest) {
        out[k] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(wide), m);
      } else {
        __m256i const centred = _mm256_sub_epi32(wide, _mm256_set1_epi32(8));
        out[k] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(centred));
      }
    }
  }
}

template <WeightType Type>
constexpr bool has_blocks =
  Type == WeightType::q8_0 || Type == WeightType::q4_0 || Type == WeightType::q4_1;

template <WeightType Type>
constexpr std::size_t block_bytes = Type == WeightType::q8_0   ? q8_0_bytes
                                    : Type == WeightType::q4_0 ? q4_0_bytes
                                                               : q4_1_bytes;

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
void decode_row_as(std::byte const* row, std::size_t cols, float* out)
{
  if constexpr (has_blocks<Type>) {
    for (std::size_t i = 0; i < cols; i += block_values, row += block_bytes<Type>) {
      __m256 values[4];
      block<Type>(row, values);
#pragma GCC unroll 4
      for (std::size_t k = 0; k < 4; ++k) {
        _mm256_storeu_ps(out + i + 8 * k, values[k]);
      }
    }
  } else {
    std::size_t i = 0;
    for (; i + 8 <= cols; i += 8) {
      _mm256_storeu_ps(out + i, eight<Type>(row, i));
    }
    if (i < cols) {
      _mm256_storeu_ps(out + i, rest<Type>(row, cols));
    }
  }
}

/// y[r] = row r . x for `Rows` rows at once: their sums are independent, which hides the latency of each.
template <WeightType Type, std::size_t Rows>
inline void rows_times_one(
  std::byte const* w, std::size_t stride, std::size_t cols, float const* x, float* y)
{
  __m256 sum[Rows];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < Rows; ++r) {
    sum[r] = _mm256_setzero_ps();
  }
  if constexpr (has_blocks<Type>) {
    for (std::size_t i = 0, at = 0; i < cols; i += block_values, at += block_bytes<Type>) {
      __m256 const x0 = _mm256_loadu_ps(x + i);
      __m256 const x1 = _mm256_loadu_ps(x + i + 8);
      __m256 const x2 = _mm256_loadu_ps(x + i + 16);
      __m256 const x3 = _mm256_loadu_ps(x + i + 24);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        __m256 values[4];
        block<Type>(w + r * stride + at, values);
        sum[r] = _mm256_fmadd_ps(values[0], x0, sum[r]);
        sum[r] = _mm256_fmadd_ps(values[1], x1, sum[r]);
        sum[r] = _mm256_fmadd_ps(values[2], x2, sum[r]);
        sum[r] = _mm256_fmadd_ps(values[3], x3, sum[r]);
      }
    }
  } else {
    std::size_t i = 0;
    for (; i + 8 <= cols; i += 8) {
      __m256 const x0 = _mm256_loadu_ps(x + i);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        sum[r] = _mm256_fmadd_ps(eight<Type>(w + r * stride, i), x0, sum[r]);
      }
    }
    if (i < cols) {
      __m256 const x0 = masked_at(x + i, cols - i);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        sum[r] = _mm256_fmadd_ps(rest<Type>(w + r * stride, cols), x0, sum[r]);
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < Rows; ++r) {
    y[r] = sum_of(sum[r]);
  }
}

template <WeightType Type>
void times_one_as(std::byte const* w, std::size_t rows, std::size_t cols, float const* x, float* y)
{
  std::size_t const stride =
    has_blocks<Type> ? cols / block_values * block_bytes<Type> : cols * value_bytes<Type>;
  std::size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    rows_times_one<Type, 4>(w + r * stride, stride, cols, x, y + r);
  }
  for (; r < rows; ++r) {
    rows_times_one<Type, 1>(w + r * stride, stride, cols, x, y + r);
  }
}

void times_one(
  WeightType type, std::byte const* w, std::size_t rows, std::size_t cols, float const* x, float* y)
{
  constexpr decltype(&times_one_as<WeightType::f32>) by_type[] = {times_one_as<WeightType::f32>,
                                                                  times_one_as<WeightType::f16>,
                                                                  times_one_as<WeightType::bf16>,
                                                                  times_one_as<WeightType::q8_0>,
                                                                  times_one_as<WeightType::q4_0>,
                                                                  times_one_as<WeightType::q4_1>};
  by_type[static_cast<std::size_t>(type)](w, rows, cols, x, y);
}

void decode(WeightType type, std::byte const* row, std::size_t cols, float* out)
{
  constexpr decltype(&decode_row_as<WeightType::f32>) by_type[] = {decode_row_as<WeightType::f32>,
                                                                   decode_row_as<WeightType::f16>,
                                                                   decode_row_as<WeightType::bf16>,
                                                                   decode_row_as<WeightType::q8_0>,
                                                                   decode_row_as<WeightType::q4_0>,
                                                                   decode_row_as<WeightType::q4_1>};
  by_type[static_cast<std::size_t>(type)](row, cols, out);
}

/// `Rows` weight rows times `Tokens` activation rows: 4 x 3 sums fill the registers.
template <std::size_t Rows, std::size_t Tokens>
inline void corner(FloatRows w, std::size_t cols, FloatRows x, float* y, std::size_t y_stride)
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
      y[t * y_stride + r] = sum_of(sum[r][t]);
    }
  }
}

template <std::size_t Rows>
inline void strip(
  FloatRows w, std::size_t cols, FloatRows x, std::size_t n, float* y, std::size_t y_stride)
{
  std::size_t t = 0;
  for (; t + 3 <= n; t += 3) {
    corner<Rows, 3>(w, cols, x.from(t), y + t * y_stride, y_stride);
  }
  if (n - t == 2) {
    corner<Rows, 2>(w, cols, x.from(t), y + t * y_stride, y_stride);
  } else if (n - t == 1) {
    corner<Rows, 1>(w, cols, x.from(t), y + t * y_stride, y_stride);
  }
}

/// Four weight rows stay in the first-level cache, a block of activations in the second.
void times_many(FloatRows w,
                std::size_t rows,
                std::size_t cols,
                FloatRows x,
                std::size_t n,
                float* y,
                std::size_t y_stride)
{
  constexpr std::size_t block_tokens = 48;
  for (std::size_t t = 0; t < n; t += block_tokens) {
    std::size_t const tokens = std::min(block_tokens, n - t);
    float* const ys = y + t * y_stride;
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      strip<4>(w.from(r), cols, x.from(t), tokens, ys + r, y_stride);
    }
    for (; r < rows; ++r) {
      strip<1>(w.from(r), cols, x.from(t), tokens, ys + r, y_stride);
    }
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

void swiglu_wide(float* gate, float const* up, std::size_t width)
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

}  // namespace
}  // namespace llama

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
  static constexpr Kernels avx2{"avx2", decode, times_one, times_many, swiglu_wide};
  static bool const usable = machine_has_avx2();
  return usable ? &avx2 : nullptr;
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
