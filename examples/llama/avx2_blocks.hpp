// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The block formats of GGUF in AVX2 registers: the same values as blocks.hpp.
///
/// A format says where a block's 32 whole numbers are and which scales eight rows have. For x86-64 only.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "blocks.hpp"

// Only what lies between push and pop may use AVX2: the rest of the program must run anywhere.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace llama::avx2 {

constexpr std::size_t wide = 8;  // 32-bit places of a register

/// 32 whole numbers, in order.
struct Words {
  __m256i low;
  __m256i high;
};

/// The scales of one block of eight rows, row r in place r.
struct Scales {
  __m256
    d[2];    // of the first and the last 16 values; the second only where the format has `halves`
  __m256 m;  // only where the format has `offset`
};

inline __m128i bytes_at(std::byte const* from)
{
  return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
}

inline __m256i words_at(std::int16_t const* from)
{
  return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
}

/// Packing works on halves of registers: the permutation puts the quarters back in order.
inline __m256i pack_bytes(__m256i a, __m256i b)
{
  return _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
}

/// The one or two halves at the head of a block.
template <class Bits>
inline int bits_at(std::byte const* from)
{
  Bits bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return static_cast<int>(bits);
}

inline Words nibbles_at(std::byte const* from)
{
  __m256i const pairs = _mm256_cvtepu8_epi16(bytes_at(from));
  return {_mm256_and_si256(pairs, _mm256_set1_epi16(15)), _mm256_srli_epi16(pairs, 4)};
}

/// Bits `shift` and up of sixteen bytes, those of `mask`.
inline __m256i bits_of(std::byte const* from, std::size_t shift, short mask)
{
  __m256i const bytes = _mm256_cvtepu8_epi16(bytes_at(from));
  __m128i const count = _mm_cvtsi32_si128(static_cast<int>(shift));
  return _mm256_and_si256(_mm256_srl_epi16(bytes, count), _mm256_set1_epi16(mask));
}

inline Words less(Words q, short by)
{
  __m256i const all = _mm256_set1_epi16(by);
  return {_mm256_sub_epi16(q.low, all), _mm256_sub_epi16(q.high, all)};
}

/// One f16 scale at the head of each of eight rows.
inline Scales one_scale(std::byte const* from, std::size_t stride)
{
  auto const at = [&](std::size_t r) {
    return static_cast<short>(bits_at<std::uint16_t>(from + r * stride));
  };
  __m128i const halves = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  return {{_mm256_cvtph_ps(halves), _mm256_setzero_ps()}, _mm256_setzero_ps()};
}

struct Q8_0 {
  static constexpr WeightType type = WeightType::q8_0;
  static constexpr bool halves = false;
  static constexpr bool offset = false;
  static Words words(std::byte const* from, std::size_t)
  {
    return {_mm256_cvtepi8_epi16(bytes_at(from + 2)), _mm256_cvtepi8_epi16(bytes_at(from + 18))};
  }
  static Scales scales(std::byte const* from, std::size_t stride, std::size_t)
  {
    return one_scale(from, stride);
  }
};

/// The formats of two nibbles a byte, whose offset is in m alone, have no order of their own to undo: `pairs` is
/// where their sixteen bytes are.
struct Q4_0 {
  static constexpr WeightType type = WeightType::q4_0;
  static constexpr bool halves = false;
  static constexpr bool offset = true;
  static constexpr std::size_t pairs = 2;
  static Words words(std::byte const* from, std::size_t) { return nibbles_at(from + pairs); }
  static Scales scales(std::byte const* from, std::size_t stride, std::size_t)
  {
    Scales out = one_scale(from, stride);
    out.m = _mm256_mul_ps(out.d[0], _mm256_set1_ps(-8.0f));
    return out;
  }
};

struct Q4_1 {
  static constexpr WeightType type = WeightType::q4_1;
  static constexpr bool halves = false;
  static constexpr bool offset = true;
  static constexpr std::size_t pairs = 4;
  static Words words(std::byte const* from, std::size_t) { return nibbles_at(from + pairs); }
  /// Loaded in an order that lets one shuffle part d from m: {d0 m0 d1 m1 | d4 m4 d5 m5}, {d2 m2 ...}.
  static Scales scales(std::byte const* from, std::size_t stride, std::size_t)
  {
    auto const two = [&](std::size_t r) {
      return _mm_unpacklo_epi32(bytes_at(from + r * stride), bytes_at(from + (r + 1) * stride));
    };
    __m256 const even = _mm256_cvtph_ps(_mm_unpacklo_epi64(two(0), two(4)));
    __m256 const odd = _mm256_cvtph_ps(_mm_unpacklo_epi64(two(2), two(6)));
    return {{_mm256_shuffle_ps(even, odd, 0x88), _mm256_setzero_ps()},
            _mm256_shuffle_ps(even, odd, 0xdd)};
  }
};

