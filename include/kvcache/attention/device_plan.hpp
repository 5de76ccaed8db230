// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device_work.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/block_sum.hpp>

#include <cstddef>
#include <cstdint>

/// \file The kernel that makes a step's work list on the device, from chunks and lengths that may be known there only.

namespace kvcache::inline v0_1 {

/// Fills a `DeviceWork` for the step that `view` shows. One block; any number of threads.
/// **Pre** tokens and chunks of the step are at most the work's; chunks beyond them are left out. Where `limits.shared_rows` is
/// not 0, `ShareRowsKernel` lies before it.
/// **Cost** O(tiles + chunks + blocks) / threads loads, with a tree of drafts also one for each of its tokens.
template <class Layout>
struct PlanWorkKernel {
  BatchView<Layout> view;
  DeviceWork work;

  static constexpr std::int32_t max_threads = 256;
  static constexpr std::size_t shared_bytes = block_sum_places(max_threads) * sizeof(std::int64_t);

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    auto* const sums = reinterpret_cast<std::int64_t*>(block.shared());
    Index const given = view.num_chunks();
    Index const chunks = given < work.limits.chunks ? given : work.limits.chunks;
    std::int64_t before = 0;
    for (Index first = 0; first < chunks; first += block.threads()) {
      Index const c = first + block.thread();
      Index const rows = c < chunks ? work.query_rows(view, c) : 0;
      auto const scan = block_sum<B, std::int64_t>(block, detail::WorkTile::tiles_of(rows), sums);
      if (c < chunks) {
        work.chunk_tiles[c] = static_cast<Index>(before + scan.before);
      }
      before += scan.total;
    }
    Index const most = DeviceWork::max_tiles(work.shape, work.limits);
    Index const of_spans = work.limits.shared_rows > 0 ? work.shared.counts->tiles : 0;
    before += of_spans;
    Index const tiles = before < most ? static_cast<Index>(before) : most;
    block.sync();  // chunk_tiles

    std::int64_t total = 0;
    for (Index first = 0; first < tiles; first += block.threads()) {
      Index const t = first + block.thread();
      detail::WorkTile tile{};
      if (t < tiles) {
        tile = t < of_spans ? span_tile(t) : tile_of(t - of_spans, chunks);
      }
      std::int64_t const units = t < tiles ? tile.units() : 0;
      auto const scan = block_sum(block, units * work.shape.kv_heads, sums);
      if (t < tiles) {
        tile.start = total + scan.before;
        work.tiles[t] = tile;
      }
      total += scan.total;
    }
    if (block.thread() == 0) {
      *work.total = total;
    }
    block.sync();  // tiles

    auto const shares = detail::WorkShares::of(total, work.limits.blocks);
    for (std::int32_t b = block.thread(); b < shares.blocks; b += block.threads()) {
      work.first_tile[b] = detail::last_not_above(
        [&](Index t) { return work.tiles[t].start; }, tiles, shares.first(b));
    }
  }

 private:
  /// A tile of rows that chunks share.
  KVCACHE_HOST_DEVICE detail::WorkTile span_tile(Index t) const
  {
    SharedWork const& shared = work.shared;
    Index const s = detail::last_not_above(
      [&](Index i) { return shared.span_tiles[i]; }, shared.counts->spans, t);
    detail::SharedSpan const span = shared.spans[s];
    Index const size = detail::WorkTile::rows_of(span.rows);
    Index const first = (t - shared.span_tiles[s]) * size;
    Index const left = span.rows - first;
    return {.start = 0,
            .chunk = span.chunk,
            .first = span.first + first,
            .rows = left < size ? left : size,
            .begin = span.begin,
            .end = span.end,
            .level = span.level};
  }

  KVCACHE_HOST_DEVICE detail::WorkTile tile_of(Index t, Index chunks) const
  {
    Index const c = detail::last_not_above([&](Index i) { return work.chunk_tiles[i]; }, chunks, t);
    ChunkView const chunk = view.chunk(c);
    Index const group = work.shape.group();
    Index const rows = chunk.tokens * group;
    Index const first = (t - work.chunk_tiles[c]) * detail::WorkTile::rows_of(rows);
    Index const after = first + detail::WorkTile::rows_of(rows);
    Index const last = (after < rows ? after : rows) - 1;
    detail::WorkTile tile{.start = 0,
                          .chunk = c,
                          .first = first,
                          .rows = last + 1 - first,
                          .begin = 0,
                          .end = 0,
                          .level = -1};
    // In a chain the ends say it all; in a tree a window starts anywhere.
    Index const first_token = chunk.first_token + first / group;
    Index const last_token = chunk.first_token + last / group;
    bool const tree = view.token_mask != nullptr && view.token_mask[first_token] != 0;
    Index const step = tree || last_token == first_token ? 1 : last_token - first_token;
    for (Index token = first_token; token <= last_token; token += step) {
      Sight const sight = sight_of(view, work.shape.window, token);
      if (sight.last > sight.first) {
        tile.begin = tile.end == 0 || sight.first < tile.begin ? sight.first : tile.begin;
        tile.end = sight.last > tile.end ? sight.last : tile.end;
      }
    }
    if (work.limits.shared_rows > 0 && work.shared.chunks[c].spans > 0) {
      detail::SharingChunk const& sharing = work.shared.chunks[c];
      tile.begin = sharing.known;
      tile.first += sharing.row;
      tile.level = sharing.spans;
    }
    return tile;
  }
};

}  // namespace kvcache::inline v0_1
