// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/device/launch_lists.hpp>
#include <kvcache/pool/meta_map.hpp>
#include <kvcache/pool/page_shape.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// \file A plan as the block that a pool uploads: what goes where, written out for the launches.
///
///   [ head | word runs | moves | copies | index runs | masks | ids | counts, firsts | rows ]
///
/// Places of tokens are not in it: the device counts them up from each chunk's first one.
///
/// Cost: 4 bytes a token, 12 where it or the slot's step before had trees; 36 a chunk; 24 and its ids a table delta;
/// 40 a record of a copy or move, of which `PageShape` says how many there are: two in the plain layout.

namespace kvcache::inline v0_1::detail {

/// What the launches of a plan write.
struct BlockTargets {
  SlotArrays slot;
  std::int32_t* table;
  std::size_t row_pages;
  Index* lengths;
  PageShape pages;
};

/// Where the parts of a block lie, in bytes from its start. Everything up to the masks is a multiple of 8.
struct BlockMap {
  static constexpr std::size_t own_runs = 4;  // counts with firsts; rows; indices of padding; masks

  std::size_t tokens = 0;      // of the step
  std::size_t row_words;       // tokens, and the padding that the slot's step before calls for
  std::size_t masked_now = 0;  // tokens up to the last one of a tree
  std::size_t masked_words;    // the same, of this step or the slot's step before
  LaunchLists lists;
  std::size_t masks_at;
  std::size_t ids_at;
  std::size_t counts_at;
  std::size_t rows_at;
  std::size_t bytes;

  /// `records` are those of one copy or move.
  BlockMap(Plan const& plan,
           std::size_t records,
           std::size_t tokens_before,
           std::size_t masked_before) noexcept
  {
    for (PlannedChunk const& chunk : plan.chunks) {
      tokens += static_cast<std::size_t>(chunk.tokens);
      masked_now = chunk.parents_at != nil ? tokens : masked_now;
    }
    masked_words = masked_now > masked_before ? masked_now : masked_before;
    row_words = tokens > tokens_before ? tokens : tokens_before;
    std::size_t at = sizeof(LaunchLists);
    auto const list = [&at](std::size_t count, std::size_t record_bytes) {
      LaunchList const made{at, count};
      at += count * record_bytes;
      return made;
    };
    lists.words = list(plan.tables.size() + own_runs, sizeof(WordRun));
    lists.moves = list(records * plan.moves.size(), sizeof(StridedCopy));
    lists.copies = list(records * plan.copies.size(), sizeof(StridedCopy));
    lists.runs = list(plan.chunks.size(), sizeof(IndexRun));
    masks_at = list(masked_words, sizeof(std::uint64_t)).at;
    ids_at = list(plan.ids.size(), sizeof(PageId)).at;
    counts_at = list(MetaMap::num_counts + plan.chunks.size() + 1, sizeof(Index)).at;
    rows_at = list(row_words, sizeof(Index)).at;
    bytes = at;
  }

