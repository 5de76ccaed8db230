// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Media in the model: what a row is, without any name that the control plane gives.
///
/// A text of the model has a *symbol* a row: 0 and 1 are tokens; others say which item, how many rows it was declared
/// with, whether it is atomic, and which row of it. Stamps are made of symbols. All rows of pictures have the same
/// token, 0, which is also the most frequent one of text.

#include <kvcache/control/media.hpp>
#include <kvcache/control/media_table.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/naive.hpp"
#include "support/random.hpp"

namespace kvcache_test {

using FlightText = std::vector<kvcache::Token>;

/// Pictures 0 to 2, then texts that attend both ways, by their tokens.
inline constexpr std::uint32_t flight_pictures = 3;

/// Rows of a sequence that were declared, some of which it may not have yet.
struct FlightMedia {
  std::uint32_t item = 0;
  kvcache::Index first = 0;
  kvcache::Index rows = 0;      ///< what is left of it
  kvcache::Index declared = 0;  ///< what it was
  bool atomic = false;
  std::uint64_t step = 0;  ///< that declared it and is in flight, or 0

  [[nodiscard]] kvcache::Index end() const { return first + rows; }
  [[nodiscard]] bool text() const { return item >= flight_pictures; }
};
using FlightSpans = std::vector<FlightMedia>;

[[nodiscard]] inline kvcache::Token symbol_of(std::uint32_t item,
                                              kvcache::Index declared,
                                              bool atomic,
                                              kvcache::Index index)
{
  auto const which = static_cast<kvcache::Index>(2 * item + (atomic ? 1U : 0U));
  return ((which * 64 + declared) * 64 + index) + 2;
}
/// The token that stands at a row of media.
[[nodiscard]] inline kvcache::Token token_of(kvcache::Token symbol)
{
  if (symbol < 2) {
    return symbol;
  }
  auto const index = static_cast<std::uint32_t>((symbol - 2) % 64);
  auto const item = static_cast<std::uint32_t>((symbol - 2) / (2 * 64 * 64));
  return item < flight_pictures
           ? 0
           : static_cast<kvcache::Token>((item - flight_pictures) >> index & 1U);
}
[[nodiscard]] inline FlightText tokens_of(FlightText const& symbols)
{
  FlightText tokens;
  for (kvcache::Token const symbol : symbols) {
    tokens.push_back(token_of(symbol));
  }
  return tokens;
}

/// The span that has `row`, or null.
[[nodiscard]] inline FlightMedia const* span_at(FlightSpans const& spans, kvcache::Index row)
{
  for (FlightMedia const& span : spans) {
    if (row >= span.first && row < span.end()) {
      return &span;
    }
  }
  return nullptr;
}
/// The atomic span that an end at `length` would tear, or null.
[[nodiscard]] inline FlightMedia const* torn(FlightSpans const& spans, kvcache::Index length)
{
  FlightMedia const* const span = span_at(spans, length);
  return span != nullptr && span->atomic && span->first < length ? span : nullptr;
}
[[nodiscard]] inline kvcache::Token symbol_at(FlightSpans const& spans,
                                              kvcache::Index row,
                                              kvcache::Token token)
{
  FlightMedia const* const span = span_at(spans, row);
  return span == nullptr ? token
                         : symbol_of(span->item, span->declared, span->atomic, row - span->first);
}
/// Where declared media end.
[[nodiscard]] inline kvcache::Index media_end(FlightSpans const& spans)
{
  return spans.empty() ? 0 : spans.back().end();
}

/// The sequence was cut to `length` rows on request, which `voids` what it has in flight.
inline void clip(FlightSpans& spans, kvcache::Index length, bool voids)
{
  FlightSpans kept;
  for (FlightMedia span : spans) {
    if ((voids && span.step != 0) || span.first >= length || (span.atomic && span.end() > length)) {
      continue;
    }
    span.rows = span.end() > length ? length - span.first : span.rows;
    kept.push_back(span);
  }
  spans = kept;
}
template <class Gone>
void drop_spans(FlightSpans& spans, Gone&& gone)
{
  std::erase_if(spans, [&](FlightMedia const& s) { return s.step != 0 && gone(s.step); });
}

/// The items, alike but for one field.
struct FlightItems {
  FlightItems()
  {
    std::uint64_t const wide[] = {30, 150};
    std::uint64_t const high[] = {150, 30};
    pictures[0] = make("a", wide);
    pictures[1] = make("b", wide);
    pictures[2] = make("a", high);
  }
  kvcache::Media pictures[flight_pictures];

  [[nodiscard]] std::vector<kvcache::MediaSpan> declare(FlightSpans const& spans) const
  {
    std::vector<kvcache::MediaSpan> out;
    for (FlightMedia const& span : spans) {
      out.push_back({.item = span.text() ? nullptr : &pictures[span.item],
                     .first = span.first,
                     .rows = span.rows,
                     .atomic = span.atomic});
    }
    return out;
  }
  /// What a name of the plane stands for.
  [[nodiscard]] kvcache::Token symbol(kvcache::detail::MediaTable const& table,
                                      kvcache::Token token) const
  {
    if (token >= 0) {
      return token;
    }
    require(table.knows(token), "a row has a name that nobody knows");
    auto const named = table.look_up(token);
    for (std::uint32_t item = 0; item < flight_pictures; ++item) {
      if (*named.item == pictures[item]) {
        return symbol_of(item, named.rows, named.atomic, named.row);
      }
    }
    std::uint32_t content = 0;
    for (kvcache::Index row = 0; row < named.rows; ++row) {
      auto const bit = static_cast<std::uint32_t>(table.text_token(token + named.row - row));
      content |= bit << static_cast<std::uint32_t>(row);
    }
    return symbol_of(flight_pictures + content, named.rows, named.atomic, named.row);
  }

 private:
  static kvcache::Media make(char const* digest, std::span<std::uint64_t const> dims)
  {
    return kvcache::Media(
      {.digest = digest, .kind = "image", .dtype = "u8", .dims = dims, .options = {}});
  }
};

/// Makes some rows of `text`, which begins at row `first`, rows of media.
[[nodiscard]] inline FlightSpans some_media(FlightText& text,
                                            kvcache::Index first,
                                            std::int32_t page_tokens,
                                            Random& any)
{
  Random random(any.below(5));  // few ways to lie, so that prompts meet
  FlightSpans spans;
  auto at = static_cast<std::size_t>(random.below(3));
  while (at < text.size() && random.below(3) != 0) {
    std::size_t const left = text.size() - at;
    std::size_t rows = random.below(2) == 0 ? 2 : static_cast<std::size_t>(page_tokens) + 1;
    rows = rows < left ? rows : left;
    FlightMedia span;
    span.atomic = random.below(2) == 0;
    span.item = random.below(flight_pictures);
    if (span.atomic && any.below(3) == 0) {
      rows = rows < 6 ? rows : 6;
      span.item = flight_pictures;
      for (std::size_t i = 0; i < rows; ++i) {
        span.item += static_cast<std::uint32_t>(text[at + i]) << i;
      }
    }
    span.first = first + static_cast<kvcache::Index>(at);
    span.rows = static_cast<kvcache::Index>(rows);
    span.declared = span.rows;
    for (std::size_t i = 0; i < rows; ++i) {
      text[at + i] =
        symbol_of(span.item, span.declared, span.atomic, static_cast<kvcache::Index>(i));
    }
    spans.push_back(span);
    at += rows + random.below(3);
  }
  return spans;
}

}  // namespace kvcache_test
