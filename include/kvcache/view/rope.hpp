// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
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
  Index table_rows = 0;  ///< positions that the table has; see `validate`
  /// Without a table, and for the positions behind one that is made of it. 0 beside a table: those are not known, and `turn`
  /// gives no number for them, which shows in whatever they reach.
  float log2_theta = 0.0F;

  /// Without a table. **Pre** `theta` > 0.
  [[nodiscard]] static Rope of(RopeStyle style, std::int32_t dims, float theta)
  {
    return {style, dims, nullptr, 0, ::log2f(theta)};
  }

  /// The first field that cannot work for heads of `head_dim` and `positions` positions, or `Why::ok`: on the host, before
  /// kernels take it. **Errors** `bad_config` names `dims`, `table_rows` or `positions`.
  [[nodiscard]] constexpr Error validate(std::int32_t head_dim, Index positions) const noexcept
  {
    if (style == RopeStyle::none && dims != 0) {
      return {Why::bad_config, "dims", dims, "must be what turns; with RopeStyle::none", 0};
    }
    if (dims < 0 || dims % 2 != 0 || dims > head_dim) {
      return {Why::bad_config, "dims", dims, "must be even and at most the head size,", head_dim};
    }
    if (positions < 0) {
      return {Why::bad_config, "positions", positions, "must be at least", 0};
    }
    if (dims != 0 && !knows(positions - 1)) {
      return {Why::bad_config,
              "table_rows",
              table_rows,
              "without log2_theta a table has a row for each position of the longest context,",
              positions};
    }
    return {};
  }

  /// Whether there is an angle for `position`.
  [[nodiscard]] KVCACHE_HOST_DEVICE constexpr bool knows(Index position) const noexcept
  {
    return table == nullptr || position < table_rows || log2_theta != 0.0F;
  }

  /// How pair `pair` turns; no number where that is not known. No position leads out of the table. **Pre** `position >= 0`.
  [[nodiscard]] KVCACHE_HOST_DEVICE Turn turn(Index position, std::int32_t pair) const
  {
    if (table != nullptr && position < table_rows) {
      float const* const at =
        table + static_cast<std::size_t>(position) * static_cast<std::size_t>(dims) + pair;
      return {at[0], at[dims / 2]};
    }
    bool const unknown = table != nullptr && log2_theta == 0.0F;  // `knows`, in as few registers
    float const exponent =
      isa::quotient(-2.0F * static_cast<float>(pair), static_cast<float>(dims));
    float const log2 = unknown ? __builtin_bit_cast(float, 0x7fc00000U) : log2_theta;
    float const angle = static_cast<float>(position) * ::exp2f(exponent * log2);
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
