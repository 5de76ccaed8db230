// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device_output.hpp>
#include <kvcache/attention/device_work.hpp>
#include <kvcache/attention/left_out.hpp>
#include <kvcache/attention/matrix_element.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/isa/reduce.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// \file Kernels that join states of the same query rows: of the parts of cut items, and of spans of rows that chunks share.

namespace kvcache::inline v0_1 {

namespace detail {

/// Joins `count` states of a query row by one warp; the sum is that of `merge.hpp`, taken in order. `state_at(i)` is the place of
/// the i-th among rows `out` of `HeadDim` and logs `lse`; `put(d, x, y)` takes elements d and d + 1. Returns the log of the sum.
template <int HeadDim, class W, class StateAt, class Put>
KVCACHE_HOST_DEVICE float merge_states(W& warp,
                                       std::int32_t count,
                                       float const* out,
                                       float const* lse,
                                       StateAt const& state_at,
                                       Put const& put)
{
  float most = no_score;
  for (std::int32_t i = warp.lane(); i < count; i += warp_lanes) {
    most = isa::max_float(most, lse[state_at(i)]);
  }
  most = isa::reduce_max(warp, most);
  float const base = most == no_score ? 0.0F : most;

  constexpr std::size_t pieces = (HeadDim + 2 * warp_lanes - 1) / (2 * warp_lanes);
  float x[pieces][2] = {};
  float sum = 0.0F;
  for (std::int32_t i = 0; i < count; ++i) {
    std::size_t const at = state_at(i);
    float const weight = ::expf(lse[at] - base);
    sum += weight;
    float const* const from = out + at * HeadDim;
    KVCACHE_UNROLL
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      std::int32_t const d = 2 * (static_cast<std::int32_t>(piece) * warp_lanes + warp.lane());
      if (d < HeadDim) {
        x[piece][0] += weight * from[d];
        x[piece][1] += weight * from[d + 1];
      }
    }
  }
  float const scale = inverse(sum);
  KVCACHE_UNROLL
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    std::int32_t const d = 2 * (static_cast<std::int32_t>(piece) * warp_lanes + warp.lane());
    if (d < HeadDim) {
      put(d, x[piece][0] * scale, x[piece][1] * scale);
    }
  }
  return or_no_score(sum == 0.0F, base + ::logf(sum));
}

}  // namespace detail

/// Joins the states of the items that borders between shares cut.
/// A block stands at each border. Those whose borders cut the same item divide its rows; one at the edge of an item has
/// nothing to do. **Pre** `AttendKernel` with the same work and tensors lies before it on the stream.
/// **Post** all outputs and logs of the layer are final, but those of chunks that share rows. **Cost** reads each state once;
/// nothing where no item is cut.
template <class Layout, int HeadDim, class Query, class Out>
struct MergePartsKernel {
  using Element = typename MatrixElement<typename Layout::element>::type;

  BatchView<Layout> view;
  DeviceWork work;
  DeviceTensors<Query, Out> io;

  static constexpr std::int32_t max_threads = 128;
  static constexpr std::size_t shared_bytes = 0;

  /// Of the grid.
  [[nodiscard]] std::int32_t blocks() const { return work.limits.blocks - 1; }

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    auto const shares = detail::WorkShares::of(*work.total, work.limits.blocks);
    std::int64_t const border = block.index() + 1;
    if (border >= shares.blocks) {
      return;
    }
    detail::WorkTile const tile = work.tiles[work.first_tile[border]];
    std::int64_t const units = tile.units();
    std::int64_t const head = (shares.first(border) - tile.start) / units;
    std::int64_t const item = tile.start + head * units;
    if (shares.first(border) == item) {
      return;
    }
    auto const first = static_cast<std::int32_t>(shares.block_of(item));
    auto const last = static_cast<std::int32_t>(shares.block_of(item + units - 1));
    std::int32_t const warps = block.threads() / warp_lanes;
    auto& warp = block.warp();
    for (Index r = static_cast<Index>(border - first - 1) * warps + warp.index(); r < tile.rows;
         r += (last - first) * warps) {
      merge(warp, first, last, tile, static_cast<std::int32_t>(head), r);
    }
  }

 private:
  /// One query row, by one warp: states of blocks `first` to `last`.
  template <class W>
  KVCACHE_HOST_DEVICE void merge(W& warp,
                                 std::int32_t first,
                                 std::int32_t last,
                                 detail::WorkTile const& tile,
                                 std::int32_t kv_head,
                                 Index r) const
  {
    // The first block left the item, the others entered it.
    auto const part = [=](std::int32_t i) {
      auto const slot = 2 * static_cast<std::size_t>(first + i) + (i == 0 ? 1U : 0U);
      return slot * detail::WorkTile::wide_rows + static_cast<std::size_t>(r);
    };
    bool const whole = tile.level < 0;
    detail::OutRows<Element, HeadDim, Out> const out{io.out, io.lse, work.shape.query_heads};
    detail::OutRows<Element, HeadDim, float> const states{work.shared.out, work.shared.lse, 0};
    Index const group = work.shape.group();
    Index const query = work.query(view, tile, r);
    std::size_t const row = whole ? out.row_of(query / group, kv_head * group + query % group)
                                  : work.state(tile.level, kv_head, tile.first + r);
    float const log =
      detail::merge_states<HeadDim>(warp,
                                    last - first + 1,
                                    work.part_out,
                                    work.part_lse,
                                    part,
                                    [&](std::int32_t d, float x, float y) {
                                      whole ? out.put(row, d, x, y) : states.put(row, d, x, y);
                                    });
    if (warp.lane() == 0) {
      whole ? out.put_lse(row, log) : states.put_lse(row, log);
    }
  }
};

/// Joins what query rows of chunks that share rows have of each span and of their rest.
/// Any grid; a warp to a row and head. **Pre** `MergePartsKernel` with the same work and tensors lies before it on the stream.
/// **Post** all outputs and logs of the layer are final. **Cost** reads each state once; nothing where no rows are shared.
template <class Layout, int HeadDim, class Query, class Out>
struct MergeSpansKernel {
  using Element = typename MatrixElement<typename Layout::element>::type;

  DeviceWork work;
  DeviceTensors<Query, Out> io;

  static constexpr std::int32_t max_threads = 128;
  static constexpr std::size_t shared_bytes = 0;

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    auto& warp = block.warp();
    std::int32_t const warps = block.threads() / warp_lanes;
    Index const rows = work.shared.counts->rows;
    Index const group = work.shape.group();
    detail::OutRows<Element, HeadDim, Out> const out{io.out, io.lse, work.shape.query_heads};
    for (std::int64_t j = std::int64_t{block.index()} * warps + warp.index();
         j < std::int64_t{rows} * work.shape.kv_heads;
         j += std::int64_t{block.blocks()} * warps) {
      auto const kv_head = static_cast<std::int32_t>(j / rows);
      auto const r = static_cast<Index>(j % rows);
      detail::SharedRow const shared = work.shared.rows[r];
      std::size_t const row =
        out.row_of(shared.query / group, kv_head * group + shared.query % group);
      float const log = detail::merge_states<HeadDim>(
        warp,
        shared.states,
        work.shared.out,
        work.shared.lse,
        [&](std::int32_t level) { return work.state(level, kv_head, r); },
        [&](std::int32_t d, float x, float y) { out.put(row, d, x, y); });
      if (warp.lane() == 0) {
        out.put_lse(row, log);
      }
    }
  }
};

}  // namespace kvcache::inline v0_1
