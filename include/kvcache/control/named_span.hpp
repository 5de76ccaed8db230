// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/media_table.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <span>

/// \file Media of one sequence, and where it may be cut.
///
///   rows   0 1 2 3 4 5 6 7 8 9 ...      a sequence keeps its spans in order, also those that it has not reached
///              [ atomic  ]              ends 3 to 7 are bad: what ends there goes back to 2

namespace kvcache::inline v0_1::detail {

/// Rows `first .. end() - 1` are rows of an item, named from `base` on.
struct NamedSpan {
  Index first = 0;
  Index rows = 0;
  Index base = 0;
  bool atomic = false;
  bool text = false;  ///< its tokens count
  StepId
    declared_by{};  ///< a step in flight that takes the span along if it comes to nothing; 0: none

  [[nodiscard]] Index end() const noexcept { return first + rows; }
  [[nodiscard]] Token name_at(Index row) const noexcept
  {
    return MediaTable::name_of(base, row - first);
  }
  [[nodiscard]] bool same_rows(NamedSpan const& other) const noexcept
  {
    return first == other.first && rows == other.rows && base == other.base;
  }
};

/// The first span that ends behind `row`, or null.
[[nodiscard]] inline NamedSpan const* span_after(std::span<NamedSpan const> spans,
                                                 Index row) noexcept
{
  if (spans.empty() || spans.back().end() <= row) {
    return nullptr;  // the common case: what is decoded lies behind all media
  }
  std::size_t low = 0;
  std::size_t high = spans.size() - 1;
  while (low < high) {
    std::size_t const middle = (low + high) / 2;
    if (spans[middle].end() <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return &spans[low];
}

/// The atomic span that would be torn by what ends at `length` rows, or null.
[[nodiscard]] inline NamedSpan const* torn_at(std::span<NamedSpan const> spans,
                                              Index length) noexcept
{
  NamedSpan const* const span = span_after(spans, length);
  return span != nullptr && span->atomic && span->first < length ? span : nullptr;
}
/// The longest length up to `length` that ends inside no atomic span.
[[nodiscard]] inline Index whole_spans(std::span<NamedSpan const> spans, Index length) noexcept
{
  NamedSpan const* const torn = torn_at(spans, length);
  return torn != nullptr ? torn->first : length;
}

/// Lets go of the last of `pages`, which begin at row `start`, until they end inside no atomic span.
inline void drop_torn(List<PageId>& pages,
                      std::span<NamedSpan const> spans,
                      std::size_t start,
                      std::size_t page_tokens) noexcept
{
  while (!pages.empty() &&
         torn_at(spans, static_cast<Index>(start + pages.size() * page_tokens)) != nullptr) {
    pages.pop_back();
  }
}

/// Writes the names of rows `first .. first + text.size() - 1` where they have any.
inline void write_names(std::span<NamedSpan const> spans,
                        Index first,
                        std::span<Token> text) noexcept
{
  Index const end = first + static_cast<Index>(text.size());
  for (NamedSpan const* span = span_after(spans, first);
       span != nullptr && span != spans.data() + spans.size() && span->first < end;
       ++span) {
    for (Index row = span->first < first ? first : span->first; row < span->end() && row < end;
         ++row) {
      text[static_cast<std::size_t>(row - first)] = span->name_at(row);
    }
  }
}

/// Rows from `length` on are nobody's any more. An atomic span goes as a whole.
inline void clip(List<NamedSpan>& spans, Index length) noexcept
{
  length = whole_spans(spans, length);
  while (!spans.empty() && spans.back().first >= length) {
    spans.pop_back();
  }
  if (!spans.empty() && spans.back().end() > length) {
    spans.back().rows = length - spans.back().first;
  }
}

}  // namespace kvcache::inline v0_1::detail