struct Q5_0 {
  static constexpr WeightType type = WeightType::q5_0;
  static constexpr bool halves = false;
  static constexpr bool offset = false;
  static Words words(std::byte const* from, std::size_t)
  {
    auto const high = static_cast<std::uint32_t>(bits_at<std::uint32_t>(from + 2));
    Words const low = nibbles_at(from + 6);
    return less(
      {_mm256_or_si256(low.low, fifth(high)), _mm256_or_si256(low.high, fifth(high >> 16))}, 16);
  }
  static Scales scales(std::byte const* from, std::size_t stride, std::size_t)
  {
    return one_scale(from, stride);
  }

 private:
  /// 16 where bit i is set.
  static __m256i fifth(std::uint32_t bits)
  {
    __m256i const bit = _mm256_setr_epi16(
      1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    __m256i const all = _mm256_set1_epi16(static_cast<short>(bits & 0xffffu));
    __m256i const set = _mm256_cmpeq_epi16(_mm256_and_si256(all, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi16(16));
  }
};

/// The scales of eight rows by the book, one after the other.
template <class Format>
inline Scales scales_by_the_book(std::byte const* from, std::size_t stride, std::size_t part)
{
  alignas(32) float d[2][8];
  alignas(32) float m[8];
  for (std::size_t r = 0; r < 8; ++r) {
    BlockScales const scales = block_scales(Format::type, from + r * stride, part);
    d[0][r] = scales.d[0];
    d[1][r] = scales.d[1];
    m[r] = scales.m;
  }
  return {{_mm256_load_ps(d[0]), _mm256_load_ps(d[1])}, _mm256_load_ps(m)};
}

struct Q4_K {
  static constexpr WeightType type = WeightType::q4_k;
  static constexpr bool halves = false;
  static constexpr bool offset = true;
  static Words words(std::byte const* from, std::size_t part)
  {
    std::byte const* pairs = from + 16 + part / 2 * 32;
    std::size_t const shift = part % 2 * 4;
    return {bits_of(pairs, shift, 15), bits_of(pairs + 16, shift, 15)};
  }
  static Scales scales(std::byte const* from, std::size_t stride, std::size_t part)
  {
    return scales_by_the_book<Q4_K>(from, stride, part);
  }
};

struct Q6_K {
  static constexpr WeightType type = WeightType::q6_k;
  static constexpr bool halves = true;
  static constexpr bool offset = false;
  static Words words(std::byte const* from, std::size_t part)
  {
    std::size_t const row = part % 4;
    std::byte const* low = from + part / 4 * 64 + row % 2 * 32;
    std::byte const* high = from + 128 + part / 4 * 32;
    Words out;
    out.low = six_bits(low, row / 2 * 4, high, row * 2);
    out.high = six_bits(low + 16, row / 2 * 4, high + 16, row * 2);
    return less(out, 32);
  }
  static Scales scales(std::byte const* from, std::size_t stride, std::size_t part)
  {
    return scales_by_the_book<Q6_K>(from, stride, part);
  }

 private:
  static __m256i six_bits(std::byte const* low,
                          std::size_t low_shift,
                          std::byte const* high,
                          std::size_t high_shift)
  {
    __m256i const two = bits_of(high, high_shift, 3);
    return _mm256_or_si256(bits_of(low, low_shift, 15), _mm256_slli_epi16(two, 4));
  }
};

/// Calls `fn` with the format of `type`. **Pre** `has_blocks(type)`.
template <class Fn>
inline void with_format(WeightType type, Fn&& fn)
{
  switch (type) {
    case WeightType::q8_0:
      return fn(Q8_0{});
    case WeightType::q4_0:
      return fn(Q4_0{});
    case WeightType::q4_1:
      return fn(Q4_1{});
    case WeightType::q5_0:
      return fn(Q5_0{});
    case WeightType::q4_k:
      return fn(Q4_K{});
    case WeightType::q6_k:
      return fn(Q6_K{});
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
      break;
  }
}

}  // namespace llama::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
