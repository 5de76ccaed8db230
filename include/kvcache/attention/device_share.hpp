// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device_work.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/isa/reduce.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/block_sum.hpp>

#include <cstddef>
#include <cstdint>

/// \file The kernel that finds which chunks of a step begin with the same pages.
///
///   tables, a step to a column     spans, each over the chunks that share it             what is left to each chunk
///   a  1 2 3 4 5                   level 0   1      a b c d                              a, b  5 .., 6 ..
///   b  1 2 3 4 6                   level 1   2      a b c                                c     7 8 ..
///   c  1 2 7 8                     level 2   3 4    a b                                  d     9 ..
///   d  1 9                                                                               e     2 3 ..
///   e  2 3
///
/// Pages are shared by id, so equal leading ids are equal rows and no token is looked at. Every row that is shared is in one
/// span, so it is loaded once for all who see it, but for spans deeper than `SharedWork::levels`, whose chunks go alone. (In
/// tables that no cache makes, where equal ids follow different ones, some may go alone that need not.)
///
/// Families of chunks that share all rows so far are split round by round. In a round, chunks of a family with the same next
/// page follow the first of them, their leader; each counts the rows that it has in common with the leader. Each such number
/// ends a span of the leader, and those who have the same number are a family of the next round. So a table is read about
/// once, however many rounds there are; a tree of forks of forks takes as many as its branches nest.
/// Source: a prefix as a level of its own, joined by log-sum-exp, is cascade inference: Ye et al., "Cascade Inference",
/// flashinfer.ai, 2024; Juravsky et al., "Hydragen", 2024. The levels are found here, anew each step.

namespace kvcache::inline v0_1 {

/// Fills `work.shared` for the step that `view` shows. One block; any number of threads.
/// Who may share: chunks of up to 16 query rows, a decode or a short draft, whose tokens all see every row before the chunk.
/// No chunk does where layers or heads have tables of their own.
/// **Pre** tokens and chunks of the step are at most the work's; what is beyond them shares nothing.
/// **Cost** of each table's shared part a load an entry, and O(chunks^2) loads of numbers a round, both over the threads.
template <class Layout>
struct ShareRowsKernel {
  BatchView<Layout> view;
  DeviceWork work;

  static constexpr std::int32_t max_threads = 512;
  static constexpr std::int32_t blocks_beside = 1;  // it is alone: registers are there
  static constexpr std::size_t shared_bytes = block_sum_places(max_threads) * sizeof(Index);

  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    Index const given = view.num_chunks();
    Index const chunks = given < work.limits.chunks ? given : work.limits.chunks;
    Index const sharing = start(block, chunks);
    Index spans = 0;
    for (Index left = sharing; left > 1;) {
      follow(block, chunks);
      count_common(block, chunks);
      rank_spans(block, chunks);
      spans = split(block, chunks, spans);
      left = next_round(block, chunks);
    }
    finish(block, chunks, sharing, spans);
  }

 private:
  using Chunk = detail::SharingChunk;
  static constexpr Index nobody = -1;
  static constexpr Index everything = 0x7fffffff;  // what a leader has in common with itself

  [[nodiscard]] KVCACHE_HOST_DEVICE Index step() const { return work.limits.shared_rows; }
  [[nodiscard]] KVCACHE_HOST_DEVICE Chunk& at(Index c) const { return work.shared.chunks[c]; }
  [[nodiscard]] KVCACHE_HOST_DEVICE std::uint32_t page(Index c, Index p) const
  {
    return view.segment.entry(0, 0, at(c).table_row, static_cast<std::uint32_t>(p));
  }

  /// The sum of `count(c)` over the chunks; all threads call it.
  template <ThreadBlock B, class Count>
  KVCACHE_HOST_DEVICE Index sum_over(B& block, Index chunks, Count const& count) const
  {
    Index mine = 0;
    for (Index c = block.thread(); c < chunks; c += block.threads()) {
      mine += count(c);
    }
    return block_sum(block, mine, reinterpret_cast<Index*>(block.shared())).total;
  }

  /// One family of all who may share. Returns how many these are.
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE Index start(B& block, Index chunks) const
  {
    return sum_over(block, chunks, [&](Index c) {
      Chunk chunk{};
      chunk.most = most_shared(c);
      chunk.family = chunk.most > 0 ? 0 : nobody;
      chunk.table_row = chunk.most > 0 ? view.chunk(c).row : nil;
      at(c) = chunk;
      return chunk.most > 0 ? 1 : 0;
    });
  }

  /// Rows that a chunk may share, in whole steps.
  [[nodiscard]] KVCACHE_HOST_DEVICE Index most_shared(Index c) const
  {
    Index const rows = work.query_rows(view, c);
    if (!view.segment.one_table() || rows < 1 || rows > detail::WorkTile::narrow_rows) {
      return 0;
    }
    ChunkView const chunk = view.chunk(c);
    for (Index t = 0; t < chunk.tokens; ++t) {
      if (sight_of(view, work.shape.window, chunk.first_token + t).first > 0) {
        return 0;
      }
    }
    return chunk.first_index > 0 ? chunk.first_index / step() * step() : 0;
  }

