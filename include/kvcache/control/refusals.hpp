// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/pins.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/control/tree.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

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

/// Media that a text of rows `first .. end - 1` declares; `inside`: none may reach past its end.
[[nodiscard]] inline Error check_media(std::span<MediaSpan const> media,
                                       Index first,
                                       Index end,
                                       bool inside,
                                       ControlOptions const& options) noexcept
{
  Index low = first;
  for (MediaSpan const& m : media) {
    if (m.rows < 1) {
      return {Why::bad_config, "media.rows", m.rows, "must be at least", 1};
    }
    if (m.first < low) {
      return {Why::bad_config,
              "media.first",
              m.first,
              "must not lie before the text, nor before the end of the span before it, row",
              low};
    }
    if (m.item == nullptr && !m.atomic) {
      return {Why::bad_config, "media.item", 0, "must be there, unless the span is atomic text"};
    }
    if (m.item != nullptr && !m.item->has_digest()) {
      return {
        Why::bad_config, "media.item", 0, "needs a digest of its content, of at least 1 byte"};
    }
    Index const most = inside || m.item == nullptr ? end : options.max_sequence_tokens;
    if (m.first > most || m.rows > most - m.first) {
      return {Why::bad_config,
              "media.rows",
              m.rows,
              "must end where the text or the longest sequence does, at row",
              most};
    }
    if (m.atomic && m.rows > options.max_step_tokens) {
      return {Why::too_large,
              "media.rows",
              m.rows,
              "of an atomic span are computed in one step: at most max_step_tokens, which is",
              options.max_step_tokens};
    }
    low = m.first + m.rows;
  }
  return {};
}

[[nodiscard]] inline Error check(StreamId stream) noexcept
{
  return stream.value < max_streams
           ? Error{}
           : Error{Why::bad_config, "stream", stream.value, "must be below", max_streams};
}

[[nodiscard]] inline Error check(Prompt const& prompt, ControlOptions const& options) noexcept
{
  if (prompt.fresh_tail < 1) {
    return {Why::bad_config, "fresh_tail", prompt.fresh_tail, "must be at least", 1};
  }
  if (Error const error = check(prompt.stream); error.why != Why::ok) {
    return error;
  }
  if (prompt.promised < 0) {
    return {Why::bad_config, "promised", prompt.promised, "must be at least", 0};
  }
  if (prompt.max_tokens != 0 && prompt.max_tokens < static_cast<Index>(prompt.tokens.size())) {
    return {Why::bad_config,
            "max_tokens",
            prompt.max_tokens,
            "must be 0 (unknown), or at least the tokens of the prompt,",
            static_cast<std::int64_t>(prompt.tokens.size())};
  }
  if (prompt.max_tokens > options.max_sequence_tokens) {
    return too_large("max_tokens", static_cast<std::size_t>(prompt.max_tokens), options);
  }
  if (prompt.tokens.size() > static_cast<std::size_t>(options.max_sequence_tokens)) {
    return too_large("prompt.tokens", prompt.tokens.size(), options);
  }
  if (!prompt.media.empty()) {  // their rows may have any token
    return check_media(prompt.media, 0, static_cast<Index>(prompt.tokens.size()), true, options);
  }
  return check(prompt.tokens, options.vocabulary);
}

/// A chunk, but for the values of its tokens, behind `end` rows, in a step that plans `step_tokens` tokens so far.
[[nodiscard]] inline Error check(Chunk const& chunk,
                                 Index end,
                                 std::size_t step_tokens,
                                 ControlOptions const& options) noexcept
{
  if (!chunk.tokens.empty() && chunk.count != 0) {
    return {Why::bad_config, "chunk.count", chunk.count, "must be 0 where the tokens are named"};
  }
  std::size_t const tokens = chunk.tokens.empty() && chunk.count > 0
                               ? static_cast<std::size_t>(chunk.count)
                               : chunk.tokens.size();
  if (tokens == 0) {
    return {Why::bad_config,
            chunk.count < 0 ? "chunk.count" : "chunk.tokens",
            chunk.count,
            "must be at least",
            1};
  }
  if (tokens > static_cast<std::size_t>(options.max_step_tokens) - step_tokens) {
    return {Why::too_large,
            "tokens of the step",
            static_cast<std::int64_t>(step_tokens + tokens),
            "must be at most max_step_tokens, which is",
            options.max_step_tokens};
  }
  if (static_cast<std::size_t>(end) + tokens >
      static_cast<std::size_t>(options.max_sequence_tokens)) {
    return too_large("tokens of the sequence", static_cast<std::size_t>(end) + tokens, options);
  }
  return chunk.parents.empty() ? Error{} : check_parents(chunk);
}

