// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The inner loops behind ops.hpp, once per instruction set. Private to the example and its tests.

#include <cstddef>
#include <cstdint>

#include "half.hpp"
#include "rounded_rows.hpp"
#include "weight_type.hpp"

namespace llama {

/// Rows of decoded weights are padded with zeros to this many floats.
inline constexpr std::size_t pad_floats = 8;

/// Rows of floats, `stride` apart.
struct FloatRows {
  float const* at;
  std::size_t stride;

  [[nodiscard]] FloatRows from(std::size_t row) const { return {at + row * stride, stride}; }
};

/// Encoded rows that lie one after the other.
struct EncodedRows {
  WeightType type;
  std::byte const* at;
  std::size_t rows;
  std::size_t cols;
};

/// Where y[t][r] goes.
struct OutRows {
  float* at;
  std::size_t stride;
};

/// The loops of one instruction set. All of them sum in the order that ops.hpp promises.
struct Kernels {
  char const* name;

  /// Decodes one row into `out`; the values up to the next multiple of `pad_floats` become 0.
  void (*decode)(WeightType type, std::byte const* row, std::size_t cols, float* out);

  /// y[t][r] = w[r] . x[t] for `rows` decoded, padded rows and `n` rows of x, in float32.
  void (*times)(
    FloatRows w, std::size_t rows, std::size_t cols, FloatRows x, std::size_t n, OutRows y);

  /// Rounds one row of activations, see rounded_rows.hpp. **Pre** `cols` is a multiple of 32.
  void (*round)(float const* x, std::size_t cols, RoundedRow out);

  /// y[r] = w[r] . x for one rounded row. **Pre** a type with blocks.
  void (*rounded_times_one)(EncodedRows w, RoundedView x, float* y);

  /// y[t][r] = w[r] . x[t] for `n` rounded rows, with the same bits. **Pre** a type with blocks.
  void (*rounded_times_many)(EncodedRows w, RoundedView x, std::size_t n, OutRows y);

  /// See ops.hpp.
  void (*rms_norm)(float const* x, float const* gain, std::size_t width, float epsilon, float* out);

  /// x += y.
  void (*add)(float* x, float const* y, std::size_t width);

  /// gate = silu(gate) * up.
  void (*swiglu)(float* gate, float const* up, std::size_t width);
};

[[nodiscard]] Kernels const& portable_kernels();

/// The AVX2, FMA and F16C loops, or null where this machine or this build has none.
[[nodiscard]] Kernels const* avx2_kernels();

/// The same with products of many rows in AVX-512 (VNNI), or null.
[[nodiscard]] Kernels const* avx512_kernels();

/// The same with products of many rows in AMX, or null. **Post** the process may use AMX.
[[nodiscard]] Kernels const* amx_kernels();

/// The fastest ones that this machine can run.
[[nodiscard]] Kernels const& kernels();

}  // namespace llama
