// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

/// \file Vectors of `Width` floats in plain C++, and the list of what a vector must offer.
///
/// The kernel (`kernel.inc`) is written once over such a type. The other two have the same members over
/// registers; this one is the fallback, and at width 16 it lets a machine without AVX-512 test the
/// arithmetic of one that has it.
///
///   two<T>(p, a, b)        2 * width elements as floats; in which order, `even_odd<T>` says:
///                          false: a = 0 1 2 .., b = w w+1 ..     true: a = 0 2 4 .., b = 1 3 5 ..
///   two_part<T>(p, n, ..)  the same for n < 2 * width elements, zeros behind; reads n elements and no more
///
/// and for `block_grouped.inc`, where query rows go `in_groups`:
///
///   turn(rows, stride, to)  `width` numbers of each of `width` rows, turned round
///   summed                  the order in which `sums` joins lanes: neighbours first, then pairs of neighbours, and so on
///   moved(p, by)            `p + by`, in a register of its own

namespace kvcache::inline v0_1::detail::portable::inline KVCACHE_FLAGS {

/// See the file comment.
template <std::size_t Width>
struct Vector {
  static constexpr std::size_t width = Width;
  static constexpr std::size_t most_together = 4;  // query rows that share a load
  /// Whether query rows go in groups. At width 16 this is the twin of AVX-512, at 8 the fallback.
  static constexpr bool in_groups = Width == 16;
  struct Reg {
    float lane[Width];
  };

  template <class T>
  static constexpr bool even_odd = false;

