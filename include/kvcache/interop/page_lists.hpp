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

/// \file Pages as compressed rows (CSR), which FlashInfer's kernels take: `kv_indptr`, `kv_indices`, `last_page_len`.
///
///   native   a: [ 7 3 5 - ] 11 rows    b: [ 1 - - - ] 3 rows      (pages of 4)
///   indptr   0 3 4      indices   7 3 5 1      last_page_len   3 3

namespace kvcache::inline v0_1 {

/// Memory for the three arrays. A batch has as many lines as `last_page_len` has places.
struct PageLists {
  std::span<std::int32_t> indptr;         ///< one place more than lines
  std::span<std::int32_t> indices;        ///< `num_indices(source, lines)` places, or more
  std::span<std::int32_t> last_page_len;  ///< lines
};

/// How many page ids a batch of `lines` has now. For memory that holds in every step take `lines * most_pages()`.
/// **Cost** O(lines).
[[nodiscard]] inline std::size_t num_indices(TableSource const& source, std::size_t lines)
{
  std::size_t sum = 0;
  for (std::size_t i = 0; i < lines; ++i) {
    sum += static_cast<std::size_t>(source.line(static_cast<Index>(i)).pages);
  }
  return sum;
}

/// Writes the `i`-th line: the body of a kernel. `first` is what the lines before it have in `indices`: the running
/// sum of `source.line(..).pages`. Each member of `team` writes a part. **Cost** O(pages of the line).
template <Team T>
KVCACHE_HOST_DEVICE void write_page_list(T const& team,
                                         TableSource const& source,
                                         Index i,
                                         std::int32_t first,
                                         std::int32_t* indptr,
                                         std::int32_t* indices,
                                         std::int32_t* last_page_len)
{
  TableSource::Line const line = source.line(i);
  if (team.rank() == 0) {
    if (i == 0) {
      indptr[0] = 0;
    }
    indptr[i + 1] = first + line.pages;
    last_page_len[i] = line.last_page_rows;
  }
  for (Index p = team.rank(); p < line.pages; p += team.size()) {
    indices[first + p] = source.page(line, p);
  }
}

/// Fills the three arrays. Lines behind the source's last are empty: the `indptr` before and after them is the same.
/// Places of `indices` behind the last page id stay as they are.
/// **Shape** `indptr[lines + 1]`, `indices[indptr[lines]]`, `last_page_len[lines]`, int32, as FlashInfer wants.
/// **Pre** the view's memory can be read from here. **Cost** O(lines + page ids). Allocates nothing.
/// **Errors** a span that is too small, with the figure; nothing is written.
[[nodiscard]] inline Result<Done> fill(PageLists const& out, TableSource const& source)
{
  std::size_t const lines = out.last_page_len.size();
  if (Error const error = detail::check(source, "last_page_len", lines); error.why != Why::ok) {
    return error;
  }
  if (out.indptr.size() < lines + 1) {
    return detail::too_small("indptr", out.indptr.size(), lines + 1);
  }
  std::size_t const needed = num_indices(source, lines);
  if (needed > 0x7fffffffU) {
    return Error{Why::bad_config,
                 "indices",
                 static_cast<std::int64_t>(needed),
                 "indptr counts page ids in 32 bits, up to",
                 0x7fffffff};
  }
  if (out.indices.size() < needed) {
    return detail::too_small("indices", out.indices.size(), needed);
  }
  out.indptr[0] = 0;
  for (std::size_t i = 0; i < lines; ++i) {
    write_page_list(Solo{},
                    source,
                    static_cast<Index>(i),
                    out.indptr[i],
                    out.indptr.data(),
                    out.indices.data(),
                    out.last_page_len.data());
  }
  return Done{};
}

}  // namespace kvcache::inline v0_1