/// There is a number for each chunk, and `check` would find no fault in it: what most steps of an engine give.
[[nodiscard]] inline bool fit(std::span<Index const> accepted, StepState const& step) noexcept
{
  if (accepted.size() != step.chunks.size() || accepted.empty()) {
    return false;
  }
  Index const* next = accepted.data();
  for (ChunkState const& c : step.chunks) {
    Index const n = *next++;
    if (!c.named || c.tree || (n != c.tokens && (!c.draft || n < 0 || n > c.tokens))) {
      return false;
    }
  }
  return true;
}

/// The outcomes of a step's chunks.
[[nodiscard]] inline Error check(std::span<Outcome const> outcomes,
                                 StepState const& step,
                                 ControlOptions const& options) noexcept
{
  if (!outcomes.empty() && outcomes.size() != step.chunks.size()) {
    return {Why::bad_config,
            "outcomes",
            static_cast<std::int64_t>(outcomes.size()),
            "must be none (all accepted), or one for each chunk that was added:",
            static_cast<std::int64_t>(step.chunks.size())};
  }
  for (std::size_t i = 0; i < step.chunks.size(); ++i) {
    ChunkState const& c = step.chunks[i];
    if (outcomes.empty()) {
      if (!c.named && c.counts()) {
        return {Why::bad_config,
                "outcomes",
                0,
                "must name the tokens of chunks that were planned by count"};
      }
      if (c.tree && c.counts()) {
        return {Why::bad_config, "outcomes", 0, "must name the accepted path of a token tree"};
      }
      continue;
    }
    Outcome const& outcome = outcomes[i];
    if (c.named && !c.tree && outcome.accepted == c.tokens && outcome.tokens.empty()) {
      continue;  // all of it, as most are
    }
    if (outcome.accepted < 0 || outcome.accepted > c.tokens) {
      return {Why::bad_config,
              "outcome.accepted",
              outcome.accepted,
              c.attached == 0 ? "must be 0 to the tokens of its chunk,"
                              : "must be 0 to the tokens computed of its chunk,",
              c.tokens};
    }
    if (c.tree && c.counts()) {
      if (Error const error = check_path(outcome, step.parents_of(c)); error.why != Why::ok) {
        return error;
      }
    }
    if (!c.draft && c.counts() && outcome.accepted != c.tokens) {
      return {Why::bad_config,
              "outcome.accepted",
              outcome.accepted,
              "of a chunk that is no draft must be all its tokens,",
              c.tokens};
    }
    if (!c.named && c.counts() &&
        outcome.tokens.size() != static_cast<std::size_t>(outcome.accepted)) {
      return {Why::bad_config,
              "outcome.tokens",
              static_cast<std::int64_t>(outcome.tokens.size()),
              "must name each accepted token of a chunk planned by count:",
              outcome.accepted};
    }
    if (c.named && !outcome.tokens.empty()) {
      return {Why::bad_config,
              "outcome.tokens",
              static_cast<std::int64_t>(outcome.tokens.size()),
              "must be empty for a chunk that was added with its tokens"};
    }
    if (Error const error = check(outcome.tokens, options.vocabulary); error.why != Why::ok) {
      return error;
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

[[nodiscard]] inline Error stale(PinId id) noexcept
{
  return {Why::stale_pin, "pin", id.slot, "was let go, or never made here"};
}
[[nodiscard]] inline Error nothing_to_pin(std::size_t tokens) noexcept
{
  return {Why::bad_config,
          "prefix.tokens",
          static_cast<std::int64_t>(tokens),
          "must begin with a whole page that is cached; compute the prefix first"};
}
[[nodiscard]] inline Error not_suspended(SequenceId id) noexcept
{
  return {Why::bad_config, "sequence", id.slot, "is not suspended"};
}
[[nodiscard]] inline Error behind_tree(SequenceId id) noexcept
{
  return {
    Why::busy,
    "sequence",
    id.slot,
    "has a token tree in flight: what comes next depends on its path; commit that step first"};
}
[[nodiscard]] inline Error has_strays(SequenceId id) noexcept
{
  return {Why::busy,
          "sequence",
          id.slot,
          "has an accepted tree path whose rows the plan of its next chunk moves; add that first"};
}
[[nodiscard]] inline Error is_suspended(SequenceId id) noexcept
{
  return {Why::suspended, "sequence", id.slot, "gave its pages back; resume it first"};
}

[[nodiscard]] inline Error in_step(SequenceId id) noexcept
{
  return {
    Why::busy, "sequence", id.slot, "is in the step in flight; commit, fail or drop it first"};
}

}  // namespace kvcache::inline v0_1::detail
