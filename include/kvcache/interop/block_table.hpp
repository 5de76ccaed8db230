// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/interop/check_source.hpp>
#include <kvcache/interop/table_source.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file Pages as a padded rectangle with lengths, which vLLM's and FlashAttention's kernels take.
///
///   block_table   [ 7 3 5 0 ]   seq_lens   11        (pages of 4, width 4)
///                 [ 1 0 0 0 ]               3
///                 [ 0 0 0 0 ]               0        an empty line
///
/// The native table is such a rectangle already, in order of table rows: where an engine can name those, it needs no copy.

namespace kvcache::inline v0_1 {

/// Memory for the rectangle. A batch has as many lines as `seq_lens` has places.
struct BlockTable {
  std::span<std::int32_t> pages;     ///< lines * width, one line after the other
  std::span<std::int32_t> seq_lens;  ///< lines
  std::size_t width = 0;             ///< places of a line
  std::int32_t padding =
    0;  ///< behind a line's last page: the page of zeros, which any kernel may read; or -1
};

/// The least width that holds a batch of `lines` now. For memory that holds in every step take `most_pages()`.
/// **Cost** O(lines).
[[nodiscard]] inline std::size_t least_width(TableSource const& source, std::size_t lines)
{
  Index widest = 0;
  for (std::size_t i = 0; i < lines; ++i) {
    Index const pages = source.line(static_cast<Index>(i)).pages;
    widest = pages > widest ? pages : widest;
  }
  return static_cast<std::size_t>(widest);
}

/// Writes the `i`-th line, `width` places from `pages` on and one at `seq_len`: the body of a kernel. Each member of
/// `team` writes a part; pages that find no place are left out. **Cost** O(width).
template <Team T>
KVCACHE_HOST_DEVICE void write_block_table(T const& team,
                                           TableSource const& source,
                                           Index i,
                                           std::int32_t* pages,
                                           Index width,
                                           std::int32_t padding,
                                           std::int32_t* seq_len)
{
  TableSource::Line const line = source.line(i);
  if (team.rank() == 0) {
    *seq_len = line.length;
  }
  for (Index p = team.rank(); p < width; p += team.size()) {
    pages[p] = p < line.pages ? source.page(line, p) : padding;
  }
}

/// Fills the rectangle and the lengths; lines behind the source's last are empty.
/// **Shape** `pages[lines][width]`, `seq_lens[lines]`, int32.
/// **Pre** the view's memory can be read from here. **Cost** O(lines * width). Allocates nothing.
/// **Errors** a span or a width that is too small, with the figure; nothing is written.
[[nodiscard]] inline Result<Done> fill(BlockTable const& out, TableSource const& source)
{
  std::size_t const lines = out.seq_lens.size();
  if (Error const error = detail::check(source, "seq_lens", lines); error.why != Why::ok) {
    return error;
  }
  if (std::size_t const least = least_width(source, lines); out.width < least) {
    return detail::too_small("width", out.width, least);
  }
  if (out.width != 0 && out.pages.size() / out.width < lines) {
    return detail::too_small("pages", out.pages.size(), lines * out.width);
  }
  for (std::size_t i = 0; i < lines; ++i) {
    write_block_table(Solo{},
                      source,
                      static_cast<Index>(i),
                      out.pages.data() + i * out.width,
                      static_cast<Index>(out.width),
                      out.padding,
                      out.seq_lens.data() + i);
  }
  return Done{};
}

}  // namespace kvcache::inline v0_1
