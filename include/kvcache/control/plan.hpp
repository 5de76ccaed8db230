// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstdint>

/// \file What one step asks of the devices: the only thing that control hands to a pool.
///
/// A plain value: log it, compare it, send it to another rank. Every pool that applies the same plans in
/// the same order holds the same tables. Order inside a plan: table entries, then moves, one after the other,
/// then copies, in any order, then the step's kernels, which write the planned rows. A copy never reads a page
/// that another copy of the plan fills.
///
/// Cost: a decode step of B sequences is B chunks and, one step in `page_tokens`, one table entry each.

namespace kvcache::inline v0_1 {

/// Entries `first .. first + count - 1` of table row `row` become `Plan::ids[ids_at ...]`.
struct TableDelta {
  RowId row;
  std::uint32_t first;
  std::uint32_t count;
  std::uint32_t ids_at;
  friend bool operator==(TableDelta const&, TableDelta const&) = default;
};

/// The first `rows` rows of every tile of `source` go to `target`.
struct PageCopy {
  PageId source;
  PageId target;
  Index rows;
  friend bool operator==(PageCopy const&, PageCopy const&) = default;
};

/// Row `source_row` of every tile of `source` goes to row `target_row` of `target`: how the rows of an accepted
/// path of a token tree become neighbours. A later move may overwrite what an earlier one read, never the reverse.
struct RowMove {
  PageId source;
  PageId target;
  Index source_row;
  Index target_row;
  friend bool operator==(RowMove const&, RowMove const&) = default;
};

/// A sequence's tokens in the step: rows `first_index .. first_index + tokens - 1` are written. Where drafts of
/// an earlier step are still open, the rows begin up to `slack` earlier, at the length the device holds.
/// The tokens of a tree name their parents, `Plan::parents[parents_at + i]` that of token i: a token before it in the
/// chunk, or -1 for what follows the sequence's rows.
struct PlannedChunk {
  SequenceId sequence;
  RowId row;
  Index first_index;
  Index tokens;
  Index slack = 0;
  std::uint32_t parents_at = nil;  ///< `nil`: no tree, each token follows the one before it
  friend bool operator==(PlannedChunk const&, PlannedChunk const&) = default;
};

/// See the file comment.
struct Plan {
  static constexpr std::uint32_t num_slots = 3 * max_streams;
  static constexpr std::uint32_t format_version = 1;
  static constexpr Index max_tree_tokens =
    64;  ///< of one chunk: a mask of 64 bits says who sees whom

  std::uint32_t version = format_version;
  StepId step{};
  StreamId stream{};
  std::uint32_t slot =
    0;  ///< which of the pool's sets of step arrays; no two steps in flight have the same
  List<TableDelta> tables;
  List<PageId> ids;
  List<RowMove> moves;
  List<PageCopy> copies;
  List<Index> parents;
  List<PlannedChunk> chunks;

  /// Tokens that the step computes. **Cost** O(chunks).
  [[nodiscard]] Index num_tokens() const noexcept
  {
    Index n = 0;
    for (PlannedChunk const& chunk : chunks) {
      n += chunk.tokens;
    }
    return n;
  }
  void clear() noexcept
  {
    step = {};
    stream = {};
    slot = 0;
    tables.clear();
    ids.clear();
    moves.clear();
    copies.clear();
    parents.clear();
    chunks.clear();
  }
  friend bool operator==(Plan const&, Plan const&) = default;
};

}  // namespace kvcache::inline v0_1