  /// Gives each chunk of a family that may share a step more the first one that has the same page at its end.
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void follow(B& block, Index chunks) const
  {
    for (Index c = block.thread(); c < chunks; c += block.threads()) {
      Chunk& chunk = at(c);
      chunk.goes_on = chunk.family != nobody && chunk.spans < SharedWork::levels &&
                      chunk.most >= chunk.known + step();
      chunk.key = chunk.goes_on ? page(c, (chunk.known + step() - 1) / view.map.tokens.get()) : nil;
    }
    block.sync();
    for (Index c = block.thread(); c < chunks; c += block.threads()) {
      Chunk& chunk = at(c);
      Index leader = chunk.goes_on ? 0 : nobody;
      while (
        leader >= 0 && leader < c &&
        !(at(leader).goes_on && at(leader).family == chunk.family && at(leader).key == chunk.key)) {
        ++leader;
      }
      chunk.leader = leader;
    }
    block.sync();
  }

  /// Rows in whole steps that each chunk has in common with its leader; one with none has no leader. A warp to a chunk.
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void count_common(B& block, Index chunks) const
  {
    auto& warp = block.warp();
    std::int32_t const warps = block.threads() / warp_lanes;
    for (Index c = warp.index(); c < chunks; c += warps) {
      Chunk& chunk = at(c);
      Index const leader = chunk.leader;
      Index const common = leader == nobody ? 0
                           : leader == c    ? everything
                                            : common_rows(warp, c, leader);
      warp.sync();  // all lanes have read the leader
      if (warp.lane() == 0) {
        chunk.common = common;
        chunk.leader = common > chunk.known ? leader : nobody;
      }
    }
    block.sync();
  }

  template <class W>
  KVCACHE_HOST_DEVICE Index common_rows(W& warp, Index c, Index leader) const
  {
    constexpr Index at_once = 4;  // entries that a lane asks for before it looks at one
    Index const tokens = view.map.tokens.get();
    Index const most = at(c).most < at(leader).most ? at(c).most : at(leader).most;
    Index const pages = view.tiles_of(most);
    for (Index p = at(c).known / tokens; p < pages; p += at_once * warp_lanes) {
      Index differs = pages;
      for (Index i = at_once - 1; i >= 0; --i) {
        Index const mine = p + i * warp_lanes + warp.lane();
        differs = mine < pages && page(c, mine) != page(leader, mine) ? mine : differs;
      }
      differs = -isa::reduce_max(warp, -differs);
      if (differs < pages) {
        Index const rows = differs * tokens;
        return (rows < most ? rows : most) / step() * step();
      }
    }
    return most;
  }

  /// Which chunk stands for each span of a leader, the first that ends there, and how many spans end no later. Chunks that
  /// would be in more spans than there are levels end where those that fit end.
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void rank_spans(B& block, Index chunks) const
  {
    for (Index c = block.thread(); c < chunks; c += block.threads()) {
      Chunk& chunk = at(c);
      bool first = chunk.leader != nobody && chunk.leader != c;
      for (Index j = 0; first && j < c; ++j) {
        first = !(at(j).leader == chunk.leader && at(j).common == chunk.common);
      }
      chunk.ends_span = first;
    }
    block.sync();
    for (Index c = block.thread(); c < chunks; c += block.threads()) {
      Chunk& chunk = at(c);
      Index rank = 0;
      for (Index j = 0; chunk.leader != nobody && j < chunks; ++j) {
        Chunk const& other = at(j);
        rank += other.ends_span && other.leader == chunk.leader && other.common <= chunk.common;
      }
      chunk.rank = rank;
    }
    block.sync();
    for (Index c = block.thread(); c < chunks; c += block.threads()) {
      Chunk& chunk = at(c);
      Index const room = SharedWork::levels - chunk.spans;
      chunk.end = chunk.leader == nobody ? 0 : chunk.common;
      if (chunk.rank > room && chunk.leader != c) {
        chunk.end = 0;
        for (Index j = 0; j < chunks; ++j) {
          Chunk const& other = at(j);
          bool const fits = other.ends_span && other.leader == chunk.leader && other.rank <= room;
          chunk.end = fits && other.common > chunk.end ? other.common : chunk.end;
        }
      }
    }
    block.sync();
  }

  /// Puts the chunks of each family in order: followers of one leader together, it first, then by how far they go with it;
  /// so each span's chunks lie side by side. Notes the spans, of which there are `spans` so far, and the next round's families.
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE Index split(B& block, Index chunks, Index spans) const
  {
    for (Index first = 0; first < chunks; first += block.threads()) {
      Index const c = first + block.thread();
      bool const here = c < chunks && at(c).family != nobody;
      detail::SharedSpan span{};
      bool const ends = here && ends_here(c, chunks, span);
      auto const sum = block_sum(block, Index{ends}, reinterpret_cast<Index*>(block.shared()));
      if (ends) {
        work.shared.spans[spans + sum.before] = span;
      }
      spans += sum.total;
    }
    return spans;
  }

