// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/shape.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail::inline KVCACHE_FLAGS {

/// Where the rows of one block lie, one by one, so that a block may span pages of any length.
template <class T>
struct BlockRows {
  static constexpr Index rows = AttentionOptions::rows_per_block;
  T const* k[rows];
  std::size_t to_value;  // elements from a row's K to its V
};

/// Points `out` at rows `begin + skip .. begin + n - 1` of a sequence. Entries before them repeat the first, so that no
/// table entry behind a window is asked for; the rest repeats the last, so that loops over pairs of rows read only
/// rows that hold tokens. **Pre** `skip < n <= rows`.
template <class Layout>
void find_rows(BatchView<Layout> const& view,
               std::int32_t layer,
               std::int32_t head,
               std::uint32_t row,
               Index begin,
               Index skip,
               Index n,
               BlockRows<typename Layout::element>& out) noexcept
{
  using T = typename Layout::element;
  Index const page_tokens = view.map.tokens.get();
  std::size_t const row_elements = view.map.row_elements();
  out.to_value = view.map.value_elements();
  Index p = (begin + skip) / page_tokens;
  Index left = page_tokens - (begin + skip - p * page_tokens);
  T const* k = view.tile(layer, head, row, p, begin + n).raw().k +
               static_cast<std::size_t>(page_tokens - left) * row_elements;
  for (Index r = 0; r < skip; ++r) {
    out.k[r] = k;
  }
  for (Index r = skip;;) {
    out.k[r] = k;
    if (++r == n) {
      break;
    }
    k += row_elements;
    if (--left == 0) {
      k = view.tile(layer, head, row, ++p, begin + n).raw().k;
      left = page_tokens;
    }
  }
  for (Index r = n; r < BlockRows<T>::rows; ++r) {
    out.k[r] = out.k[n - 1];
  }
}

/// Moves the rows of the first `n` that `hidden` does not name together, and says how many: a block of what one token
/// sees at the edge of its window or in a tree. The other rows are then not read, whatever they hold. The rest repeats the last.
template <class T>
[[nodiscard]] std::size_t drop_rows(BlockRows<T> const& from,
                                    std::size_t n,
                                    std::uint64_t hidden,
                                    BlockRows<T>& to) noexcept
{
  std::size_t kept = 0;
  for (std::size_t r = 0; r < n; ++r) {
    if ((hidden >> r & 1) == 0) {
      to.k[kept++] = from.k[r];
    }
  }
  for (std::size_t r = kept; kept > 0 && r < BlockRows<T>::rows; ++r) {
    to.k[r] = to.k[kept - 1];
  }
  to.to_value = from.to_value;
  return kept;
}

}  // namespace kvcache::inline v0_1::detail::inline KVCACHE_FLAGS
