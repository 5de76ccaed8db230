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

/// \file Eight floats in an AVX2 register; members as in `vector_portable.hpp`.

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace kvcache::inline v0_1::detail::avx2::inline KVCACHE_FLAGS {

struct Vector {
  static constexpr std::size_t width = 8;
  static constexpr std::size_t most_together = 6;  // query rows that share a load
  /// A group's products take a load each, and with eight numbers a load that costs what it saves.
  static constexpr bool in_groups = false;
  using Reg = __m256;

  // A pair of bfloat16 in 32 bits widens by one shift and one mask: evens and odds, not halves.
  template <class T>
  static constexpr bool even_odd = std::is_same_v<T, bfloat16>;

  [[gnu::always_inline]] static inline Reg all(float x) { return _mm256_set1_ps(x); }
  [[gnu::always_inline]] static inline Reg load(float const* p) { return _mm256_loadu_ps(p); }
  /// For a value with several users: g++ would rather load it again for each, and loads are what is short.
  [[gnu::always_inline]] static inline Reg load_once(float const* p)
  {
    Reg r = load(p);  // NOLINT(misc-const-correctness): asm writes it
    asm("" : "+x"(r));
    return r;
  }
  [[gnu::always_inline]] static inline void store(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  [[gnu::always_inline]] static inline Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  [[gnu::always_inline]] static inline Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  [[gnu::always_inline]] static inline Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static inline Reg div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
  [[gnu::always_inline]] static inline Reg fma(Reg a, Reg b, Reg c)
  {
    return _mm256_fmadd_ps(a, b, c);
  }

  template <class T>
  [[gnu::always_inline]] static inline void two(T const* p, Reg& a, Reg& b)
  {
    if constexpr (std::is_same_v<T, float>) {
      a = load(p);
      b = load(p + 8);
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      widen(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(p)), a, b);
    } else if constexpr (std::is_same_v<T, half>) {
      a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(p)));
      b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(p + 8)));
    } else {
      two_part(p, 16, a, b);
    }
  }
  /// The first (0) or the second (1) register of `two`.
  template <std::size_t Half, class T>
  [[gnu::always_inline]] static inline Reg one(T const* p)
  {
    if constexpr (std::is_same_v<T, float>) {
      return load(p + 8 * Half);
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      __m256i const pairs = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(p));
      return _mm256_castsi256_ps(
        Half == 0 ? _mm256_slli_epi32(pairs, 16)
                  : _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
    } else if constexpr (std::is_same_v<T, half>) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(p + 8 * Half)));
    } else {
      Reg a;
      Reg b;
      two(p, a, b);
      return Half == 0 ? a : b;
    }
  }
  /// n is 8 here: head_dim is a multiple of 8.
  template <class T>
  [[gnu::always_inline]] static inline void two_part(T const* p, std::size_t n, Reg& a, Reg& b)
  {
    if constexpr (std::is_same_v<T, float>) {
      a = load(p);
      b = all(0.0F);
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      widen(_mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<__m128i const*>(p))), a, b);
    } else if constexpr (std::is_same_v<T, half>) {
      a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(p)));
      b = all(0.0F);
    } else {
      float wide[16];
      for (std::size_t i = 0; i < 16; ++i) {
        wide[i] = i < n ? ElementTraits<T>::to_float(p[i]) : 0.0F;
      }
      a = load(wide);
      b = load(wide + 8);
    }
  }

  [[gnu::always_inline]] static inline void split(Reg& a, Reg& b)
  {
    Reg const even = in_order(_mm256_shuffle_ps(a, b, 0x88));
    b = in_order(_mm256_shuffle_ps(a, b, 0xdd));
    a = even;
  }
  [[gnu::always_inline]] static inline void join(Reg& a, Reg& b)
  {
    Reg const low = _mm256_unpacklo_ps(a, b);
    Reg const high = _mm256_unpackhi_ps(a, b);
    a = _mm256_permute2f128_ps(low, high, 0x20);
    b = _mm256_permute2f128_ps(low, high, 0x31);
  }

  /// A tree of blends, each with one shuffle and one addition: 8 rows to 4 registers of half sums, 2, 1.
  [[gnu::always_inline]] static inline Reg sums(Reg const* r)
  {
    Reg const low = quarter(half_sums(r[0], r[2]), half_sums(r[1], r[3]));
    Reg const high = quarter(half_sums(r[4], r[6]), half_sums(r[5], r[7]));
    return add(_mm256_blend_ps(low, high, 0xf0), _mm256_permute2f128_ps(low, high, 0x21));
  }
  [[gnu::always_inline]] static inline float sum(Reg a)
  {
    __m128 r = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    r = _mm_add_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_add_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
  [[gnu::always_inline]] static inline float largest(Reg a)
  {
    __m128 r = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    r = _mm_max_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_max_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
  [[gnu::always_inline]] static inline bool any_above(Reg a, Reg b)
  {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
  }
  [[gnu::always_inline]] static inline Reg first(Reg a, std::size_t n)
  {
    __m256i const lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i const keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
    return _mm256_blendv_ps(all(-std::numeric_limits<float>::max()), a, _mm256_castsi256_ps(keep));
  }
  [[gnu::always_inline]] static inline Reg exp2(Reg x)
  {
    Reg const least = all(-126.0F);
    Reg const y = _mm256_max_ps(least, x);  // in this order NaN passes
    Reg const whole = _mm256_round_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    Reg const f = sub(y, whole);
    Reg const p = fma(slope(f), f, all(1.0F));
    __m256i const bits =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(_mm256_cmp_ps(x, least, _CMP_LT_OQ), mul(p, _mm256_castsi256_ps(bits)));
  }
  [[gnu::always_inline]] static inline Reg exp2_less_1(Reg x)
  {
    Reg const y = _mm256_min_ps(all(126.0F), _mm256_max_ps(all(-126.0F), x));  // NaN passes
    Reg const whole = _mm256_round_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    Reg const f = sub(y, whole);
    Reg const p = slope(f);
    Reg const power = _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23));
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
  /// The 64-bit quarters 0 2 1 3.
  [[gnu::always_inline]] static inline Reg in_order(Reg a)
  {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8));
  }
  /// Of each 128 bits: a0 + a2, a1 + a3, b0 + b2, b1 + b3.
  [[gnu::always_inline]] static inline Reg half_sums(Reg a, Reg b)
  {
    return add(_mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, 0x4e));
  }
  /// Of each 128 bits: a0 + a1, b0 + b1, a2 + a3, b2 + b3.
  [[gnu::always_inline]] static inline Reg quarter(Reg a, Reg b)
  {
    return add(_mm256_blend_ps(a, b, 0xaa), _mm256_permute_ps(_mm256_blend_ps(a, b, 0x55), 0xb1));
  }
  [[gnu::always_inline]] static inline void widen(__m256i pairs, Reg& even, Reg& odd)
  {
    asm("" : "+x"(pairs));  // as in `load_once`
    even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    odd = _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
  }
};

}  // namespace kvcache::inline v0_1::detail::avx2::inline KVCACHE_FLAGS

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
