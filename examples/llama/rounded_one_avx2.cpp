// SPDX-License-Identifier: Apache-2.0

/// \file One rounded row of activations times quantised weights, in AVX2, and the rounding.
///
/// Eight weight rows fill the eight places of a register, so a block's scales apply to all of them at once. Within a
/// block each row is multiplied alone, and eight rows of sums then fold into one register. A block's sum is exact and
/// the sum over blocks runs in one order, so rounded_many_avx2.cpp gives the same bits.

#include "ops_avx2.hpp"

#if defined(__x86_64__)

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

inline float largest(__m256 v)
{
  __m128 const four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 const two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline std::int32_t total(__m256i v)
{
  __m128i const four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  __m128i const two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/// The two planes of q: its last byte with its sign, and what is left of q by 256.
inline __m256i low_byte(__m256i q)
{
  return _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8);
}

inline __m256i high_byte(__m256i q)
{
  return _mm256_srai_epi16(_mm256_sub_epi16(q, low_byte(q)), 8);
}

/// See `pack_bytes`.
inline __m256i pack_words(__m256i a, __m256i b)
{
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}

/// {a0+a2, b0+b2, a1+a3, b1+b3} in each half.
inline __m256i fold_two(__m256i a, __m256i b)
{
  return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

inline __m256i fold_four(__m256i ab, __m256i cd)
{
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

/// Place r of the result is the sum of all places of sum[r].
inline __m256i fold_eight(__m256i const (&sum)[8])
{
  __m256i const low = fold_four(fold_two(sum[0], sum[1]), fold_two(sum[2], sum[3]));
  __m256i const high = fold_four(fold_two(sum[4], sum[5]), fold_two(sum[6], sum[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                          _mm256_permute2x128_si256(low, high, 0x31));
}

inline __m256i twice_at(std::int8_t const* from)
{
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from)));
}

/// Block `b` of x times eight rows of nibbles, by bytes: a register holds a block of rows r and r + 4, so there
/// is half as much to fold. Sums of 16 bits are at most 4 * 15 * 128 = 7680.
template <class Format>
inline __m256i nibble_dots(std::byte const* w, std::size_t stride, std::int8_t const* planes)
{
  __m256i const high_of_low = twice_at(planes);
  __m256i const high_of_high = twice_at(planes + 16);
  __m256i const low_of_low = twice_at(planes + 32);
  __m256i const low_of_high = twice_at(planes + 48);
  __m256i const nibble = _mm256_set1_epi8(15);
  __m256i dot[4];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < 4; ++r) {
    std::byte const* pairs = w + r * stride + Format::pairs;
    __m256i const both = _mm256_inserti128_si256(
      _mm256_castsi128_si256(bytes_at(pairs)), bytes_at(pairs + 4 * stride), 1);
    __m256i const low = _mm256_and_si256(both, nibble);
    __m256i const high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    __m256i const coarse = _mm256_add_epi16(_mm256_maddubs_epi16(low, high_of_low),
                                            _mm256_maddubs_epi16(high, high_of_high));
    __m256i const fine = _mm256_add_epi16(_mm256_maddubs_epi16(low, low_of_low),
                                          _mm256_maddubs_epi16(high, low_of_high));
    dot[r] = _mm256_add_epi32(_mm256_madd_epi16(coarse, _mm256_set1_epi16(256)),
                              _mm256_madd_epi16(fine, _mm256_set1_epi16(1)));
  }
  return fold_four(fold_two(dot[0], dot[1]), fold_two(dot[2], dot[3]));
}

/// A block of x times eight rows; the second half apart where it has a scale of its own.
struct Dots {
  __m256i low;
  __m256i high;
};

template <class Format>
inline Dots eight_dots(
  std::byte const* w, std::size_t stride, std::size_t part, RoundedView x, std::size_t b)
{
  if constexpr (requires { Format::pairs; }) {
    __m256i const dots = nibble_dots<Format>(w, stride, x.planes + 2 * b * rounded_block);
    return {dots, dots};
  } else {
    __m256i const x_low = words_at(x.q + b * rounded_block);
    __m256i const x_high = words_at(x.q + b * rounded_block + 16);
    __m256i low[wide];
    __m256i high[wide];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < wide; ++r) {
      Words const q = Format::words(w + r * stride, part);
      low[r] = _mm256_madd_epi16(q.low, x_low);
      high[r] = _mm256_madd_epi16(q.high, x_high);
      if constexpr (!Format::halves) {
        low[r] = high[r] = _mm256_add_epi32(low[r], high[r]);
      }
    }
    return {fold_eight(low), fold_eight(high)};
  }
}

