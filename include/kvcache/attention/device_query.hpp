// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/bias.hpp>
#include <kvcache/attention/device_step.hpp>
#include <kvcache/attention/device_work.hpp>
#include <kvcache/attention/left_out.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/once.hpp>
#include <kvcache/core/isa/reduce.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/hidden_rows.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file The query rows of a tile: whose they are, what they see, and how scores become logits.

namespace kvcache::inline v0_1::detail {

/// One query row of a tile, in shared memory.
struct QueryRow {
  Index token;        ///< of the step
  std::int32_t head;  ///< query head
  Index first;        ///< KV rows [first, last) are seen, but for the hidden ones
  Index last;
  HiddenRows hidden;

  /// `query`: token * group + query head of the KV head.
  template <class Layout>
  static KVCACHE_HOST_DEVICE QueryRow
  of(BatchView<Layout> const& view, AttentionShape const& shape, std::int32_t kv_head, Index query)
  {
    Index const token = query / shape.group();
    Sight const sight = sight_of(view, shape.window, token);
    return {token,
            kv_head * shape.group() + query % shape.group(),
            sight.first,
            sight.last,
            view.hidden(token)};
  }
  [[nodiscard]] KVCACHE_HOST_DEVICE bool sees(Index row) const
  {
    return row >= first && row < last && !hidden.at(row);
  }
};

/// What 16 query rows see together; the same in all lanes.
struct TileSight {
  Index first;  ///< rows [first, last) are seen by some of them
  Index last;
  Index clear_first;  ///< rows [clear_first, clear_last) are seen by all of them
  Index clear_last;

  /// **Pre** `rows` has 16.
  template <class W>
  static KVCACHE_HOST_DEVICE TileSight of(W& warp, QueryRow const* rows)
  {
    QueryRow const& row = rows[warp.lane() % 16];
    Index const clear = row.hidden.any() ? row.hidden.first : row.last;
    return {-isa::reduce_max<16>(warp, -row.first),
            isa::reduce_max<16>(warp, row.last),
            isa::reduce_max<16>(warp, row.first),
            -isa::reduce_max<16>(warp, -clear)};
  }
  [[nodiscard]] KVCACHE_HOST_DEVICE bool any(Index row, Index rows) const
  {
    return row < last && row + rows > first;
  }
  [[nodiscard]] KVCACHE_HOST_DEVICE bool all(Index row, Index rows) const
  {
    return row >= clear_first && row + rows <= clear_last;
  }
};

/// Products of queries and keys to logits in units of log2.
template <class Bias>
struct Logits {
  float scale;
  float soft_cap;
  Bias const& bias;

  static constexpr float log2_e = 1.44269504088896340736F;

  /// **Pre** `rows` has 16; column 0 of `s` is KV row `row`. `clear`: every query row sees all of the columns.
  /// Returns whether a score of this lane counts for nothing.
  template <int Rows, class W>
  KVCACHE_HOST_DEVICE bool apply(
    W const& warp, QueryRow const* rows, Index row, bool clear, Fragments<Rows>& s) const
  {
    if (soft_cap > 0.0F) {  // asked once, not for each score
      cap<Rows>(s);
    } else {
      KVCACHE_UNROLL
      for (std::int32_t n = 0; n < Rows / 8; ++n) {
        KVCACHE_UNROLL
        for (std::int32_t j = 0; j < 4; ++j) {
          s[n][j] *= scale * log2_e;
        }
      }
    }
    if (std::is_same_v<Bias, NoBias> && clear) {
      return false;
    }
    bool none = false;
    KVCACHE_UNROLL
    for (std::int32_t i = 0; i < 2; ++i) {
      QueryRow const query = rows[warp.lane() / 4 + 8 * i];
      KVCACHE_UNROLL
      for (std::int32_t n = 0; n < Rows / 8; ++n) {
        KVCACHE_UNROLL
        for (std::int32_t j = 0; j < 2; ++j) {
          Index const at = row + 8 * n + warp.lane() % 4 * 2 + j;
          float& x = s[n][2 * i + j];
          if (!clear && !query.sees(at)) {
            x = no_score;
            none = true;
          } else if constexpr (!std::is_same_v<Bias, NoBias>) {
            auto const b = static_cast<float>(bias(ScoreAt{query.token, query.head, at}));
            bool const out = leaves_out(b);
            x = out ? no_score : x + b * log2_e;  // x may be no number
            none = none || out;
          }
        }
      }
    }
    return none;
  }

 private:
  template <int Rows>
  KVCACHE_HOST_DEVICE void cap(Fragments<Rows>& s) const
  {
    float const slope = scale / soft_cap;
    KVCACHE_UNROLL
    for (std::int32_t n = 0; n < Rows / 8; ++n) {
      KVCACHE_UNROLL
      for (std::int32_t j = 0; j < 4; ++j) {
        s[n][j] = soft_cap * log2_e * ::tanhf(s[n][j] * slope);
      }
    }
  }
};

/// Eight elements of a query, rounded to `Element`. **Pre** `from` is a multiple of 16 bytes.
template <class Element, class Query>
KVCACHE_HOST_DEVICE void load_query(Query const* from, std::uint32_t (&to)[4])
{
  if constexpr (std::is_same_v<Query, float>) {
    KVCACHE_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::uint32_t x[4];
      isa::load_once<4>(x, past(from, 4 * half));
      KVCACHE_UNROLL
      for (int i = 0; i < 2; ++i) {
        std::uint32_t const* const pair = past(x, 2 * i);
        to[2 * half + i] = isa::pack<Element>(__builtin_bit_cast(float, pair[0]),
                                              __builtin_bit_cast(float, pair[1]));
      }
    }
  } else {
    isa::load_once<4>(to, from);
  }
}

}  // namespace kvcache::inline v0_1::detail
