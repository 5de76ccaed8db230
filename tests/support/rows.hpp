// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A device in a few lines, for tests of control alone: each row holds a number that names its token and all
/// tokens before it, read from the row before. A row that is missing, stale or another's shows.

#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/plane.hpp"

namespace kvcache_test {

class Rows {
 public:
  explicit Rows(kvcache::ControlOptions const& options)
      : page_tokens_(static_cast<std::size_t>(options.page_tokens)),
        rows_((options.pages + 1) * page_tokens_, 0),
        tables_(options.max_sequences)
  {
  }

  /// Applies the plan's tables, moves and copies, as a pool does at submit.
  void apply(kvcache::Plan const& plan)
  {
    for (kvcache::TableDelta const& delta : plan.tables) {
      auto& table = tables_[delta.row.value];
      table.resize(std::max(table.size(), std::size_t{delta.first} + delta.count));
      for (std::uint32_t i = 0; i < delta.count; ++i) {
        table[delta.first + i] = plan.ids[delta.ids_at + i];
      }
    }
    for (kvcache::RowMove const& move : plan.moves) {
      rows_[move.target.value * page_tokens_ + static_cast<std::size_t>(move.target_row)] =
        rows_[move.source.value * page_tokens_ + static_cast<std::size_t>(move.source_row)];
    }
    std::vector<std::uint64_t> const before = rows_;
    for (kvcache::PageCopy const& copy : plan.copies) {
      for (std::size_t r = 0; r < static_cast<std::size_t>(copy.rows); ++r) {
        rows_[copy.target.value * page_tokens_ + r] = before[copy.source.value * page_tokens_ + r];
      }
    }
  }
  /// What the kernels of the step write. `tokens` are those of each planned chunk; of those that were attached
  /// in part, the last ones are computed.
  void run(kvcache::Plan const& plan, std::vector<Tokens> const& tokens)
  {
    apply(plan);
    REQUIRE(tokens.size() == plan.chunks.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      kvcache::PlannedChunk const& chunk = plan.chunks[i];
      auto const skipped = tokens[i].size() - static_cast<std::size_t>(chunk.tokens);
      auto const first = static_cast<std::size_t>(chunk.first_index);
      auto const& table = tables_[chunk.row.value];
      for (std::size_t k = 0; k < static_cast<std::size_t>(chunk.tokens); ++k) {
        std::size_t const at = first + k;
        std::size_t before = at;  // one more than the row that it follows
        if (chunk.parents_at != kvcache::nil) {
          before = first + static_cast<std::size_t>(plan.parents[chunk.parents_at + k] + 1);
        }
        std::uint64_t const last = before == 0 ? 0 : rows_[slot(table, before - 1)];
        rows_[slot(table, at)] = next(last, tokens[i][skipped + k]);
      }
    }
  }
  /// Rows of the sequence that are not what its tokens say.
  [[nodiscard]] int count_wrong(Plane const& plane, kvcache::SequenceId id) const
  {
    auto const table = plane.table(id);
    std::uint64_t want = 0;
    int wrong = 0;
    std::size_t at = 0;
    for (kvcache::Token const token : plane.tokens(id)) {
      want = next(want, token);
      wrong += rows_[slot(table, at++)] == want ? 0 : 1;
    }
    return wrong;
  }

 private:
  [[nodiscard]] static std::uint64_t next(std::uint64_t last, kvcache::Token token)
  {
    return (last ^ (static_cast<std::uint64_t>(token) + 1)) * 0x9e3779b97f4a7c15U + 1;
  }
  template <class Table>
  [[nodiscard]] std::size_t slot(Table const& table, std::size_t at) const
  {
    return table[at / page_tokens_].value * page_tokens_ + at % page_tokens_;
  }

  std::size_t page_tokens_;
  std::vector<std::uint64_t> rows_;
  std::vector<std::vector<kvcache::PageId>> tables_;
};

/// A plane and its rows, run together. A step's tokens are kept here until it runs.
struct Engine {
  Plane plane;
  Rows rows;

  explicit Engine(kvcache::ControlOptions const& options)
      : plane(make_plane(options)), rows(plane.options())
  {
  }
  /// Pages of 4 tokens.
  explicit Engine(kvcache::PageCount pages)
      : Engine(kvcache::ControlOptions{
          .pages = pages, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 256})
  {
  }

  /// Runs a submitted step and commits it whole.
  void finish(kvcache::StepId step, std::vector<Tokens> const& tokens)
  {
    rows.run(plane.plan(step), tokens);
    REQUIRE(plane.commit(step));
  }
  /// A whole step that appends to one sequence.
  void append(kvcache::SequenceId id, Tokens const& tokens)
  {
    kvcache::StepId const step = begin(plane);
    REQUIRE(plane.add(step, id, {tokens}));
    REQUIRE(plane.submit(step));
    finish(step, {tokens});
  }
  kvcache::SequenceId prefilled(Tokens const& prompt)
  {
    kvcache::SequenceId const id = open(plane, prompt);
    auto const cached = plane.info(id)->length;
    append(id, Tokens(prompt.begin() + cached, prompt.end()));
    return id;
  }
  /// The sequence has so many rows, and each is right.
  void check(kvcache::SequenceId id, kvcache::Index length) const
  {
    CHECK(plane.info(id)->length == length);
    CHECK(rows.count_wrong(plane, id) == 0);
    check_sound(plane);
  }
};

inline kvcache::Index length_of(Plane const& plane, kvcache::SequenceId id)
{
  return plane.info(id)->length;
}

}  // namespace kvcache_test
