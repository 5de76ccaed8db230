// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/bias.hpp>
#include <kvcache/attention/device_output.hpp>
#include <kvcache/attention/device_query.hpp>
#include <kvcache/attention/device_rows.hpp>
#include <kvcache/attention/device_step.hpp>
#include <kvcache/attention/device_work.hpp>
#include <kvcache/attention/matrix_element.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/isa/async_copy.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file The kernel that attends.
///
/// Both forms go through their units by one loop; what differs is who shares what.
///
///   narrow, up to 16 query rows    warp w has rows 16 w .. 16 w + 15 of each unit and a state of its own: a warp waits for
///                                  nobody but itself until the item ends, where the four states are joined
///   wide, up to 64 query rows      warp w has query rows 16 w .. 16 w + 15 and all rows of each step: the block meets at each K
///                                  and V, since each warp copied a quarter of it
///
/// Shared memory: the ring and the queries, the query rows, what the join needs. Where queries fit into registers, the ring is
/// four times 64 rows of K or V and they come in its last quarter; above head size 128 they stay beside a ring of two.

namespace kvcache::inline v0_1 {

/// One layer's attention over a work list: decode, drafts and chunks of prefill in one launch; see `device.hpp`.
/// `HeadDim` is the layout's, one of `DeviceWork::head_dims`. `Query` and `Out` are float or the layout's element; float
/// queries are rounded to it.
/// **Pre** the work was planned by `PlanWorkKernel` for the step that `view` shows; K and V of its tokens are written. **Post**
/// outputs and logs of items that no share's border cuts are final, of the others after `MergePartsKernel`. Padding gets zeros
/// and -infinity. Nothing of a row reaches a token that does not see it, or for which a bias leaves it out, whatever K and V are:
/// a tensor core multiplies V by a weight of 0, so steps that hide rows take what is no finite number out of V first.
template <class Layout, int HeadDim, class Query, class Out, DeviceScoreBias Bias = NoBias>
struct AttendKernel {
  using Element = typename MatrixElement<typename Layout::element>::type;
  static_assert(std::is_same_v<Query, float> || std::is_same_v<Query, typename Layout::element>,
                "kvcache: queries are float or the layout's element");
  static_assert(std::is_same_v<Out, float> || std::is_same_v<Out, typename Layout::element>,
                "kvcache: outputs are float or the layout's element");
  static_assert(HeadDim >= 64 && HeadDim <= 256 && HeadDim % 16 == 0,
                "kvcache: the device attention has head sizes of 64 to 256 in steps of 16");

  BatchView<Layout> view;
  DeviceWork work;
  std::int32_t layer;
  DeviceTensors<Query, Out> io;
  Bias bias;

  static constexpr std::int32_t warps = 4;
  static constexpr std::int32_t max_threads = warps * warp_lanes;  // and no fewer
  /// Blocks that share a multiprocessor: what registers are kept down for.
  static constexpr std::int32_t blocks_beside = HeadDim <= 64 ? 3 : 2;

 private:
  template <bool Wide>
  using Ring = detail::RowRing<Layout, HeadDim, Wide>;
  using Join = detail::JoinedStates<HeadDim, warps>;
  static constexpr std::int32_t unit_bytes =
    detail::WorkTile::unit_rows * detail::row_bytes<HeadDim>;
  static constexpr bool held = detail::QueryRows<HeadDim>::held;
  template <bool Wide>
  static constexpr std::int32_t queries_at =
    held ? 3 * unit_bytes : Ring<Wide>::slots * Ring<Wide>::slot_bytes;
  static constexpr std::int32_t rows_at =
    held ? 4 * unit_bytes
         : queries_at<false> + detail::WorkTile::narrow_rows * detail::row_bytes<HeadDim>;
  static_assert(held || queries_at<true> + unit_bytes <= rows_at);
  static_assert(warps * Join::warp_floats * static_cast<std::int32_t>(sizeof(float)) <= rows_at);
  static constexpr std::int32_t join_at =
    rows_at + detail::WorkTile::wide_rows * static_cast<std::int32_t>(sizeof(detail::QueryRow));
  static constexpr std::int32_t join_floats = warps * detail::WorkTile::narrow_rows;

