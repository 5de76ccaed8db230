// SPDX-License-Identifier: Apache-2.0

/// \file Many rounded rows of activations times quantised weights, in AMX.
///
/// A tile multiplies bytes: sixteen tokens by sixteen weight rows by the columns of a block. Activations are two planes
/// of bytes (rounded_rows.hpp), so a block takes two products, and 256 high + low is the exact sum that every other
/// kernel has. Scales then apply in AVX-512, in the order of rounded_one_avx2.cpp, so the bits are the same.
///
/// Tokens are the outer loop: their planes stay in the first-level cache while all panels of a strip pass. Fewer than
/// sixteen tokens are AVX-512's.

#include "ops_avx512.hpp"

#if defined(__x86_64__)

#include <algorithm>

#include "avx2_panel.hpp"

// Loops over registers are unrolled by a pragma: g++ at -O2 does not, and then the registers are memory.
#if defined(__clang__)
#pragma clang attribute push(                                                                    \
  __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
  apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

namespace llama::amx {
namespace {

using avx2::Panel;
using avx2::panel_block_scales;
using avx2::panel_block_values;
using avx2::panel_rows;
using BytePanel = Panel<std::int8_t>;

constexpr std::size_t strip_rows = 128;  // whose panels stay in the second-level cache
constexpr std::size_t tile_tokens = 16;

/// What the processor must know of its tile registers: 0 and 1 take activations, 2 weights, 3 and 4 sums.
struct alignas(64) Shapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// For sixteen rows of activations, `columns` of them at a time.
inline void set_shapes(std::size_t columns)
{
  Shapes shapes;
  for (std::size_t tile = 0; tile < 5; ++tile) {
    shapes.rows[tile] = static_cast<std::uint8_t>(tile == 2 ? columns / 4 : tile_tokens);
    shapes.row_bytes[tile] = static_cast<std::uint16_t>(tile < 2 ? columns : 64);
  }
  // g++ does not know that tile instructions read memory: without this it need not have written shapes and panels.
  asm volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
}

/// The sums of one block: 256 coarse + fine.
struct alignas(64) BlockSums {
  std::int32_t coarse[tile_tokens * panel_rows];
  std::int32_t fine[tile_tokens * panel_rows];
};

/// Where a product's bytes are: a block, or half of one, of sixteen weight rows and of sixteen tokens.
struct Bytes {
  std::int8_t const* weights;
  std::int8_t const* planes;
};

/// The products of consecutive panels with the same tokens, block after block.
template <bool Halves>
class Course {
 public:
  static constexpr std::size_t groups = Halves ? 2 : 1;
  static constexpr std::size_t columns = rounded_block / groups;

  Course(std::int8_t const* weights, RoundedView const& x) : weights_(weights), x_(&x) {}

  [[nodiscard]] Bytes next()
  {
    Bytes const out{weights_, x_->planes + 2 * block_ * rounded_block + group_ * columns};
    weights_ += columns * panel_rows;
    group_ = (group_ + 1) % groups;
    block_ += group_ == 0;
    block_ = block_ == x_->blocks() ? 0 : block_;
    return out;
  }

