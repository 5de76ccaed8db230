// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/bits.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/hidden_rows.hpp>
#include <kvcache/view/segment_view.hpp>
#include <kvcache/view/team.hpp>
#include <kvcache/view/tile_view.hpp>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#if KVCACHE_CHECK_VIEWS
#include <kvcache/core/check.hpp>
#endif

/// \file What a kernel sees of one step: the tokens of the batch, where to store their rows, what to read.
///
///   tokens of the step   0 1 2 3 | 4 | 5 6      three chunks: a prefill of 4, a decode, a draft of 2
///   row, index           a:8..11 | b:70| c:3,4   table row of the sequence, place in the sequence
///
/// An engine's loop over it is four lines:
///
///   kv.append(team, layer, head, token, k, v);            // store; k turned by position(token)
///   for (auto tile : kv.tiles(layer, head, token))        // read rows 0 .. index(token), causal
///     for (Index r = 0; r < tile.rows(); ++r) ... tile.key(r, d) ... tile.value(r, d) ... tile.bias(r)
///
/// The tokens of a tree of drafts lie in rows one after the other, like any chunk's, but each sees only its path:
/// `bias` takes the other branches out, `hidden` says which they are, and siblings share a position.
///
/// The view is trivially copyable and holds pointers only: what changes from step to step lies in device
/// memory behind them, so a captured graph may keep the view.

namespace kvcache::inline v0_1 {

/// One chunk of a step: the tokens that one sequence computes in it.
struct ChunkView {
  Index first_token;  ///< of the step
  Index tokens;
  Index first_index;  ///< place in the sequence of the first of them
  std::uint32_t row;  ///< table row of the sequence
};

/// The step's tokens and the pages behind them; see the file comment.
template <class Layout>
struct BatchView {
  using element = typename Layout::element;
  using Tile = TileView<Layout>;
  using Map = typename Layout::Map;

  SegmentView segment;
  Map map;
  Index const* counts;             ///< {tokens, chunks, number} of the step
  std::uint32_t const* token_row;  ///< `[max tokens]` table row, `nil` for padding
  Index const* token_index;        ///< `[max tokens]` place in the sequence, negative for padding
  Index const* chunk_first;        ///< `[max chunks + 1]` first token of each chunk
  Index* lengths = nullptr;        ///< `[table rows]` rows of each sequence that hold tokens
  /// `[max tokens]` who sees whom in a token tree: bit i says that the token sees the i-th token of its chunk, itself
  /// (the highest bit) and its ancestors. 0: no tree, the token sees every row up to its own. Null: no trees at all.
  std::uint64_t const* token_mask = nullptr;
  /// The number of the step that the view was made for, or 0 for whichever step the arrays hold, as a captured graph
  /// wants. In builds without `NDEBUG` kernels assert that it is the one.
  std::uint64_t step = 0;

  /// This view for one step alone, or for any: `of({})`.
  [[nodiscard]] KVCACHE_HOST_DEVICE BatchView of(StepId of_step) const
  {
    BatchView view = *this;
    view.step = of_step.value;
    return view;
  }
  /// Whether the arrays hold another step by now: whoever kept the view would write that step's rows. **Cost** one load.
  [[nodiscard]] KVCACHE_HOST_DEVICE bool stale() const
  {
    return step != 0 && static_cast<std::uint32_t>(counts[2]) != static_cast<std::uint32_t>(step);
  }

  KVCACHE_HOST_DEVICE Index num_tokens() const { return counts[0]; }
  KVCACHE_HOST_DEVICE Index num_chunks() const { return counts[1]; }
  /// The place of `token`'s row in its sequence, negative for padding; for RoPE see `position`.
  KVCACHE_HOST_DEVICE Index index(Index token) const { return token_index[token]; }
  /// How many tokens come before `token` in its text: RoPE's position. Its index, but in a tree the rows before the
  /// chunk and its ancestors, so that siblings share a position. Negative for padding.
  KVCACHE_HOST_DEVICE Index position(Index token) const
  {
    Index const index = token_index[token];
    std::uint64_t const mask = tree_mask(token);
    return mask == 0 ? index : index - highest_bit(mask) + count_bits(mask) - 1;
  }
  /// The rows before its own that `token` must not see; none where it is in no tree. For kernels that walk `tile`.
  KVCACHE_HOST_DEVICE HiddenRows hidden(Index token) const
  {
    std::uint64_t const mask = tree_mask(token);
    return mask == 0 ? HiddenRows{} : HiddenRows::of(token_index[token], mask);
  }
  /// **Pre** `c < num_chunks()`; a chunk holds at least one token.
  KVCACHE_HOST_DEVICE ChunkView chunk(Index c) const
  {
    Index const first = chunk_first[c];
    return {first, chunk_first[c + 1] - first, token_index[first], token_row[first]};
  }

  /// Tells later steps how many rows of the chunk's sequence hold tokens: the kernel that rejects a draft
  /// lowers it. Without a call everything is accepted. **Pre** `c < num_chunks()`.
  KVCACHE_HOST_DEVICE void set_length(Index c, Index rows) const
  {
    lengths[token_row[chunk_first[c]]] = rows;
  }