 public:
  static constexpr std::size_t shared_bytes =
    join_at + std::size_t{2} * join_floats * sizeof(float);

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    static_assert(ScoreBias<Bias>, "kvcache: a bias is called with a ScoreAt and gives a number");
    auto const shares = detail::WorkShares::of(*work.total, work.limits.blocks);
    if (block.index() >= shares.blocks) {
      return;
    }
    std::int64_t at = shares.first(block.index());
    std::int64_t const stop = shares.first(block.index() + 1);
    for (Index t = work.first_tile[block.index()]; at < stop; ++t) {
      detail::WorkTile const tile = work.tiles[t];
      Index const units = tile.units();
      auto head = static_cast<std::int32_t>((at - tile.start) / units);
      auto first = static_cast<Index>(at - tile.start - std::int64_t{head} * units);
      for (; head < work.shape.kv_heads && at < stop; ++head) {
        std::int64_t const left = stop - at;
        Index const last = left < units - first ? first + static_cast<Index>(left) : units;
        std::int32_t const slot =
          first == 0 && last == units ? -1 : 2 * block.index() + (first == 0 ? 1 : 0);
        attend(block, tile, {head, first, last, slot});
        at += last - first;
        first = 0;
      }
    }
  }

 private:
  /// Units `[first, last)` of an item.
  struct Piece {
    std::int32_t head;
    Index first;
    Index last;
    std::int32_t slot;  // of the state; negative where the piece is the item
  };

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void attend(B& block, detail::WorkTile const& tile, Piece const& piece) const
  {
    if (tile.rows <= detail::WorkTile::narrow_rows) {
      run<false>(block, tile, piece);
    } else {
      run<true>(block, tile, piece);
    }
  }

  template <bool Wide, ThreadBlock B>
  KVCACHE_HOST_DEVICE void run(B& block, detail::WorkTile const& tile, Piece const& piece) const
  {
    using detail::WorkTile;
    using Rows = Ring<Wide>;
    constexpr std::int32_t rows_at_once = Wide ? Rows::step_rows : Rows::warp_rows;
    auto& warp = block.warp();
    std::byte* const memory = block.shared();
    auto* const queries = reinterpret_cast<detail::QueryRow*>(memory + rows_at);
    std::int32_t const count = tile.rows;
    std::int32_t const own_rows = Rows::warp_rows * warp.index();

    Index const stop = (tile.first_unit() + piece.last) * WorkTile::unit_rows;
    Index row = (tile.first_unit() + piece.first) * WorkTile::unit_rows + own_rows;
    Index const end = !Wide && tile.end < stop ? tile.end : stop;
    row += !Wide && row + Rows::warp_rows <= tile.begin ? Rows::step_rows : 0;

    block.sync();  // the item before has left the shared memory
    std::uint32_t const table_row = view.chunk(tile.chunk).row;
    Rows ring(warp, view, layer, piece.head, table_row, memory, row, stop, tile.begin, tile.end);
    for (std::int32_t i = 0; i < Rows::slots - 1; ++i) {
      ring.start(warp);
    }
    load_queries<Wide>(block, tile, piece, queries, memory + queries_at<Wide>);
    block.sync();
    std::int32_t const own_queries = Wide ? WorkTile::narrow_rows * warp.index() : 0;
    detail::QueryRows<HeadDim> const q(
      warp, detail::past(memory, queries_at<Wide> + own_queries * detail::row_bytes<HeadDim>));
    auto const sight = detail::TileSight::of(warp, queries + own_queries);
    if constexpr (!Wide && held) {
      block.sync();  // their place is the ring's from here on
    }

    detail::Logits<Bias> const logits{scale(), work.shape.soft_cap, bias};
    detail::RowStates<HeadDim> state;
    row -= Wide ? own_rows : 0;
    std::int32_t const own_part = Wide ? 0 : own_rows * detail::row_bytes<HeadDim>;
    for (; row < end; row += Rows::step_rows) {
      bool const some = own_queries < count && sight.any(row, rows_at_once);
      bool hides = false;
      detail::Fragments<rows_at_once> s;
      std::byte const* const keys = next_half<Wide>(block, ring) + own_part;
      if (some) {
        detail::scores<Element, HeadDim, rows_at_once>(warp, q, keys, s);
        bool const clear = sight.all(row, rows_at_once);
        bool const none =
          logits.template apply<rows_at_once>(warp, queries + own_queries, row, clear, s);
        hides = (!std::is_same_v<Bias, NoBias> || !clear) && warp.any(none, all_lanes);
        detail::weigh<HeadDim, rows_at_once>(warp, state, s);
      }
      std::byte const* const values = next_half<Wide>(block, ring) + own_part;
      if (some) {
        // Without a bias few steps hide rows: to look first would save little, and ptxas spills.
        bool apart = hides;
        if constexpr (!std::is_same_v<Bias, NoBias>) {
          apart = hides && detail::some_not_finite<Element, HeadDim, rows_at_once>(warp, values);
        }
        detail::add_all_values<Element, HeadDim, rows_at_once>(warp, state, s, values, apart);
      }
    }

    auto const out = detail::TileOut<Element, HeadDim, Out>::of(
      {io.out, io.lse, work.shape.query_heads}, queries, work, tile, piece.head, piece.slot);
    if constexpr (Wide) {
      detail::put_states(warp, state, own_queries, count - own_queries, out);
    } else {
      auto* const floats = reinterpret_cast<float*>(memory + join_at);
      Join const join{reinterpret_cast<float*>(memory), floats, floats + join_floats};
      isa::cp_async_wait<0>(warp);
      block.sync();  // the ring is done with
      join.give(warp, state);
      block.sync();
      join.join(block.thread(), max_threads, count, out);
    }
  }