/// The sums of eight rows that lie `stride` bytes apart (0: eight times the same).
template <class Format>
inline __m256 eight_rows(std::byte const* w, std::size_t stride, RoundedView x)
{
  constexpr BlockSize size = block_size(Format::type);
  constexpr std::size_t parts = size.values / rounded_block;
  constexpr std::size_t ahead =
    wide * size.bytes / parts;  // bytes that a block of eight rows takes
  std::byte const* next = w + wide * stride;
  __m256 sum = _mm256_setzero_ps();
  std::size_t b = 0;
  for (; b < x.blocks(); w += size.bytes) {
    for (std::size_t part = 0; part < parts; ++part, ++b) {
#pragma GCC unroll 8
      for (std::size_t line = 0; line < ahead; line += 64) {
        _mm_prefetch(reinterpret_cast<char const*>(next + line), _MM_HINT_T0);
      }
      next += ahead;
      Scales const scales = Format::scales(w, stride, part);
      __m256 const x_scale = _mm256_broadcast_ss(x.scales + b * x.step);
      Dots const dots = eight_dots<Format>(w, stride, part, x, b);
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots.low), _mm256_mul_ps(scales.d[0], x_scale), sum);
      if constexpr (Format::halves) {
        sum =
          _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots.high), _mm256_mul_ps(scales.d[1], x_scale), sum);
      }
      if constexpr (Format::offset) {
        sum = _mm256_fmadd_ps(scales.m, _mm256_broadcast_ss(x.sums + b * x.step), sum);
      }
    }
  }
  return sum;
}

template <class Format>
void times_one(EncodedRows w, RoundedView x, float* y)
{
  std::size_t const stride = row_bytes(Format::type, w.cols);
  std::size_t r = 0;
  for (; r + wide <= w.rows; r += wide) {
    _mm256_storeu_ps(y + r, eight_rows<Format>(w.at + r * stride, stride, x));
  }
  for (; r < w.rows; ++r) {
    y[r] = _mm256_cvtss_f32(eight_rows<Format>(w.at + r * stride, 0, x));
  }
}

}  // namespace

void rounded_times_one(EncodedRows w, RoundedView x, float* y)
{
  with_format(w.type, [&]<class Format>(Format) { times_one<Format>(w, x, y); });
}

void round(float const* x, std::size_t cols, RoundedRow out)
{
  __m256 const magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (std::size_t b = 0; b < cols / rounded_block; ++b) {
    __m256 v[4];
    __m256 most = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + b * rounded_block + i * wide);
      most = _mm256_max_ps(most, _mm256_and_ps(v[i], magnitude));
    }
    float const scale = largest(most);
    bool const tiny = scale < smallest_rounded;
    __m256 const up = _mm256_set1_ps(tiny ? 0.0f : largest_rounded / scale);
    __m256i q[4];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], up));
    }
    __m256i const low = pack_words(q[0], q[1]);
    __m256i const high = pack_words(q[2], q[3]);
    auto* to = reinterpret_cast<__m256i*>(out.q + b * rounded_block);
    _mm256_storeu_si256(to, low);
    _mm256_storeu_si256(to + 1, high);
    auto* planes = reinterpret_cast<__m256i*>(out.planes + 2 * b * rounded_block);
    _mm256_storeu_si256(planes, pack_bytes(high_byte(low), high_byte(high)));
    _mm256_storeu_si256(planes + 1, pack_bytes(low_byte(low), low_byte(high)));
    __m256i const sum =
      _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    out.scales[b * out.step] = tiny ? 0.0f : scale * (1.0f / largest_rounded);
    out.sums[b * out.step] = out.scales[b * out.step] * static_cast<float>(total(sum));
  }
}

}  // namespace llama::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
