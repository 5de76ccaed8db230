// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)

#include <immintrin.h>

/// \file Sixteen floats in an AVX-512 register (F, BW, DQ, VL); members as in `vector_portable.hpp`.

#if defined(__clang__)
#pragma clang attribute push(                                                  \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
  apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

namespace kvcache::inline v0_1::detail::avx512::inline KVCACHE_FLAGS {

struct Vector {
  static constexpr std::size_t width = 16;
  static constexpr std::size_t most_together = 6;  // query rows that share a load
  static constexpr bool in_groups = true;          // see `block_grouped.inc`
  using Reg = __m512;

  template <class T>
  static constexpr bool even_odd = std::is_same_v<T, bfloat16>;

  [[gnu::always_inline]] static inline Reg all(float x) { return _mm512_set1_ps(x); }
  [[gnu::always_inline]] static inline Reg load(float const* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static inline Reg load_once(float const* p)
  {
    Reg r = load(p);    // NOLINT(misc-const-correctness): asm writes it
    asm("" : "+v"(r));  // see `avx2::Vector::load_once`
    return r;
  }
  /// A pointer of its own: compilers would rather add one index to many, and then each load with its use is two operations.
  [[gnu::always_inline]] static inline float const* moved(float const* p, std::size_t by)
  {
    p += by;
    asm("" : "+r"(p));
    return p;
  }
  [[gnu::always_inline]] static inline void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  [[gnu::always_inline]] static inline Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static inline Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  [[gnu::always_inline]] static inline Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static inline Reg div(Reg a, Reg b) { return _mm512_div_ps(a, b); }
  [[gnu::always_inline]] static inline Reg fma(Reg a, Reg b, Reg c)
  {
    return _mm512_fmadd_ps(a, b, c);
  }

  template <class T>
  [[gnu::always_inline]] static inline void two(T const* p, Reg& a, Reg& b)
  {
    if constexpr (std::is_same_v<T, float>) {
      a = load(p);
      b = load(p + 16);
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      widen(_mm512_loadu_si512(p), a, b);
    } else if constexpr (std::is_same_v<T, half>) {
      a = widen(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(p)));
      b = widen(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(p + 16)));
    } else {
      two_part(p, 32, a, b);
    }
  }
  /// The first (0) or the second (1) register of `two`.
  template <std::size_t Half, class T>
  [[gnu::always_inline]] static inline Reg one(T const* p)
  {
    Reg a;
    Reg b;
    two(p, a, b);
    return Half == 0 ? a : b;
  }
  /// n is 8, 16 or 24.
  template <class T>
  [[gnu::always_inline]] static inline void two_part(T const* p, std::size_t n, Reg& a, Reg& b)
  {
    std::uint32_t const low = n < 32 ? (1U << n) - 1U : ~0U;
    if constexpr (std::is_same_v<T, float>) {
      a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(low), p);
      b = _mm512_maskz_loadu_ps(static_cast<__mmask16>(low >> 16), p + 16);
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      widen(_mm512_maskz_loadu_epi16(low, p), a, b);
    } else if constexpr (std::is_same_v<T, half>) {
      a = widen(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(low), p));
      b = widen(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(low >> 16), p + 16));
    } else {
      float wide[32];
      for (std::size_t i = 0; i < 32; ++i) {
        wide[i] = i < n ? ElementTraits<T>::to_float(p[i]) : 0.0F;
      }
      a = load(wide);
      b = load(wide + 16);
    }
  }
  /// Lane r of to[i] is number i of row r.
  [[gnu::always_inline]] static inline void turn(float const* rows, std::size_t stride, Reg* to)
  {
    for (std::size_t i = 0; i < 16; i += 4) {
      turn_four(rows + i, stride, to + i);
    }
  }

  [[gnu::always_inline]] static inline void split(Reg& a, Reg& b)
  {
    __m512i const even =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i const odd =
      _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    Reg const first = _mm512_permutex2var_ps(a, even, b);
    b = _mm512_permutex2var_ps(a, odd, b);
    a = first;
  }
  [[gnu::always_inline]] static inline void join(Reg& a, Reg& b)
  {
    __m512i const low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    __m512i const high =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    Reg const first = _mm512_permutex2var_ps(a, low, b);
    b = _mm512_permutex2var_ps(a, high, b);
    a = first;
  }

  static constexpr std::size_t summed(std::size_t i)
  {
    return (i & 12) | (i & 1) << 1 | (i & 2) >> 1;
  }
  /// A tree: 16 rows to 8 registers of half sums, 4, 2, 1.
  [[gnu::always_inline]] static inline Reg sums(Reg const* r)
  {
    return quarters(quarters(four_sums(r), four_sums(r + 4)),
                    quarters(four_sums(r + 8), four_sums(r + 12)));
  }
  [[gnu::always_inline]] static inline float sum(Reg a)
  {
    __m256 const h = _mm256_add_ps(low_half(a), high_half(a));
    __m128 r = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    r = _mm_add_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_add_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
  [[gnu::always_inline]] static inline float largest(Reg a)
  {
    __m256 const h = _mm256_max_ps(low_half(a), high_half(a));
    __m128 r = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    r = _mm_max_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_max_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
  [[gnu::always_inline]] static inline bool any_above(Reg a, Reg b)
  {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
  }
  [[gnu::always_inline]] static inline Reg first(Reg a, std::size_t n)
  {
    auto const keep = static_cast<__mmask16>(n < 16 ? (1U << n) - 1U : 0xffffU);
    return _mm512_mask_mov_ps(all(-std::numeric_limits<float>::max()), keep, a);
  }
  [[gnu::always_inline]] static inline Reg exp2(Reg x)
  {
    Reg const least = all(-126.0F);
    Reg const y = _mm512_maskz_max_ps(every, least, x);  // in this order NaN passes
    Reg const whole = _mm512_maskz_cvtepi32_ps(every, _mm512_maskz_cvtps_epi32(every, y));
    Reg const f = sub(y, whole);
    Reg const p = fma(slope(f), f, all(1.0F));
    auto const keep = static_cast<__mmask16>(~_mm512_cmp_ps_mask(x, least, _CMP_LT_OQ));
    return _mm512_maskz_scalef_ps(keep, p, whole);
  }
  [[gnu::always_inline]] static inline Reg exp2_less_1(Reg x)
  {
    Reg const y = _mm512_maskz_min_ps(
      every, all(126.0F), _mm512_maskz_max_ps(every, all(-126.0F), x));  // NaN passes
    Reg const whole = _mm512_maskz_cvtepi32_ps(every, _mm512_maskz_cvtps_epi32(every, y));
    Reg const f = sub(y, whole);
    Reg const p = slope(f);
    Reg const power = _mm512_maskz_scalef_ps(every, all(1.0F), whole);
    return fma(mul(p, f), power, sub(power, all(1.0F)));
  }

 private:
  /// (2^f - 1) / f for -0.5 <= f <= 0.5.
  [[gnu::always_inline]] static inline Reg slope(Reg f)
  {
    Reg p = fma(all(1.535336188e-4F), f, all(1.339887440e-3F));
    p = fma(p, f, all(9.618437357e-3F));
    p = fma(p, f, all(5.550332471e-2F));
    p = fma(p, f, all(2.402264791e-1F));
    return fma(p, f, all(6.931472028e-1F));
  }
  // For the masked forms: in g++ 12 the plain ones read a variable that nothing sets, and warn of it.
  static constexpr auto every = static_cast<__mmask16>(0xffffU);
  static constexpr auto every8 = static_cast<__mmask8>(0xffU);

  [[gnu::always_inline]] static inline Reg half_sums(Reg a, Reg b)
  {
    return add(_mm512_maskz_unpacklo_ps(every, a, b), _mm512_maskz_unpackhi_ps(every, a, b));
  }
  /// Of each 128 bits: the sum of a row's four, for each of four rows.
  [[gnu::always_inline]] static inline Reg four_sums(Reg const* r)
  {
    __m512d const a = _mm512_castps_pd(half_sums(r[0], r[1]));
    __m512d const b = _mm512_castps_pd(half_sums(r[2], r[3]));
    return add(_mm512_castpd_ps(_mm512_maskz_unpacklo_pd(every8, a, b)),
               _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(every8, a, b)));
  }
  /// Sums of neighbours among the quarters of `a`, then of `b`.
  [[gnu::always_inline]] static inline Reg quarters(Reg a, Reg b)
  {
    return add(_mm512_maskz_shuffle_f32x4(every, a, b, 0x88),
               _mm512_maskz_shuffle_f32x4(every, a, b, 0xdd));
  }
  /// Four numbers of each row.
  [[gnu::always_inline]] static inline void turn_four(float const* rows,
                                                      std::size_t stride,
                                                      Reg* to)
  {
    Reg const a = every_fourth(rows, stride);
    Reg const b = every_fourth(rows + stride, stride);
    Reg const c = every_fourth(rows + 2 * stride, stride);
    Reg const d = every_fourth(rows + 3 * stride, stride);
    __m512d const low = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(every, a, b));
    __m512d const high = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(every, a, b));
    __m512d const low2 = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(every, c, d));
    __m512d const high2 = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(every, c, d));
    to[0] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(every8, low, low2));
    to[1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(every8, low, low2));
    to[2] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(every8, high, high2));
    to[3] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(every8, high, high2));
  }
  /// Four numbers of rows 0, 4, 8 and 12: inserts from memory need no shuffle.
  [[gnu::always_inline]] static inline Reg every_fourth(float const* rows, std::size_t stride)
  {
    Reg r = _mm512_castps128_ps512(_mm_loadu_ps(rows));
    r = _mm512_maskz_insertf32x4(every, r, _mm_loadu_ps(rows + 4 * stride), 1);
    r = _mm512_maskz_insertf32x4(every, r, _mm_loadu_ps(rows + 8 * stride), 2);
    return _mm512_maskz_insertf32x4(every, r, _mm_loadu_ps(rows + 12 * stride), 3);
  }
  [[gnu::always_inline]] static inline __m256 low_half(Reg a)
  {
    return _mm512_maskz_extractf32x8_ps(every8, a, 0);
  }
  [[gnu::always_inline]] static inline __m256 high_half(Reg a)
  {
    return _mm512_maskz_extractf32x8_ps(every8, a, 1);
  }
  [[gnu::always_inline]] static inline Reg widen(__m256i halves)
  {
    return _mm512_maskz_cvtph_ps(every, halves);
  }
  [[gnu::always_inline]] static inline void widen(__m512i pairs, Reg& even, Reg& odd)
  {
    asm("" : "+v"(pairs));  // as in `load_once`
    even = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(every, pairs, 16));
    odd = _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
};

}  // namespace kvcache::inline v0_1::detail::avx512::inline KVCACHE_FLAGS

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
