// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device_output.hpp>
#include <kvcache/attention/device_work.hpp>
#include <kvcache/attention/matrix_element.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/isa/reduce.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1 {

/// Joins the states of the items that borders between shares cut; the sum is that of `merge.hpp`, taken over parts in order.
/// A block stands at each border. Those whose borders cut the same item divide its rows; one at the edge of an item has
/// nothing to do. **Pre** `AttendKernel` with the same work and tensors lies before it on the stream.
/// **Post** all outputs and logs of the layer are final. **Cost** reads each state once; nothing where no item is cut.
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
    ChunkView const chunk = view.chunk(tile.chunk);
    Index const group = work.shape.group();
    Index const rows = chunk.tokens * group - tile.first;
    Index const count = rows < detail::WorkTile::wide_rows ? rows : detail::WorkTile::wide_rows;
    for (Index r = static_cast<Index>(border - first - 1) * warps + warp.index(); r < count;
         r += (last - first) * warps) {
      Index const row = tile.first + r;
      merge(warp,
            first,
            last,
            r,
            chunk.first_token + row / group,
            static_cast<std::int32_t>(head) * group + row % group);
    }
  }

 private:
  /// One query row, by one warp: states of blocks `first` to `last`.
  template <class W>
  KVCACHE_HOST_DEVICE void merge(
    W& warp, std::int32_t first, std::int32_t last, Index r, Index token, std::int32_t head) const
  {
    // The first block left the item, the others entered it.
    auto const part = [=](std::int32_t b) {
      auto const slot = 2 * static_cast<std::size_t>(b) + (b == first ? 1U : 0U);
      return slot * detail::WorkTile::wide_rows + static_cast<std::size_t>(r);
    };
    float most = detail::no_score;
    for (std::int32_t b = first + warp.lane(); b <= last; b += warp_lanes) {
      most = isa::max_float(most, work.part_lse[part(b)]);
    }
    most = isa::reduce_max(warp, most);
    float const base = most == detail::no_score ? 0.0F : most;

    constexpr std::size_t pieces = (HeadDim + 2 * warp_lanes - 1) / (2 * warp_lanes);
    float x[pieces][2] = {};
    float sum = 0.0F;
    for (std::int32_t b = first; b <= last; ++b) {
      float const weight = ::expf(work.part_lse[part(b)] - base);
      sum += weight;
      float const* const from = work.part_out + part(b) * HeadDim;
      KVCACHE_UNROLL
      for (std::size_t i = 0; i < pieces; ++i) {
        std::int32_t const d = 2 * (static_cast<std::int32_t>(i) * warp_lanes + warp.lane());
        if (d < HeadDim) {
          x[i][0] += weight * from[d];
          x[i][1] += weight * from[d + 1];
        }
      }
    }
    float const scale = detail::inverse(sum);
    detail::OutRows<Element, HeadDim, Out> const out{io.out, io.lse, work.shape.query_heads};
    std::size_t const row = out.row_of(token, head);
    KVCACHE_UNROLL
    for (std::size_t i = 0; i < pieces; ++i) {
      std::int32_t const d = 2 * (static_cast<std::int32_t>(i) * warp_lanes + warp.lane());
      if (d < HeadDim) {
        out.put(row, d, x[i][0] * scale, x[i][1] * scale);
      }
    }
    if (warp.lane() == 0) {
      out.put_lse(row, sum == 0.0F ? detail::no_score : base + ::logf(sum));
    }
  }
};

}  // namespace kvcache::inline v0_1