  static Reg all(float x)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = x;
    }
    return r;
  }
  static Reg load(float const* p)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = p[i];
    }
    return r;
  }
  static Reg load_once(float const* p) { return load(p); }
  static float const* moved(float const* p, std::size_t by) { return p + by; }
  static void store(float* p, Reg const& a)
  {
    for (std::size_t i = 0; i < Width; ++i) {
      p[i] = a.lane[i];
    }
  }
  static Reg add(Reg const& a, Reg const& b)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = a.lane[i] + b.lane[i];
    }
    return r;
  }
  static Reg sub(Reg const& a, Reg const& b)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = a.lane[i] - b.lane[i];
    }
    return r;
  }
  static Reg mul(Reg const& a, Reg const& b)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = a.lane[i] * b.lane[i];
    }
    return r;
  }
  static Reg div(Reg const& a, Reg const& b)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = a.lane[i] / b.lane[i];
    }
    return r;
  }
  /// a * b + c
  static Reg fma(Reg const& a, Reg const& b, Reg const& c)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = fma(a.lane[i], b.lane[i], c.lane[i]);
    }
    return r;
  }

  template <class T>
  static void two(T const* p, Reg& a, Reg& b)
  {
    for (std::size_t i = 0; i < Width; ++i) {
      a.lane[i] = ElementTraits<T>::to_float(p[i]);
      b.lane[i] = ElementTraits<T>::to_float(p[Width + i]);
    }
  }
  /// The first (0) or the second (1) register of `two`.
  template <std::size_t Half, class T>
  static Reg one(T const* p)
  {
    Reg a;
    Reg b;
    two(p, a, b);
    return Half == 0 ? a : b;
  }
  template <class T>
  static void two_part(T const* p, std::size_t n, Reg& a, Reg& b)
  {
    for (std::size_t i = 0; i < Width; ++i) {
      a.lane[i] = i < n ? ElementTraits<T>::to_float(p[i]) : 0.0F;
      b.lane[i] = Width + i < n ? ElementTraits<T>::to_float(p[Width + i]) : 0.0F;
    }
  }

  /// Lane r of to[i] is number i of row r.
  static void turn(float const* rows, std::size_t stride, Reg* to)
  {
    for (std::size_t i = 0; i < Width; ++i) {
      for (std::size_t r = 0; r < Width; ++r) {
        to[i].lane[r] = rows[r * stride + i];
      }
    }
  }

  /// From the elements in turn to evens and odds, and back; only where some type is `even_odd`.
  static void split(Reg&, Reg&) {}
  static void join(Reg&, Reg&) {}

  /// Lane number `i` of those that `sums` joins: with the bits of `i` from right to left.
  static constexpr std::size_t summed(std::size_t i)
  {
    std::size_t lane = 0;
    for (std::size_t bit = 1; bit < Width; bit *= 2) {
      lane = 2 * lane + (i & bit ? 1 : 0);
    }
    return lane;
  }
  /// Lane i of the result is the sum of the lanes of `rows[i]`.
  static Reg sums(Reg const* rows)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      r.lane[i] = sum(rows[i]);
    }
    return r;
  }
  static float sum(Reg a)
  {
    for (std::size_t half = Width / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        a.lane[i] += a.lane[i + half];
      }
    }
    return a.lane[0];
  }
  static float largest(Reg const& a)
  {
    float most = a.lane[0];
    for (std::size_t i = 1; i < Width; ++i) {
      most = a.lane[i] > most ? a.lane[i] : most;
    }
    return most;
  }
  /// Whether some lane of `a` is above that of `b`.
  static bool any_above(Reg const& a, Reg const& b)
  {
    bool any = false;
    for (std::size_t i = 0; i < Width; ++i) {
      any |= a.lane[i] > b.lane[i];
    }
    return any;
  }
  /// `a` with the lowest number in the lanes from `n` on: below `lowest_score`, and finite for compilers that know no more.
  static Reg first(Reg a, std::size_t n)
  {
    for (std::size_t i = 0; i < Width; ++i) {
      a.lane[i] = i < n ? a.lane[i] : -std::numeric_limits<float>::max();
    }
    return a;
  }

  /// 2^x for x <= 0, to 1e-7 of itself; 0 from below 2^-126; NaN stays NaN.
  static Reg exp2(Reg const& x)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      float const y = x.lane[i] < -126.0F ? -126.0F : x.lane[i];
      std::int32_t const whole = nearest(y);
      float const f = y - static_cast<float>(whole);
      float const p = fma(slope(f), f, 1.0F);
      r.lane[i] = x.lane[i] < -126.0F ? 0.0F : power(whole) * p;
    }
    return r;
  }
  /// 2^x - 1, to 2e-7 of itself also where x is small; the ends of -126 .. 126 beyond them; NaN stays NaN.
  static Reg exp2_less_1(Reg const& x)
  {
    Reg r;
    for (std::size_t i = 0; i < Width; ++i) {
      float y = x.lane[i] < -126.0F ? -126.0F : x.lane[i];
      y = y > 126.0F ? 126.0F : y;
      std::int32_t const whole = nearest(y);
      float const f = y - static_cast<float>(whole);
      float const p = slope(f) * f;
      float const scale = power(whole);
      float const far = fma(p, scale, scale - 1.0F);
      r.lane[i] =
        whole == 0 ? p : far;  // not by `far`, of which -ffast-math may subtract the 1 last
    }
    return r;
  }

 private:
  /// a * b + c, rounded once wherever that is fast: left to itself, g++ does so in some of its copies of a loop only, and
  /// then a row in company has other bits than alone.
  [[gnu::always_inline]] static inline float fma(float a, float b, float c)
  {
#if defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
  }
  /// The whole number next to `x`, by the last bits of x + 1.5 * 2^23. Integers, because -ffast-math takes
  /// x + 1.5 * 2^23 - 1.5 * 2^23 for x.
  [[gnu::always_inline]] static inline std::int32_t nearest(float x)
  {
    constexpr float shift = 12582912.0F;
    return static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, x + shift) -
                                     __builtin_bit_cast(std::uint32_t, shift));
  }
  /// (2^f - 1) / f for -0.5 <= f <= 0.5.
  [[gnu::always_inline]] static inline float slope(float f)
  {
    float p = fma(1.535336188e-4F, f, 1.339887440e-3F);
    p = fma(p, f, 9.618437357e-3F);
    p = fma(p, f, 5.550332471e-2F);
    p = fma(p, f, 2.402264791e-1F);
    return fma(p, f, 6.931472028e-1F);
  }
  /// 2^n.
  [[gnu::always_inline]] static inline float power(std::int32_t n)
  {
    return __builtin_bit_cast(
      float, __builtin_bit_cast(std::uint32_t, 1.0F) + (static_cast<std::uint32_t>(n) << 23));
  }
};

}  // namespace kvcache::inline v0_1::detail::portable::inline KVCACHE_FLAGS