  /// K or V of the next step, after those who share it have met; a copy starts into the slot that all have left by now.
  template <bool Wide, ThreadBlock B>
  KVCACHE_HOST_DEVICE std::byte const* next_half(B& block, Ring<Wide>& ring) const
  {
    std::byte const* const half = ring.take(block.warp());
    if constexpr (Wide) {
      block.sync();
    } else {
      block.warp().sync();
    }
    ring.start(block.warp());
    return half;
  }

  /// Query rows and what they see. Places behind the last row repeat it, with zeros for a query.
  template <bool Wide, ThreadBlock B>
  KVCACHE_HOST_DEVICE void load_queries(B& block,
                                        detail::WorkTile const& tile,
                                        Piece const& piece,
                                        detail::QueryRow* queries,
                                        std::byte* slot) const
  {
    constexpr std::int32_t places =
      Wide ? detail::WorkTile::wide_rows : detail::WorkTile::narrow_rows;
    constexpr std::int32_t pieces = HeadDim / 8;
    std::int32_t const group = work.shape.group();
    for (std::int32_t r = block.thread(); r < places; r += max_threads) {
      Index const query = work.query(view, tile, r < tile.rows ? r : tile.rows - 1);
      queries[r] = detail::QueryRow::of(view, work.shape, piece.head, query);
    }
    for (std::int32_t j = block.thread(); j < places * pieces; j += max_threads) {
      std::int32_t const r = j / pieces;
      std::uint32_t words[4] = {};
      if (r < tile.rows) {
        Index const query = work.query(view, tile, r);
        auto const token = static_cast<std::size_t>(query / group);
        auto const head = static_cast<std::size_t>(piece.head * group + query % group);
        std::size_t const at = token * static_cast<std::size_t>(work.shape.query_heads) + head;
        detail::load_query<Element>(io.q + at * HeadDim + j % pieces * 8, words);
      }
      auto* const to = reinterpret_cast<std::uint32_t*>(
        detail::past(slot, r * detail::row_bytes<HeadDim> + j % pieces * 16));
      for (int i = 0; i < 4; ++i) {
        to[i] = words[i];
      }
    }
  }

  KVCACHE_HOST_DEVICE float scale() const
  {
    return work.shape.scale > 0.0F ? work.shape.scale : 1.0F / ::sqrtf(static_cast<float>(HeadDim));
  }
};

}  // namespace kvcache::inline v0_1