  /// Where K of `token`'s row is stored for (layer, KV head); V is `map.value_elements()` behind it. Null where nothing is
  /// to be stored: for padding, and where the table has no page that may be written. **Cost** a few loads, one division.
  /// **Errors** a token beyond those of the view's step, as with `tiles`, see `expect_token`.
  KVCACHE_HOST_DEVICE element* row_of(std::int32_t layer, std::int32_t head, Index token) const
  {
    assert(!stale() && "kvcache: this view is of a step that is over; take the new step's");
    expect_token(token);
    Index const index = token_index[token];
    auto const l = static_cast<std::uint32_t>(layer);
    auto const h = static_cast<std::uint32_t>(head);
    Index const p = index / map.tokens.get();
    std::uint32_t const page =
      index < 0 ? 0 : segment.page_to_store(l, h, token_row[token], static_cast<std::uint32_t>(p));
    if (page == 0) {
      return nullptr;
    }
    return reinterpret_cast<element*>(segment.tile(l, h, page)) +
           static_cast<std::size_t>(index - p * map.tokens.get()) * map.row_elements();
  }

  /// Stores K and V of `token`'s row for (layer, KV head); each member of `team` stores a part.
  /// Padding, and entries that are no page of the pool, are skipped. **Shape** k, v `(head_dim)`.
  /// **Units** `U` is float or the element type. **Cost** one row written.
  template <Team T, class U>
  KVCACHE_HOST_DEVICE void append(
    T const& team, std::int32_t layer, std::int32_t head, Index token, U const* k, U const* v) const
  {
    element* const keys = row_of(layer, head, token);
    if (keys == nullptr) {
      return;
    }
    element* const values = keys + map.value_elements();
    for (std::int32_t d = team.rank(); d < map.dim.get(); d += team.size()) {
      if constexpr (std::is_same_v<U, element>) {
        keys[d] = k[d];
        values[d] = v[d];
      } else {
        keys[d] = ElementTraits<element>::from_float(ElementTraits<U>::to_float(k[d]));
        values[d] = ElementTraits<element>::from_float(ElementTraits<U>::to_float(v[d]));
      }
    }
  }

  /// Tiles that hold the first `rows` rows of a sequence. **Cost** one division.
  KVCACHE_HOST_DEVICE Index tiles_of(Index rows) const
  {
    return (rows + map.tokens.get() - 1) / map.tokens.get();
  }

  /// The `p`-th tile of table row `row` of a sequence of which `rows` rows are read, without those in `hidden`.
  /// **Pre** `p < tiles_of(rows)`.
  KVCACHE_HOST_DEVICE Tile tile(std::int32_t layer,
                                std::int32_t head,
                                std::uint32_t row,
                                Index p,
                                Index rows,
                                HiddenRows hidden = {}) const
  {
    auto const l = static_cast<std::uint32_t>(layer);
    auto const h = static_cast<std::uint32_t>(head);
    Index const first = p * map.tokens.get();
    Index const left = rows - first;
    std::uint32_t const page = segment.entry(l, h, row, static_cast<std::uint32_t>(p));
    return {segment.tile(l, h, page),
            map,
            first,
            left < map.tokens.get() ? left : map.tokens.get(),
            hidden};
  }

  /// A range over the tiles of one (layer, KV head) that `token` may see, its own row included. In a tree, rows of
  /// other branches are among them, and so tiles of nothing else: `bias` and `hidden` take them out.
  class Tiles {
   public:
    struct Iterator {
      BatchView const* view;
      std::int32_t layer;
      std::int32_t head;
      std::uint32_t row;
      Index rows;
      HiddenRows hidden;
      Index p;
      KVCACHE_HOST_DEVICE Tile operator*() const
      {
        return view->tile(layer, head, row, p, rows, hidden);
      }
      KVCACHE_HOST_DEVICE Iterator& operator++()
      {
        ++p;
        return *this;
      }
      KVCACHE_HOST_DEVICE bool operator!=(Iterator const& other) const { return p != other.p; }
    };
    KVCACHE_HOST_DEVICE Tiles(BatchView const* view,
                              std::int32_t layer,
                              std::int32_t head,
                              std::uint32_t row,
                              Index rows,
                              HiddenRows hidden)
        : first_{view, layer, head, row, rows, hidden, 0}
    {
    }
    KVCACHE_HOST_DEVICE Iterator begin() const { return first_; }
    KVCACHE_HOST_DEVICE Iterator end() const
    {
      Iterator last = first_;
      last.p = first_.view->tiles_of(first_.rows);
      return last;
    }

   private:
    Iterator first_;
  };

  /// See `Tiles`. **Pre** the view outlives the range. Padding has no tiles.
  KVCACHE_HOST_DEVICE Tiles tiles(std::int32_t layer, std::int32_t head, Index token) const&
  {
    assert(!stale() && "kvcache: this view is of a step that is over; take the new step's");
    expect_token(token);
    Index const index = token_index[token];
    return {this, layer, head, token_row[token], index < 0 ? 0 : index + 1, hidden(token)};
  }
  /// A loop over `step.view().tiles(...)` would read a view that is gone: give the view a name.
  Tiles tiles(std::int32_t layer, std::int32_t head, Index token) const&& = delete;

 private:
  /// Beyond a step's tokens its arrays hold padding, for graphs, whose views are of any step; who has the view of one step
  /// took it for larger than it is. **Errors** the failure hook, on hosts whose calls are checked.
  KVCACHE_HOST_DEVICE void expect_token([[maybe_unused]] Index token) const
  {
#if KVCACHE_CHECK_VIEWS
    KVCACHE_EXPECTS(step == 0 || (token >= 0 && token < counts[0]),
                    "kvcache: the step has no such token; it computes what step.tokens() says, "
                    "view.num_tokens() of them, which may be fewer than it was given");
#endif
  }
  KVCACHE_HOST_DEVICE std::uint64_t tree_mask(Index token) const
  {
    return token_mask == nullptr ? 0 : token_mask[token];
  }
};

}  // namespace kvcache::inline v0_1
