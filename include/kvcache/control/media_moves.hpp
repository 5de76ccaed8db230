// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/media.hpp>
#include <kvcache/control/media_check.hpp>
#include <kvcache/control/named_span.hpp>
#include <kvcache/control/options.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/refusals.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// \file How declared media become names in a text, and how long the names last.
///
///   open, add    spans -> names in a copy of the tokens; all else sees names only
///   commit       what the chunk declared is the sequence's
///   drop, fail   what the chunk declared goes with it; what `open` declared stays, so that the prompt can be added again
///
/// A name is used by sequences, by the tree, by tokens of steps and by their journals: a sweep asks all of them.

namespace kvcache::inline v0_1::detail {

/// Forgets items of which nobody uses a name. Those of `more` are used.
/// **Cost** O(pages + tokens cached). **Errors** `std::bad_alloc`, nothing changed.
template <class State>
void sweep_media(State& state, std::span<NamedSpan const> more)
{
  state.media.sweep([&](auto&& mark) {
    auto const mark_spans = [&](std::span<NamedSpan const> spans) {
      for (NamedSpan const& span : spans) {
        mark(span.name_at(span.first));
      }
    };
    auto const mark_text = [&](std::span<Token const> text) {
      for (Token const token : text) {
        mark(token);
      }
    };
    mark_spans(more);
    for (SequenceState const& s : state.sequences) {
      mark_spans(s.media);
    }
    for (StepState const& t : state.steps) {
      mark_text(t.tokens);
      mark_text(t.reclaimed.tokens());
    }
    auto const& tree = state.book.tree();
    for (std::uint32_t page = 1; page <= state.options.pages; ++page) {
      SpanId const span = tree.span_of(PageId{page});
      if (span.value != nil && tree.last_page(span) == PageId{page}) {
        mark_text(tree.tokens(span));
      }
    }
  });
}

/// Names `media`, of which text lies in `text`, that begins at row `first`, and puts the spans in order into `spans`.
/// `base_of(item, rows, atomic)` finds the first name; where it gives none, that is the error.
/// **Pre** `check_media` passed. **Errors** `std::bad_alloc`; `spans` is then unusable.
template <class BaseOf>
[[nodiscard]] Error name_spans(std::span<MediaSpan const> media,
                               Index first,
                               std::span<Token const> text,
                               StepId step,
                               List<NamedSpan>& spans,
                               BaseOf&& base_of)
{
  for (MediaSpan const& m : media) {
    std::size_t const start = static_cast<std::size_t>(m.first) - static_cast<std::size_t>(first);
    for (Index i = 0; m.item == nullptr && i < m.rows; ++i) {
      if (Token const token = text[start + static_cast<std::size_t>(i)]; token < 0) {
        return {Why::bad_token,
                "token",
                token,
                "of text that attends both ways must be a token, on row",
                m.first + i};
      }
    }
    std::optional<Index> const base =
      m.item != nullptr
        ? base_of(*m.item, m.rows, m.atomic)
        : base_of(
            Media::text(text.subspan(start, static_cast<std::size_t>(m.rows))), m.rows, m.atomic);
    if (!base) {
      return {Why::too_large,
              "media.rows",
              m.rows,
              "no so many names in a row are free; fewer media at a time"};
    }
    NamedSpan const span{.first = m.first,
                         .rows = m.rows,
                         .base = *base,
                         .atomic = m.atomic,
                         .text = m.item == nullptr,
                         .declared_by = step};
    NamedSpan const* const next = span_after(spans, m.first);
    if (next != nullptr && next->same_rows(span)) {
      continue;  // declared before
    }
    if (next != nullptr && next->first < span.end()) {
      return {Why::bad_config,
              "media.first",
              m.first,
              "the sequence has other media at row",
              next->first};
    }
    spans.insert(next == nullptr ? spans.size() : static_cast<std::size_t>(next - spans.data()),
                 span);
  }
  return {};
}
/// As above, with new names where there are none yet. **Errors** `std::bad_alloc`; no names that anyone uses are lost.
template <class State>
[[nodiscard]] Error declare_spans(State& state,
                                  std::span<MediaSpan const> media,
                                  Index first,
                                  std::span<Token const> text,
                                  StepId step,
                                  List<NamedSpan>& spans)
{
  return name_spans(
    media, first, text, step, spans, [&](Media const& item, Index rows, bool atomic) {
      if (state.media.due()) {
        sweep_media(state, spans);
      }
      std::optional<Index> base = state.media.intern(item, rows, atomic);
      if (!base) {
        sweep_media(state, spans);
        base = state.media.intern(item, rows, atomic);
      }
      return base;
    });
}

/// Puts names into `text`, which begins at row `first`. A token on a row of media may be anything that a token may be, or
/// the row's name; one of text that attends both ways must be what was declared.
template <class State>
[[nodiscard]] Error name_rows(State const& state,
                              std::span<NamedSpan const> spans,
                              Index first,
                              std::span<Token> text) noexcept
{
  Index const end = first + static_cast<Index>(text.size());
  NamedSpan const* const last = spans.data() + spans.size();
  for (NamedSpan const* span = span_after(spans, first);
       span != nullptr && span != last && span->first < end;
       ++span) {
    for (Index row = span->first < first ? first : span->first; row < span->end() && row < end;
         ++row) {
      Token& token = text[static_cast<std::size_t>(row - first)];
      Token const name = span->name_at(row);
      if (token < 0 && token != name) {
        return {Why::bad_token, "token", token, "on a row of media must not be negative; row", row};
      }
      if (span->text && token >= 0 && token != state.media.text_token(name)) {
        return {
          Why::bad_token, "token", token, "differs from the text that was declared for row", row};
      }
      token = span->text && token >= 0 ? token : 0;
    }
  }
  if (Error const error = check(std::span<Token const>(text), state.options.vocabulary);
      error.why != Why::ok) {
    return error;
  }
  write_names(spans, first, text);
  return {};
}

/// A prompt as the tree knows it.
struct NamedPrompt {
  List<NamedSpan> spans;
  List<Token> copy;  ///< used where there are media
  std::span<Token const> text;
  Index limit = 0;  ///< rows that a hit may have
};
/// What `open` would make of a prompt, without new names: before the first item that nobody knows.
/// **Errors** `std::bad_alloc`.
template <class State>
[[nodiscard]] Error name_known(State const& state,
                               Prompt const& prompt,
                               Index limit,
                               NamedPrompt& named)
{
  named.text = prompt.tokens;
  named.limit = limit;
  if (prompt.media.empty()) {
    return {};
  }
  for (MediaSpan const& m : prompt.media) {
    bool known = true;
    (void)name_spans(
      {&m, 1}, 0, prompt.tokens, {}, named.spans, [&](Media const& item, Index rows, bool atomic) {
        std::optional<Index> const base = state.media.find(item, rows, atomic);
        known = base.has_value();
        return base ? base : std::optional<Index>(0);  // beyond the limit: never compared
      });
    if (!known) {
      named.limit = m.first < named.limit ? m.first : named.limit;
      named.spans.back().text = false;
    }
  }
  named.limit = whole_spans(named.spans, named.limit);
  named.copy.assign(prompt.tokens);
  named.text = named.copy;
  return name_rows(state, named.spans, 0, named.copy);
}
/// The prompt of a sequence that is opened in `s`, with its names in `state.named`; `text` is what the tree knows.
/// **Errors** `std::bad_alloc`.
template <class State>
[[nodiscard]] Error name_prompt(State& state,
                                Prompt const& prompt,
                                SequenceState& s,
                                std::span<Token const>& text)
{
  text = prompt.tokens;
  if (prompt.media.empty()) {
    return {};
  }
  if (Error const error = declare_spans(state, prompt.media, 0, prompt.tokens, {}, s.media);
      error.why != Why::ok) {
    return error;
  }
  state.named.assign(prompt.tokens);
  text = state.named;
  return name_rows(state, s.media, 0, state.named);
}

/// The longest part of `text` that is cached, that steps of `stream` may attach to, and that tears no atomic span.
template <class State>
[[nodiscard]] Match match_rows(State const& state,
                               DomainId domain,
                               std::span<Token const> text,
                               std::span<NamedSpan const> spans,
                               Index limit,
                               StreamId stream) noexcept
{
  Match match = state.book.tree().match(domain, text, limit);
  Miss const miss = match.miss;
  state.settle_match(match, stream);
  while (NamedSpan const* const torn = torn_at(spans, match.rows(state.options.page_tokens))) {
    match = state.book.tree().match(domain, text, torn->first);
    state.settle_match(match, stream);
  }
  match.miss = miss;
  return match;
}

/// Names the rows of a chunk of `step` behind row `first`, and makes it point to `state.named` where it has media. What it
/// declares is then in `state.declared`, beside the spans that the sequence has.
/// **Errors** `std::bad_alloc`, the sequence is as before.
template <class State>
[[nodiscard]] Error name_chunk(
  State& state, SequenceState const& s, StepId step, Index first, Chunk& chunk)
{
  bool drafts = false;
  for (Flight const& flight : s.in_flight()) {
    drafts = drafts || state.chunk_of(flight).draft;
  }
  Index const end =
    first + (chunk.tokens.empty() ? chunk.count : static_cast<Index>(chunk.tokens.size()));
  std::span<NamedSpan const> spans = s.media;
  if (!chunk.media.empty()) {
    if (Error const error = check_media(chunk.media, first, end, false, state.options);
        error.why != Why::ok) {
      return error;
    }
    state.declared = s.media;
    if (Error const error =
          declare_spans(state, chunk.media, first, chunk.tokens, step, state.declared);
        error.why != Why::ok) {
      return error;
    }
    spans = state.declared;
  }
  if (Error const error = check_rows(spans, chunk, first, end); error.why != Why::ok) {
    return error;
  }
  NamedSpan const* const span = span_after(spans, first);
  bool const has_rows = span != nullptr && span->first < end;
  if (drafts && (has_rows || !chunk.media.empty())) {
    return {Why::busy,
            "chunk.media",
            first,
            "the rows of media must be known, and drafts before them are in flight; commit that "
            "step first"};
  }
  state.named.assign(chunk.tokens);
  chunk.tokens = state.named;
  if (!has_rows) {
    return check(chunk.tokens, state.options.vocabulary);
  }
  return name_rows(state, spans, first, state.named);
}

/// What was declared by chunks that the sequence has not in flight any more goes with them.
inline void drop_declared(SequenceState& s) noexcept
{
  std::size_t left = 0;
  for (NamedSpan const& span : s.media) {
    bool kept = span.declared_by.value == 0;
    for (Flight const& flight : s.in_flight()) {
      kept = kept || flight.step->id == span.declared_by;
    }
    if (kept) {
      s.media[left++] = span;
    }
  }
  s.media.resize(left);
}
/// What the chunk of `step` declared is the sequence's from now on.
inline void keep_declared(SequenceState& s, StepId step) noexcept
{
  for (NamedSpan& span : s.media) {
    span.declared_by = span.declared_by == step ? StepId{} : span.declared_by;
  }
}

}  // namespace kvcache::inline v0_1::detail
