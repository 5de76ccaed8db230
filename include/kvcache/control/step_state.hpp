// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/plan.hpp>
#include <kvcache/control/reclaimed.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file What control keeps of one step: enough to undo it, and to finish it.

namespace kvcache::inline v0_1::detail {

/// What `add` did for one chunk. Rows of a chunk, in the order of the sequence:
/// [ attached: found in the tree ][ tokens: planned, written by the step ]
struct ChunkState {
  // Of a type without one g++ clears objects by `rep stos`, a tenth of a decode step.
  ChunkState() noexcept {}  // NOLINT(modernize-use-equals-default)

  // One cache line of what most chunks need ...
  SequenceId sequence{};
  std::size_t first_token =
    0;                       // of the attached ones, in the step's tokens; a count has none there
  Index attached = 0;        // rows
  Index tokens = 0;          // rows planned
  Index first_index = 0;     // of the first planned row, if earlier drafts are accepted whole
  Index slack = 0;           // how much earlier it may begin
  bool named = false;        // the tokens are known
  bool draft = false;        // may be accepted in part
  bool in_place = false;     // its rows lie in a page that its sequence has, as they are: all that
                             // follows `bound_before` is as it was made
  bool unpublished = false;  // the part page left the index to be written in place
  bool orphan = false;    // its sequence was closed, cut or suspended: the result counts for nobody
  bool dead = false;      // an earlier step that it depends on failed
  bool unwanted = false;  // an orphan that need not be computed
  bool planned = false;   // it is in the plan
  bool completes = false;      // it was committed, and its sequence has a whole page to publish
  bool tree = false;           // its tokens have parents, in the step's list from `parents_at` on
  PageCount pages_before = 0;  // of the table, before the chunk
  StepId bound_before{};       // of the sequence
  // ... and a second one.
  std::uint32_t parents_at = 0;
  Index first_moved = -1;  // the first row of its sequence that its plan moves, once submitted ...
  Index moved_until = 0;   // ... from rows before this one
  PageCount taken = 0;     // pages from the pool: the new ones, and a copy's target last
  PageCount from_waiting = 0;  // of these, the last so many came from the stream's waiting pages
  PageId copy_source = zero_page;  // the shared page that is copied; the step holds it
  PageId copy_target = zero_page;  // nobody holds it for the chunk: see `is_copy`
  std::uint32_t target_use = 0;    // of the target when it was taken
  PageCount copy_at = 0;           // its place in the table
  Index copy_rows = 0;
  std::size_t reclaimed = 0;    // entries of the step's journal before the chunk
  PageCount pending_at = 0;     // in the step's pending pages
  PageCount pending = 0;        // pages that the chunk makes pending
  PageCount pending_index = 0;  // place of the first in the tables of those who hold it
  PageCount orphan_at = 0;      // in the step's orphan tables: the table of an orphan that is
  PageCount orphan_pages = 0;   // computed all the same, for those who attached ...
  RowId orphan_row{};           // ... and its row

  [[nodiscard]] bool copies() const noexcept { return copy_source != zero_page; }
  /// Its result changes the sequence.
  [[nodiscard]] bool counts() const noexcept { return !orphan && !dead; }
  /// The end of its rows, if everything is accepted.
  [[nodiscard]] Index end() const noexcept { return first_index + tokens; }
};

static_assert(std::is_trivially_copyable_v<ChunkState> && sizeof(ChunkState) <= 128);

/// A step from `begin` to its end. The object is used again, so that steps allocate nothing in the long run.
struct StepState {
  enum class Stage : std::uint8_t { none, open, submitted };

  StepId id{};
  StreamId stream{};
  Stage stage = Stage::none;
  bool attach = false;    // see `StepOptions`
  bool doomed = false;    // it fails as soon as the steps before it have retired
  bool orphaned = false;  // some of its chunks lost their sequence
  List<ChunkState> chunks;
  std::size_t planned_tokens = 0;
  List<Token> tokens;   // of all named chunks, in the order of `add`
  List<Index> parents;  // of all trees
  List<PageId>
    pending;  // pages in the index that only this stream may use yet; the step holds them
  List<PageId>
    orphans;  // pages let go by sequences of the step while it was open; the step holds them
  List<PageId> orphan_tables;         // of chunks that are computed without their sequence
  std::size_t orphan_table_room = 0;  // how many pages these may become
  std::size_t orphan_room = 0;        // how many pages may become orphans
  List<RowId> rows;                   // table rows that kernels may still read
  Reclaimed reclaimed;
  Plan plan;

  /// The table of an orphan that is computed all the same; empty for one that is not.
  [[nodiscard]] std::span<PageId const> orphan_table_of(ChunkState const& c) const noexcept
  {
    return std::span(orphan_tables).subspan(c.orphan_at, c.orphan_pages);
  }
  /// The parents of a chunk's tokens.
  [[nodiscard]] std::span<Index const> parents_of(ChunkState const& c) const noexcept
  {
    return std::span(parents).subspan(c.parents_at,
                                      c.tree ? static_cast<std::size_t>(c.tokens) : 0);
  }
  /// The `index`-th page of a table is one that chunk `c` of this step will write.
  [[nodiscard]] bool will_write(ChunkState const& c, PageId page, std::size_t index) const noexcept
  {
    return index >= c.pending_index && index - c.pending_index < c.pending &&
           pending[c.pending_at + index - c.pending_index] == page;
  }

  void clear() noexcept
  {
    stage = Stage::none;
    doomed = false;
    orphaned = false;
    chunks.clear();
    planned_tokens = 0;
    tokens.clear();
    parents.clear();
    pending.clear();
    orphans.clear();
    orphan_room = 0;
    orphan_tables.clear();
    orphan_table_room = 0;
    rows.clear();
    reclaimed.clear();
    plan.clear();
  }
};

}  // namespace kvcache::inline v0_1::detail