  /// Room for nearly every plan of a pool of these sizes: full of tokens and chunks, each of which enters a page, copies one
  /// and moves four rows. Larger are those that attach long prompts.
  [[nodiscard]] static std::size_t usual_bytes(std::size_t records,
                                               std::size_t max_tokens,
                                               std::size_t max_rows) noexcept
  {
    std::size_t const chunks = max_rows < max_tokens ? max_rows : max_tokens;
    std::size_t const each =
      sizeof(WordRun) + 5 * records * sizeof(StridedCopy) + sizeof(IndexRun) + 2 * sizeof(Index);
    return sizeof(LaunchLists) + own_runs * sizeof(WordRun) +
           (MetaMap::num_counts + 1) * sizeof(Index) + chunks * each +
           max_tokens * (sizeof(std::uint64_t) + sizeof(Index));
  }
};

/// K and V of every layer and head: `bytes` from row `source_row` on go to `target_row`.
inline void write_pieces(StridedCopy* out,
                         PageShape const& pages,
                         RowMove const& move,
                         std::size_t bytes) noexcept
{
  for (std::uint32_t o = 0; o < pages.outer; ++o) {
    for (std::size_t part = 0; part < 2; ++part) {  // neighbours, so that a device may see one run
      std::byte* const section = pages.arena + part * pages.values_at + o * pages.outer_stride;
      *out++ = {section + pages.page_bytes * move.source.value +
                  pages.row_bytes * static_cast<std::size_t>(move.source_row),
                section + pages.page_bytes * move.target.value +
                  pages.row_bytes * static_cast<std::size_t>(move.target_row),
                bytes,
                pages.stride,
                pages.runs};
    }
  }
}

/// The masks of a tree's tokens: each sees itself and what its parent sees.
inline void write_masks(std::uint64_t* masks, Index const* parents, Index tokens) noexcept
{
  for (Index i = 0; i < tokens; ++i) {
    masks[i] = (std::uint64_t{1} << i) | (parents[i] < 0 ? 0 : masks[parents[i]]);
  }
}

/// Writes the block of `plan` to host memory. **Pre** the plan went through `check`; `block` has `map.bytes`.
inline void write_block(Plan const& plan,
                        BlockMap const& map,
                        BlockTargets const& to,
                        std::byte* block) noexcept
{
  std::memcpy(block, &map.lists, sizeof map.lists);
  auto* words = reinterpret_cast<WordRun*>(block + map.lists.words.at);
  auto* moves = reinterpret_cast<StridedCopy*>(block + map.lists.moves.at);
  auto* copies = reinterpret_cast<StridedCopy*>(block + map.lists.copies.at);
  auto* const runs = reinterpret_cast<IndexRun*>(block + map.lists.runs.at);
  auto* const masks = reinterpret_cast<std::uint64_t*>(block + map.masks_at);
  auto* const counts = reinterpret_cast<Index*>(block + map.counts_at);
  auto* const rows = reinterpret_cast<std::uint32_t*>(block + map.rows_at);

  for (TableDelta const& delta : plan.tables) {
    *words++ = {to.table + std::size_t{delta.row.value} * to.row_pages + delta.first,
                map.ids_at + sizeof(PageId) * delta.ids_at,
                delta.count};
  }
  *words++ = {to.slot.counts, map.counts_at, MetaMap::num_counts + plan.chunks.size() + 1};
  *words++ = {reinterpret_cast<std::int32_t*>(to.slot.rows), map.rows_at, map.row_words};
  // Padding has no row and no place, and both are written as the same word.
  *words++ = {to.slot.indices + map.tokens,
              map.rows_at + sizeof(Index) * map.tokens,
              map.row_words - map.tokens};
  *words++ = {reinterpret_cast<std::int32_t*>(to.slot.masks), map.masks_at, 2 * map.masked_words};
  if (!plan.ids.empty()) {
    std::memcpy(block + map.ids_at, plan.ids.data(), plan.ids.size() * sizeof(PageId));
  }

  for (RowMove const& move : plan.moves) {
    bool const stays = move.source == move.target && move.source_row == move.target_row;
    write_pieces(moves, to.pages, move, stays ? 0 : to.pages.row_bytes);
    moves += to.pages.records();
  }
  for (PageCopy const& copy : plan.copies) {
    write_pieces(copies,
                 to.pages,
                 {copy.source, copy.target, 0, 0},
                 to.pages.row_bytes * static_cast<std::size_t>(copy.rows));
    copies += to.pages.records();
  }

  if (map.masked_words != 0) {
    std::memset(masks, 0, map.masked_words * sizeof *masks);
  }
  counts[0] = static_cast<Index>(map.tokens);
  counts[1] = static_cast<Index>(plan.chunks.size());
  counts[2] = static_cast<Index>(plan.step.value);
  Index* const firsts = counts + MetaMap::num_counts;
  std::size_t token = 0;
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    PlannedChunk const& chunk = plan.chunks[c];
    std::uint32_t const row = chunk.row.value;
    std::size_t const end = token + static_cast<std::size_t>(chunk.tokens);
    firsts[c] = static_cast<Index>(token);
    // All of it is accepted, until a kernel says otherwise: its end is the length.
    runs[c] = {
      to.lengths + row, to.slot.indices + token, chunk.first_index, chunk.slack, chunk.tokens};
    if (chunk.parents_at != nil) {
      write_masks(masks + token, plan.parents.data() + chunk.parents_at, chunk.tokens);
    }
    for (; token < end; ++token) {
      rows[token] = row;
    }
  }
  firsts[plan.chunks.size()] = static_cast<Index>(token);
  for (; token < map.row_words; ++token) {  // a captured graph may visit more tokens than there are
    rows[token] = nil;
  }
}

static_assert(static_cast<std::int32_t>(nil) == -1);
static_assert(sizeof(LaunchLists) % 8 == 0 && sizeof(WordRun) % 8 == 0 &&
              sizeof(StridedCopy) % 8 == 0 && sizeof(IndexRun) % 8 == 0);

}  // namespace kvcache::inline v0_1::detail
