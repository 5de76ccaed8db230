// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/named_span.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file Where media may lie, and a recount of the names of all rows.

namespace kvcache::inline v0_1::detail {

/// Why media cannot lie where chunk rows `first .. end - 1` are, or `Why::ok`.
[[nodiscard]] inline Error check_rows(std::span<NamedSpan const> spans,
                                      Chunk const& chunk,
                                      Index first,
                                      Index end) noexcept
{
  NamedSpan const* const span = span_after(spans, first);
  if (span == nullptr || span->first >= end) {
    return {};
  }
  Index const row = span->first < first ? first : span->first;
  if (chunk.tokens.empty()) {
    return {Why::bad_config,
            "chunk.count",
            chunk.count,
            "must end before the rows of media, which are added with tokens; they begin at row",
            row};
  }
  if (chunk.draft || !chunk.parents.empty()) {
    return {
      Why::bad_config, "chunk.draft", 1, "no draft has rows of media; they begin at row", row};
  }
  NamedSpan const* const torn = torn_at(spans, end);
  if (torn != nullptr && torn->first > first) {
    return {Why::bad_config,
            "chunk.tokens",
            static_cast<std::int64_t>(chunk.tokens.size()),
            "would end inside an atomic span, which is computed as a whole; good are its end, or "
            "at most this many tokens:",
            torn->first - first};
  }
  if (torn != nullptr) {
    return {Why::bad_config,
            "chunk.tokens",
            static_cast<std::int64_t>(chunk.tokens.size()),
            "would end inside an atomic span, which is computed as a whole; good are at least this "
            "many tokens:",
            torn->end() - first};
  }
  return {};
}

[[nodiscard]] inline std::uint64_t mix_spans(std::uint64_t h,
                                             std::span<NamedSpan const> spans) noexcept
{
  for (NamedSpan const& span : spans) {
    h = mix(h,
            std::uint64_t{static_cast<std::uint32_t>(span.first)} << 32 |
              static_cast<std::uint32_t>(span.rows));
    h = mix(h,
            std::uint64_t{static_cast<std::uint32_t>(span.base)} << 2 | (span.atomic ? 2U : 0U) |
              (span.text ? 1U : 0U));
    h = mix(h, span.declared_by.value);
  }
  return h;
}

/// What is wrong with the names of the plane, or null. **Cost** O(tokens).
template <class State>
[[nodiscard]] char const* broken_names(State const& state)
{
  if (!state.media.check_invariants()) {
    return "the table of media is damaged";
  }
  bool known = true;
  auto const look = [&](std::span<Token const> text) {
    for (Token const token : text) {
      known = known && (token >= 0 || state.media.knows(token));
    }
  };
  List<Token> text;
  for (SequenceState const& s : state.sequences) {
    look(s.tokens);
    text.clear();
    text.resize(s.tokens.size());
    write_names(s.media, 0, text);
    for (std::size_t row = 0; row < text.size(); ++row) {
      if (s.tokens[row] < 0 || text[row] < 0) {
        known = known && s.tokens[row] == text[row];
      }
    }
    if (torn_at(s.media, s.length()) != nullptr) {
      return "a sequence ends inside an atomic span";
    }
  }
  for (StepState const& t : state.steps) {
    look(t.tokens);
    look(t.reclaimed.tokens());
  }
  for (std::uint32_t page = 1; page <= state.options.pages; ++page) {
    SpanId const span = state.book.tree().span_of(PageId{page});
    if (span.value != nil && state.book.tree().last_page(span) == PageId{page}) {
      look(state.book.tree().tokens(span));
    }
  }
  return known ? nullptr
               : "a row has a name that its sequence does not declare, or that nobody knows";
}

}  // namespace kvcache::inline v0_1::detail