  /// A chunk's place and what it is next; and whether a span ends with it, which is then `span`.
  KVCACHE_HOST_DEVICE bool ends_here(Index c, Index chunks, detail::SharedSpan& span) const
  {
    Chunk& chunk = at(c);
    Index const leader = chunk.leader;
    Index before = 0;      // of the family
    Index closer = 0;      // chunks that follow the leader further, and itself
    Index not_behind = 0;  // followers that are in this span
    Index same_before = 0;
    Index under = chunk.known;
    Index deepest = chunk.known;
    Index family = nobody;
    for (Index j = 0; j < chunks; ++j) {
      Chunk const& other = at(j);
      if (other.family != chunk.family) {
        continue;
      }
      if (other.leader != leader || leader == nobody) {
        auto const theirs = static_cast<std::uint32_t>(other.leader);  // nobody comes last
        auto const ours = static_cast<std::uint32_t>(leader);
        before += theirs < ours || (theirs == ours && j < c) ? 1 : 0;
        continue;
      }
      closer += other.end > chunk.end ? 1 : 0;
      same_before += other.end == chunk.end && j < c ? 1 : 0;
      not_behind += other.end >= chunk.end ? 1 : 0;
      under = other.end < chunk.end && other.end > under ? other.end : under;
      deepest = j != leader && other.end > deepest ? other.end : deepest;
      family = family == nobody && other.end == chunk.end ? j : family;
    }
    Index const leader_place = chunk.first + before;
    chunk.place = leader_place + closer + same_before;
    bool const follows = leader != nobody && leader != c;
    Index const room = SharedWork::levels - chunk.spans;
    Index const rank = chunk.rank < room ? chunk.rank : room;
    chunk.next_family = follows ? family : nobody;
    chunk.next_first = leader_place + closer;
    chunk.next_known = follows ? chunk.end : deepest;
    chunk.next_spans = chunk.spans + (leader == nobody ? 0 : rank);
    if (!follows || !chunk.ends_span || chunk.rank > room) {
      return false;
    }
    span = {.chunk = leader,
            .first = leader_place,
            .rows = not_behind,
            .begin = under,
            .end = chunk.end,
            .level = chunk.spans + rank - 1};
    return true;
  }

  /// Returns how many chunks are in a family still.
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE Index next_round(B& block, Index chunks) const
  {
    return sum_over(block, chunks, [&](Index c) {
      Chunk& chunk = at(c);
      if (chunk.family == nobody) {
        return 0;
      }
      chunk.family = chunk.next_family;
      chunk.first = chunk.next_first;
      chunk.known = chunk.next_known;
      chunk.spans = chunk.next_spans;
      return chunk.family == nobody ? 0 : 1;
    });
  }

  /// Lays the query rows of chunks in spans side by side, and turns places in spans into such rows.
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void finish(B& block, Index chunks, Index sharing, Index spans) const
  {
    auto* const sums = reinterpret_cast<Index*>(block.shared());
    SharedWork const& shared = work.shared;
    for (Index c = block.thread(); c < chunks; c += block.threads()) {
      if (at(c).most > 0) {
        shared.order[at(c).place] = c;
      }
    }
    block.sync();
    Index rows = 0;
    for (Index first = 0; first < sharing; first += block.threads()) {
      Index const p = first + block.thread();
      Index const c = p < sharing ? shared.order[p] : 0;
      Index const own = p < sharing && at(c).spans > 0 ? work.query_rows(view, c) : 0;
      auto const sum = block_sum(block, own, sums);
      if (p < sharing) {
        Chunk& chunk = at(c);
        chunk.row = rows + sum.before;
        for (Index r = 0; r < own; ++r) {
          shared.rows[chunk.row + r] = {view.chunk_first[c] * work.shape.group() + r,
                                        chunk.spans + 1};
        }
      }
      rows += sum.total;
    }
    block.sync();
    Index tiles = 0;
    for (Index first = 0; first < spans; first += block.threads()) {
      Index const s = first + block.thread();
      detail::SharedSpan span{};
      if (s < spans) {
        span = shared.spans[s];
        Index const last = shared.order[span.first + span.rows - 1];
        span.first = at(shared.order[span.first]).row;
        span.rows = at(last).row + work.query_rows(view, last) - span.first;
        shared.spans[s] = span;
      }
      auto const sum = block_sum(block, detail::WorkTile::tiles_of(span.rows), sums);
      if (s < spans) {
        shared.span_tiles[s] = tiles + sum.before;
      }
      tiles += sum.total;
    }
    if (block.thread() == 0) {
      *shared.counts = {spans, tiles, rows};
    }
  }
};

}  // namespace kvcache::inline v0_1