 private:
  std::int8_t const* weights_;
  RoundedView const* x_;
  std::size_t block_ = 0;
  std::size_t group_ = 0;
};

/// Part `part` of seven of two things: the sums of one product leave the tile registers, and the next one is computed.
inline void tile_part(std::size_t part, BlockSums& sums, Bytes next, std::size_t stride)
{
  if (part == 0) {
    _tile_loadd(2, next.weights, 64);
  } else if (part == 1) {
    _tile_stored(3, sums.coarse, 64);
  } else if (part == 2) {
    _tile_loadd(0, next.planes, stride);
  } else if (part == 3) {
    _tile_zero(3);
    _tile_dpbssd(3, 0, 2);
  } else if (part == 4) {
    _tile_stored(4, sums.fine, 64);
  } else if (part == 5) {
    _tile_loadd(1, next.planes + rounded_block, stride);
  } else if (part == 6) {
    _tile_zero(4);
    _tile_dpbssd(4, 1, 2);
  }
}

inline void tile_parts(BlockSums& sums, Bytes next, std::size_t stride)
{
#pragma GCC unroll 7
  for (std::size_t part = 0; part < 7; ++part) {
    tile_part(part, sums, next, stride);
  }
}

/// `rows` rows of panels times sixteen tokens. x is no copy: to copy it between tiles, the processor waits until the
/// stores of a tile are done.
///
/// Three blocks are under way: one is added up, the sums of the next one leave the tile registers, and the one behind it
/// is multiplied. While tiles are in use, products and conversions of wide floats have one port of a core; so `coarse` is
/// shifted by a shuffle, which has another one.
template <bool Halves, bool Offset>
void sixteen_tokens(BytePanel panel, std::size_t rows, RoundedView const& x, OutRows y)
{
  constexpr std::size_t groups = Course<Halves>::groups;
  __m512i const times_256 = _mm512_maskz_broadcast_i32x4(
    0xffff, _mm_setr_epi32(0x02010080, 0x06050480, 0x0a090880, 0x0e0d0c80));
  std::size_t const stride = 2 * x.cols;
  std::size_t const steps = groups * x.blocks();
  BlockSums dots[2];
  std::size_t from = 0;
  Course<Halves> course(panel.q, x);
  tile_parts(dots[1], course.next(), stride);
  tile_parts(dots[0], course.next(), stride);
  for (std::size_t r = 0; r < rows; r += panel_rows) {
    __m512 sum[tile_tokens];
#pragma GCC unroll 16
    for (std::size_t t = 0; t < tile_tokens; ++t) {
      sum[t] = _mm512_setzero_ps();
    }
    for (std::size_t step = 0; step < steps; ++step, from ^= 1) {
      std::size_t const b = step / groups;
      float const* const scales = panel.scales + b * panel_block_scales;
      __m512 const d = _mm512_loadu_ps(scales + step % groups * panel_rows);
      __m512 const m = _mm512_loadu_ps(scales + 2 * panel_rows);
      BlockSums const& own = dots[from];
      Bytes const next = course.next();
#pragma GCC unroll 16
      for (std::size_t t = 0; t < tile_tokens; ++t) {
        if (t % 2 == 0) {
          tile_part(t / 2, dots[from ^ 1], next, stride);
        }
        __m512i const coarse = _mm512_load_si512(own.coarse + t * panel_rows);
        __m512i const fine = _mm512_load_si512(own.fine + t * panel_rows);
        __m512i const dot = _mm512_add_epi32(_mm512_shuffle_epi8(coarse, times_256), fine);
        __m512 const scale = _mm512_mul_ps(d, _mm512_set1_ps(x.scales[b * x.step + t]));
        sum[t] = _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xffff, dot), scale, sum[t]);
        if constexpr (Offset) {
          sum[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(x.sums[b * x.step + t]), sum[t]);
        }
      }
    }
    auto const some = static_cast<__mmask16>((1U << std::min(panel_rows, rows - r)) - 1);
#pragma GCC unroll 16
    for (std::size_t t = 0; t < tile_tokens; ++t) {
      _mm512_mask_storeu_ps(y.at + t * y.stride + r, some, sum[t]);
    }
    panel.scales += x.blocks() * panel_block_scales;
  }
}

/// At most `strip_rows` rows times `n` activation rows, a multiple of sixteen.
template <class Format>
void strip_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  static thread_local std::vector<std::int8_t> q;
  static thread_local std::vector<float> scales;
  std::size_t const blocks = x.blocks();
  std::size_t const panels = (w.rows + panel_rows - 1) / panel_rows;
  q.resize((panels * blocks + 2) * panel_block_values);  // what runs ahead reads two more blocks
  scales.resize(panels * blocks * panel_block_scales);
  BytePanel const all{q.data(), scales.data()};
  for (std::size_t r = 0; r < w.rows; r += panel_rows) {
    EncodedRows const part{
      w.type, w.at + r * row_bytes(w.type, w.cols), std::min(panel_rows, w.rows - r), w.cols};
    avx2::fill_panel<Format>(part, 0, blocks, all.from(r / panel_rows * blocks));
  }
  set_shapes(Format::halves ? 16 : 32);
  for (std::size_t t = 0; t < n; t += tile_tokens) {
    sixteen_tokens<Format::halves, Format::offset>(
      all, w.rows, x.from(t), {y.at + t * y.stride, y.stride});
  }
  _tile_release();
}

}  // namespace

void rounded_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y)
{
  std::size_t const stride = row_bytes(w.type, w.cols);
  std::size_t const rest = n % tile_tokens;
  std::size_t const whole = n - rest;
  if (whole != 0) {
    avx2::with_format(w.type, [&]<class Format>(Format) {
      for (std::size_t r = 0; r < w.rows; r += strip_rows) {
        std::size_t const rows = std::min(strip_rows, w.rows - r);
        strip_times_many<Format>(
          {w.type, w.at + r * stride, rows, w.cols}, x, whole, {y.at + r, y.stride});
      }
    });
  }
  if (rest != 0) {
    avx512::rounded_times_many(w, x.from(whole), rest, {y.at + whole * y.stride, y.stride});
  }
}

}  // namespace llama::amx

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
