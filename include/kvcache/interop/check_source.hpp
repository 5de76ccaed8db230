// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/interop/table_source.hpp>

#include <cstddef>
#include <cstdint>

/// \file Refusals that the derived tables have in common.

namespace kvcache::inline v0_1::detail {

[[nodiscard]] inline Error too_small(char const* span,
                                     std::size_t size,
                                     std::size_t needed) noexcept
{
  return {Why::bad_config,
          span,
          static_cast<std::int64_t>(size),
          "must have at least",
          static_cast<std::int64_t>(needed)};
}

/// Whether tables of whole pages can say what `source` says.
[[nodiscard]] inline Error check(TableSource const& source) noexcept
{
  bool const by_layer = source.segment.layer_stride != 0;
  if (by_layer || source.segment.head_rows != 0) {
    return {Why::bad_config,
            by_layer ? "layer_stride" : "head_rows",
            by_layer ? source.segment.layer_stride : source.segment.head_rows,
            "must be 0: other engines have one page table for all layers and heads"};
  }
  return {};
}

/// The same, in `lines` places of `span`.
[[nodiscard]] inline Error check(TableSource const& source,
                                 char const* span,
                                 std::size_t lines) noexcept
{
  if (Error const error = check(source); error.why != Why::ok) {
    return error;
  }
  auto const named = static_cast<std::size_t>(source.num_lines());
  return lines < named ? too_small(span, lines, named) : Error{};
}

}  // namespace kvcache::inline v0_1::detail
