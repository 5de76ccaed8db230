// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/bits.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstdint>

/// \file Which rows a token sees.
///
///   causal            rows 0 .. its own
///   window of 4       . . . x x x x           its own and the 3 before it
///   in a tree         the window counts along the token's path, so rows of other branches take no place in it
///   two-way span      all rows of the span, whatever the window, and what it sees besides

namespace kvcache::inline v0_1 {

/// The rows `[first, last)` of its sequence that a token sees, without those that a tree hides.
/// Padding sees none.
struct Sight {
  Index first = 0;
  Index last = 0;
};

/// Tokens of a step that see each other both ways: a picture's, or those of a text that is read both ways.
/// They lie in one chunk, as rows of an atomic span do.
struct TwoWaySpan {
  Index first_token = 0;  ///< of the step
  Index tokens = 0;
};

/// What `token` sees by itself and its window; spans come on top. **Units** `window` counts rows, the token's
/// own included; 0 is all. **Cost** some instructions; in a tree with a window, one for each ancestor.
template <class Layout>
KVCACHE_HOST_DEVICE Sight sight_of(BatchView<Layout> const& view, Index window, Index token)
{
  Index const index = view.index(token);
  if (index < 0) {
    return {};
  }
  Sight sight{0, index + 1};
  if (window <= 0) {
    return sight;
  }
  std::uint64_t path = view.token_mask == nullptr ? 0 : view.token_mask[token];
  Index before = index;  // rows that precede the chunk's part of the path
  Index seen = 1;        // rows of the path in the chunk
  if (path != 0) {
    before -= highest_bit(path);
    seen = count_bits(path);
  }
  if (seen < window) {
    sight.first = before > window - seen ? before - (window - seen) : 0;
    return sight;
  }
  for (; seen > window; --seen) {
    path &= path - 1;  // ancestors go from the lowest bit up
  }
  sight.first = path == 0 ? index : before + highest_bit(path & (~path + 1));
  return sight;
}

}  // namespace kvcache::inline v0_1
