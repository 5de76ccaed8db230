// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// \file What control refuses, each with the field, its value and what would be right.

namespace kvcache::inline v0_1::detail {

[[nodiscard]] inline Error check(std::span<Token const> tokens, Token vocabulary) noexcept
{
  for (Token const token : tokens) {
    if (token < 0) {
      return {Why::bad_token, "token", token, "must not be negative"};
    }
    if (vocabulary != 0 && token >= vocabulary) {
      return {Why::bad_token, "token", token, "must be below the vocabulary, which is", vocabulary};
    }
  }
  return {};
}

[[nodiscard]] inline Error too_large(char const* field,
                                     std::size_t tokens,
                                     ControlOptions const& options) noexcept
{
  return {Why::too_large,
          field,
          static_cast<std::int64_t>(tokens),
          "must be at most max_sequence_tokens, which the pool bounds, here",
          options.max_sequence_tokens};
}

[[nodiscard]] inline Error check(Prompt const& prompt, ControlOptions const& options) noexcept
{
  if (prompt.fresh_tail < 1) {
    return {Why::bad_config, "fresh_tail", prompt.fresh_tail, "must be at least", 1};
  }
  if (prompt.tokens.size() > static_cast<std::size_t>(options.max_sequence_tokens)) {
    return too_large("prompt.tokens", prompt.tokens.size(), options);
  }
  return check(prompt.tokens, options.vocabulary);
}

/// A chunk for a sequence of `length` rows, in a step that holds `step_tokens` tokens so far.
[[nodiscard]] inline Error check(Chunk const& chunk,
                                 std::size_t length,
                                 std::size_t step_tokens,
                                 ControlOptions const& options) noexcept
{
  if (chunk.tokens.empty()) {
    return {Why::bad_config, "chunk.tokens", 0, "must hold at least", 1};
  }
  if (chunk.tokens.size() > static_cast<std::size_t>(options.max_step_tokens) - step_tokens) {
    return {Why::too_large,
            "tokens of the step",
            static_cast<std::int64_t>(step_tokens + chunk.tokens.size()),
            "must be at most max_step_tokens, which is",
            options.max_step_tokens};
  }
  if (length + chunk.tokens.size() > static_cast<std::size_t>(options.max_sequence_tokens)) {
    return too_large("tokens of the sequence", length + chunk.tokens.size(), options);
  }
  return check(chunk.tokens, options.vocabulary);
}

[[nodiscard]] inline Error check(std::span<Index const> accepted,
                                 std::vector<PlannedChunk> const& chunks) noexcept
{
  if (!accepted.empty() && accepted.size() != chunks.size()) {
    return {Why::bad_config,
            "accepted",
            static_cast<std::int64_t>(accepted.size()),
            "must be empty (all), or one number a planned chunk:",
            static_cast<std::int64_t>(chunks.size())};
  }
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i] < 0 || accepted[i] > chunks[i].tokens) {
      return {Why::bad_config,
              "accepted",
              accepted[i],
              "must be 0 to the tokens of its chunk,",
              chunks[i].tokens};
    }
  }
  return {};
}

[[nodiscard]] inline Error no_rows(ControlOptions const& options) noexcept
{
  return {Why::no_rows,
          "sequences",
          options.max_sequences,
          "close one, or create with max_sequences above",
          options.max_sequences};
}

[[nodiscard]] inline Error no_memory(std::size_t tokens) noexcept
{
  return {Why::no_memory,
          "tokens",
          static_cast<std::int64_t>(tokens),
          "the host has no memory for their bookkeeping"};
}

[[nodiscard]] inline Error no_memory_for_pages(PageCount pages) noexcept
{
  return {Why::no_memory, "pages", pages, "the host has no memory for the bookkeeping of so many"};
}

[[nodiscard]] inline Error stale(SequenceId id) noexcept
{
  return {
    Why::stale_sequence, "sequence", id.slot, "was closed, or never opened here; open a new one"};
}

[[nodiscard]] inline Error stale(StepId id) noexcept
{
  return {Why::stale_step,
          "step",
          static_cast<std::int64_t>(id.value),
          "is not at this stage: begin, add, submit, then commit or fail"};
}

[[nodiscard]] inline Error busy(StepId step) noexcept
{
  return {Why::busy,
          "step",
          static_cast<std::int64_t>(step.value),
          "is not over; commit, fail or drop it first"};
}

[[nodiscard]] inline Error in_step(SequenceId id) noexcept
{
  return {
    Why::busy, "sequence", id.slot, "is in the step in flight; commit, fail or drop it first"};
}

}  // namespace kvcache::inline v0_1::detail
