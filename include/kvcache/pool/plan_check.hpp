// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>

/// \file A plan may come from another process: nothing in it makes a pool write outside its memory.

namespace kvcache::inline v0_1::detail {

[[nodiscard]] inline Error check(TableDelta const& delta,
                                 Plan const& plan,
                                 ControlOptions const& options) noexcept
{
  if (delta.row.value >= options.max_sequences) {
    return {Why::bad_config,
            "plan.tables.row",
            delta.row.value,
            "must be below max_sequences, which is",
            options.max_sequences};
  }
  if (std::uint64_t{delta.first} + delta.count > options.row_pages()) {
    return {Why::bad_config,
            "plan.tables.first",
            delta.first,
            "must leave its count inside a table row of",
            options.row_pages()};
  }
  if (std::uint64_t{delta.ids_at} + delta.count > plan.ids.size()) {
    return {Why::bad_config,
            "plan.tables.ids_at",
            delta.ids_at,
            "must leave its count inside plan.ids, which holds",
            static_cast<std::int64_t>(plan.ids.size())};
  }
  return {};
}

[[nodiscard]] inline Error check(PageCopy const& copy, ControlOptions const& options) noexcept
{
  for (PageId const page : {copy.source, copy.target}) {
    if (page == zero_page || page.value > options.pages) {
      return {
        Why::bad_config, "plan.copies", page.value, "must name pages from 1 to", options.pages};
    }
  }
  if (copy.source == copy.target) {
    return {Why::bad_config, "plan.copies", copy.source.value, "must not copy a page onto itself"};
  }
  if (copy.rows < 0 || copy.rows > options.page_tokens) {
    return {Why::bad_config,
            "plan.copies.rows",
            copy.rows,
            "must be 0 to page_tokens, which is",
            options.page_tokens};
  }
  return {};
}

[[nodiscard]] inline Error check(RowMove const& move, ControlOptions const& options) noexcept
{
  for (PageId const page : {move.source, move.target}) {
    if (page == zero_page || page.value > options.pages) {
      return {
        Why::bad_config, "plan.moves", page.value, "must name pages from 1 to", options.pages};
    }
  }
  for (Index const row : {move.source_row, move.target_row}) {
    if (row < 0 || row >= options.page_tokens) {
      return {Why::bad_config,
              "plan.moves.row",
              row,
              "must be 0 or more and below page_tokens, which is",
              options.page_tokens};
    }
  }
  return {};
}

/// **Pre** the chunk's numbers are right, and it is a tree.
[[nodiscard]] inline Error check_tree(PlannedChunk const& chunk, Plan const& plan) noexcept
{
  if (chunk.tokens > Plan::max_tree_tokens) {
    return {Why::bad_config,
            "plan.chunks.tokens",
            chunk.tokens,
            "of a tree must be at most",
            Plan::max_tree_tokens};
  }
  if (std::uint64_t{chunk.parents_at} + static_cast<std::uint64_t>(chunk.tokens) >
      plan.parents.size()) {
    return {Why::bad_config,
            "plan.chunks.parents_at",
            chunk.parents_at,
            "must leave its tokens inside plan.parents, which holds",
            static_cast<std::int64_t>(plan.parents.size())};
  }
  for (Index i = 0; i < chunk.tokens; ++i) {
    Index const parent = plan.parents[chunk.parents_at + static_cast<std::size_t>(i)];
    if (parent < -1 || parent >= i) {
      return {Why::bad_config,
              "plan.parents",
              parent,
              "must be -1 or name a token of the chunk before this one, which is token",
              i};
    }
  }
  return {};
}

[[nodiscard]] inline Error check(PlannedChunk const& chunk, ControlOptions const& options) noexcept
{
  if (chunk.row.value >= options.max_sequences) {
    return {Why::bad_config,
            "plan.chunks.row",
            chunk.row.value,
            "must be below max_sequences, which is",
            options.max_sequences};
  }
  if (chunk.tokens < 1 || chunk.tokens > options.max_step_tokens) {
    return {Why::bad_config,
            "plan.chunks.tokens",
            chunk.tokens,
            "must be 1 to max_step_tokens, which is",
            options.max_step_tokens};
  }
  if (chunk.first_index < 0 || chunk.first_index > options.max_sequence_tokens - chunk.tokens) {
    return {Why::bad_config,
            "plan.chunks.first_index",
            chunk.first_index,
            "must leave its tokens below max_sequence_tokens, which is",
            options.max_sequence_tokens};
  }
  if (chunk.slack < 0 || chunk.slack > chunk.first_index) {
    return {Why::bad_config,
            "plan.chunks.slack",
            chunk.slack,
            "must be 0 to first_index, which is",
            chunk.first_index};
  }
  return {};
}

/// The first thing in `plan` that a pool with `options` cannot do. **Cost** O(plan).
[[nodiscard]] inline Error check(Plan const& plan, ControlOptions const& options) noexcept
{
  if (plan.version != Plan::format_version) {
    return {Why::bad_config, "plan.version", plan.version, "must be", Plan::format_version};
  }
  if (plan.slot >= Plan::num_slots) {
    return {Why::bad_config, "plan.slot", plan.slot, "must be below", Plan::num_slots};
  }
  if (plan.chunks.size() > options.max_sequences) {
    return {Why::bad_config,
            "plan.chunks",
            static_cast<std::int64_t>(plan.chunks.size()),
            "must be at most max_sequences, which is",
            options.max_sequences};
  }
  for (TableDelta const& delta : plan.tables) {
    if (Error const error = check(delta, plan, options); error.why != Why::ok) {
      return error;
    }
  }
  for (PageId const page : plan.ids) {
    if (page == zero_page || page.value > options.pages) {
      return {Why::bad_config, "plan.ids", page.value, "must name pages from 1 to", options.pages};
    }
  }
  for (RowMove const& move : plan.moves) {
    if (Error const error = check(move, options); error.why != Why::ok) {
      return error;
    }
  }
  for (PageCopy const& copy : plan.copies) {
    if (Error const error = check(copy, options); error.why != Why::ok) {
      return error;
    }
  }
  std::int64_t tokens = 0;
  for (PlannedChunk const& chunk : plan.chunks) {
    if (Error const error = check(chunk, options); error.why != Why::ok) {
      return error;
    }
    if (chunk.parents_at != nil) {
      if (Error const error = check_tree(chunk, plan); error.why != Why::ok) {
        return error;
      }
    }
    tokens += chunk.tokens;
  }
  if (tokens > options.max_step_tokens) {
    return {Why::bad_config,
            "plan.chunks.tokens",
            tokens,
            "must add up to at most max_step_tokens, which is",
            options.max_step_tokens};
  }
  return {};
}

}  // namespace kvcache::inline v0_1::detail
