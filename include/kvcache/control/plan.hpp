// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <vector>

/// \file What one step asks of the devices: the only thing that control hands to a pool.
///
/// A plain value: log it, compare it, send it to another rank. Every pool that applies the same plans in
/// the same order holds the same tables. Order inside a plan: table entries, then copies, then the step's
/// kernels, which write the planned rows. A copy never reads a page that the same plan fills.
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

/// A sequence's tokens in the step: rows `first_index .. first_index + tokens - 1` are written. Where drafts of
/// an earlier step are still open, the rows begin up to `slack` earlier, at the length the device holds.
struct PlannedChunk {
  SequenceId sequence;
  RowId row;
  Index first_index;
  Index tokens;
  Index slack = 0;
  friend bool operator==(PlannedChunk const&, PlannedChunk const&) = default;
};

/// See the file comment.
struct Plan {
  static constexpr std::uint32_t num_slots = 3 * max_streams;
  static constexpr std::uint32_t format_version = 1;

  std::uint32_t version = format_version;
  StepId step{};
  StreamId stream{};
  std::uint32_t slot =
    0;  ///< which of the pool's sets of step arrays; no two steps in flight have the same
  std::vector<TableDelta> tables;
  std::vector<PageId> ids;
  std::vector<PageCopy> copies;
  std::vector<PlannedChunk> chunks;

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
    copies.clear();
    chunks.clear();
  }
  friend bool operator==(Plan const&, Plan const&) = default;
};

}  // namespace kvcache::inline v0_1
