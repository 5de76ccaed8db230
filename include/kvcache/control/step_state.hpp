// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/page_book.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// \file What control keeps of one step: enough to undo it, and to finish it.

namespace kvcache::inline v0_1::detail {

/// What `add` did for one chunk.
struct ChunkState {
  SequenceId sequence{};
  std::size_t first_token = 0;  // in the step's tokens
  Index tokens = 0;
  Index first_index = 0;
  PageCount pages_before = 0;      // of the table, before the chunk
  PageCount taken = 0;             // pages from the pool: the new ones, and a copy's target
  PageId copy_source = zero_page;  // the shared page that is copied; the step holds it
  bool unpublished = false;        // the part page left the index to be written in place
  bool orphan = false;             // its sequence was closed; the table is here
  bool planned = false;            // it is in the plan
  std::size_t reclaimed = 0;       // entries of the step's journal before the chunk
  std::vector<PageId> orphan_table;

  [[nodiscard]] bool copies() const noexcept { return copy_source != zero_page; }
};

/// A step from `begin` to its end. The object is used again, so that steps allocate nothing in the long run.
struct StepState {
  enum class Stage : std::uint8_t { none, open, submitted };

  StepId id{};
  Stage stage = Stage::none;
  std::vector<ChunkState> chunks;
  std::vector<Token> tokens;  // of all chunks, in the order of `add`
  Reclaimed reclaimed;
  Plan plan;

  /// Chunks that copy from `page`, and the most rows that one of them copies.
  struct Readers {
    std::uint32_t copies = 0;
    Index rows = 0;
  };
  [[nodiscard]] Readers readers(PageId page, std::int32_t page_tokens) const noexcept
  {
    Readers found{};
    for (ChunkState const& chunk : chunks) {
      if (chunk.copy_source == page) {
        Index const rows = chunk.first_index % page_tokens;
        found.copies += 1;
        found.rows = rows > found.rows ? rows : found.rows;
      }
    }
    return found;
  }

  void clear() noexcept
  {
    stage = Stage::none;
    chunks.clear();
    tokens.clear();
    reclaimed.clear();
    plan.clear();
  }
};

}  // namespace kvcache::inline v0_1::detail
