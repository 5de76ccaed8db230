// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

/// \file A plan as text, for a log.
///
///   plan version 1, step 7, stream 0, slot 1
///   table row 3, from 2: 17 18
///   move page 17 row 3 to page 17 row 1
///   copy page 4 to page 18, 5 rows
///   chunk sequence 3.1 in row 3: 2 tokens from 40, slack 1
///   chunk sequence 5.1 in row 4: 3 tokens from 9, tree -1 0 0
///
/// No part of `kvcache.hpp`: a program that logs plans includes it.

namespace kvcache::inline v0_1 {
namespace detail {

inline void put_number(std::int64_t x, std::string& out)
{
  char digits[24];
  std::snprintf(digits, sizeof digits, "%lld", static_cast<long long>(x));
  out += digits;
}

/// Texts and numbers in turn.
template <class... Rest>
void put(std::string& out, char const* text, std::int64_t x, Rest... rest)
{
  out += text;
  put_number(x, out);
  if constexpr (sizeof...(rest) > 0) {
    put(out, rest...);
  }
}

/// `count` numbers from `at` on; those that the list does not have are shown as "?", once.
template <class Items, class Number>
void put_numbers(
  std::string& out, Items const& list, std::uint64_t at, std::uint64_t count, Number const& number)
{
  for (std::uint64_t i = 0; i < count; ++i) {
    if (at + i >= list.size()) {
      out += " ?";
      return;
    }
    out += ' ';
    put_number(number(list[static_cast<std::size_t>(at + i)]), out);
  }
}

}  // namespace detail

/// Appends `plan` to `out`, a line for each thing that it says; also a plan that no pool would take.
/// **Cost** O(plan). **Errors** `std::bad_alloc`.
inline void print(Plan const& plan, std::string& out)
{
  char step[24];
  std::snprintf(step, sizeof step, "%llu", static_cast<unsigned long long>(plan.step.value));
  detail::put(out, "plan version ", plan.version);
  out += ", step ";
  out += step;
  detail::put(out, ", stream ", plan.stream.value, ", slot ", plan.slot);
  out += '\n';
  for (TableDelta const& delta : plan.tables) {
    detail::put(out, "table row ", delta.row.value, ", from ", delta.first);
    out += ':';
    detail::put_numbers(
      out, plan.ids, delta.ids_at, delta.count, [](PageId page) { return page.value; });
    out += '\n';
  }
  for (RowMove const& move : plan.moves) {
    detail::put(out, "move page ", move.source.value, " row ", move.source_row);
    detail::put(out, " to page ", move.target.value, " row ", move.target_row);
    out += '\n';
  }
  for (PageCopy const& copy : plan.copies) {
    detail::put(
      out, "copy page ", copy.source.value, " to page ", copy.target.value, ", ", copy.rows);
    out += " rows\n";
  }
  for (PlannedChunk const& chunk : plan.chunks) {
    detail::put(out, "chunk sequence ", chunk.sequence.slot, ".", chunk.sequence.generation);
    detail::put(out, " in row ", chunk.row.value, ": ", chunk.tokens);
    detail::put(out, " tokens from ", chunk.first_index);
    if (chunk.slack != 0) {
      detail::put(out, ", slack ", chunk.slack);
    }
    if (chunk.parents_at != nil) {
      out += ", tree";
      detail::put_numbers(out,
                          plan.parents,
                          chunk.parents_at,
                          chunk.tokens < 0 ? 0 : static_cast<std::uint64_t>(chunk.tokens),
                          [](Index parent) { return parent; });
    }
    out += '\n';
  }
}

}  // namespace kvcache::inline v0_1
