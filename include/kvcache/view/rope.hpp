// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/isa/turn.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// \file Rotary position embedding (Su et al., 2021, arXiv 2104.09864) as models store it: which elements turn together,
/// and by what angle.
///
///   halves   (x[i], x[i + dims/2])   GPT-NeoX, Llama in Hugging Face's order
///   pairs    (x[2i], x[2i + 1])      GPT-J, Llama in Meta's order
///
/// Pair i of the token at `position` turns by `position * theta^(-2i/dims)`; elements from `dims` on stay as they are.

namespace kvcache::inline v0_1 {

/// See the file comment.
enum class RopeStyle : std::uint8_t { none, halves, pairs };

/// Trivially copyable; goes into kernels by value. **Pre** `dims` is even and at most head_dim; 0 with `none`.
struct Rope {
  struct Turn {
    float cos;
    float sin;
  };

  RopeStyle style = RopeStyle::none;
  std::int32_t dims = 0;
  /// `[table_rows][dims]` in device memory, for each position dims/2 cosines and then as many sines: vLLM's
  /// `cos_sin_cache`. Scaled variants (linear, NTK, YaRN, Llama 3) are tables. Null: computed, in float like the models'
  /// own code; the angle of a far position is as inexact as theirs.
  float const* table = nullptr;
  Index table_rows = 0;
  float log2_theta = 0.0F;  ///< where there is no table

  /// Without a table. **Pre** `theta` > 0.
  [[nodiscard]] static Rope of(RopeStyle style, std::int32_t dims, float theta)
  {
    return {style, dims, nullptr, 0, ::log2f(theta)};
  }

  /// How pair `pair` turns. Positions past the table take its last row: no position leads out of it. **Pre** `position >= 0`.
  [[nodiscard]] KVCACHE_HOST_DEVICE Turn turn(Index position, std::int32_t pair) const
  {
    if (table != nullptr) {
      Index const row = position < table_rows ? position : table_rows - 1;
      float const* const at =
        table + static_cast<std::size_t>(row) * static_cast<std::size_t>(dims) + pair;
      return {at[0], at[dims / 2]};
    }
    float const exponent =
      isa::quotient(-2.0F * static_cast<float>(pair), static_cast<float>(dims));
    float const angle = static_cast<float>(position) * ::exp2f(exponent * log2_theta);
    Turn turn{};
    isa::sine_and_cosine(angle, turn.sin, turn.cos);
    return turn;
  }

  /// Turns two elements that belong together.
  static KVCACHE_HOST_DEVICE void apply(Turn t, float& x, float& y)
  {
    float const before = x;
    x = before * t.cos - y * t.sin;
    y = y * t.cos + before * t.sin;
  }
};

}  // namespace kvcache::inline v0_1
