// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/segment_view.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file What derived tables are made from: lines, each a table row and how many rows of its sequence are read.
///
///   chunks of a step     line i is the step's i-th chunk     its length: the place of the chunk's last token, plus 1
///   rows by name         line i is table row `rows[i]`       its length: what the device array `lengths` holds
///   behind the last one  empty lines, the dummies of a captured graph
///
/// Both lengths are the device's own, so drafts that are still open count as the device has them: in a step of drafts
/// all that the step stores, in the step after it what was accepted.

namespace kvcache::inline v0_1 {

/// See the file comment. Trivially copyable; pointers only, so a captured graph may keep it.
struct TableSource {
  /// One line. Where `pages` is 0, `last_page_rows` is a whole page: other engines want 1 to page_tokens there, and
  /// `page_tokens * (pages - 1) + last_page_rows` is then the length 0.
  struct Line {
    std::uint32_t row;  ///< `nil`: reads the page of zeros
    Index length;       ///< rows that are read
    Index pages;        ///< that hold them
    Index last_page_rows;
  };

  SegmentView segment;
  Index page_tokens;
  Index const* counts;             ///< {tokens, chunks}, as in `BatchView`
  std::uint32_t const* token_row;  ///< as in `BatchView`
  Index const* token_index;        ///< as in `BatchView`
  Index const* chunk_first;        ///< as in `BatchView`
  Index const* lengths;            ///< as in `BatchView`
  std::uint32_t const* rows =
    nullptr;  ///< `[num_rows]` table rows, `nil` for an empty line; null: the step's chunks
  Index num_rows = 0;
  /// Rows of the page of zeros that a line without rows claims: 0, no page at all; 1, for kernels that want a page in
  /// every line of a captured batch. Such a line attends to zeros and gives zeros. At most a page.
  Index empty_rows = 0;

  /// A line for each chunk of the step, in the step's order. **Pre** all layers and heads share the view's pages.
  template <class Layout>
  [[nodiscard]] static KVCACHE_HOST_DEVICE TableSource of(BatchView<Layout> const& view)
  {
    return {view.segment,
            view.map.tokens.get(),
            view.counts,
            view.token_row,
            view.token_index,
            view.chunk_first,
            view.lengths};
  }
  /// A line for each of `count` table rows, in any order. **Pre** as above, and each row is `nil` or of a sequence that
  /// a plan has brought: the device knows nothing of one that was opened and not yet stepped.
  template <class Layout>
  [[nodiscard]] static KVCACHE_HOST_DEVICE TableSource of(BatchView<Layout> const& view,
                                                          std::uint32_t const* rows,
                                                          Index count)
  {
    TableSource source = of(view);
    source.rows = rows;
    source.num_rows = count;
    return source;
  }

  /// Lines that name a chunk or a row; those behind them are empty.
  [[nodiscard]] KVCACHE_HOST_DEVICE Index num_lines() const
  {
    return rows != nullptr ? num_rows : counts[1];
  }
  /// No table has a line of more pages.
  [[nodiscard]] KVCACHE_HOST_DEVICE Index most_pages() const
  {
    return static_cast<Index>(segment.row_stride);
  }

  /// The `i`-th line, from the first on; empty behind the last one. **Cost** a few loads, one division.
  [[nodiscard]] KVCACHE_HOST_DEVICE Line line(Index i) const
  {
    std::uint32_t row = nil;
    Index length = 0;
    if (i < num_lines()) {
      if (rows != nullptr) {
        row = rows[i];
        length = row == nil ? 0 : lengths[row];
      } else {
        row = token_row[chunk_first[i]];
        length = token_index[chunk_first[i + 1] - 1] + 1;
      }
    }
    if (row == nil || length <= 0) {
      return make_line(nil, empty_rows < page_tokens ? empty_rows : page_tokens);
    }
    // A kernel of the engine writes lengths: what it writes leads nobody out of the table.
    std::uint64_t const most =
      std::uint64_t{segment.row_stride} * static_cast<std::uint64_t>(page_tokens);
    return make_line(row,
                     static_cast<std::uint64_t>(length) < most ? length : static_cast<Index>(most));
  }

  /// The page of the `p`-th tile of `line`: our page ids are other engines' page ids. An entry that is no page of
  /// the pool is the page of zeros. **Pre** `p < line.pages`. **Cost** one load.
  [[nodiscard]] KVCACHE_HOST_DEVICE std::int32_t page(Line const& line, Index p) const
  {
    std::uint32_t const entry =
      line.row == nil ? 0 : segment.entry(0, 0, line.row, static_cast<std::uint32_t>(p));
    return static_cast<std::int32_t>(entry < segment.num_pages ? entry : 0);
  }

  /// Where the row of `token` is stored: page * page_tokens + offset. -1, do not store, for padding, for tokens from
  /// `counts[0]` on, and where `BatchView::append` would store nothing. **Cost** a few loads, one division.
  [[nodiscard]] KVCACHE_HOST_DEVICE std::int64_t slot(Index token) const
  {
    if (token >= counts[0] || token_index[token] < 0) {
      return -1;
    }
    Index const index = token_index[token];
    Index const p = index / page_tokens;
    std::uint32_t const page =
      segment.page_to_store(0, 0, token_row[token], static_cast<std::uint32_t>(p));
    return page == 0 ? -1 : std::int64_t{page} * page_tokens + (index - p * page_tokens);
  }

 private:
  [[nodiscard]] KVCACHE_HOST_DEVICE Line make_line(std::uint32_t row, Index length) const
  {
    Index const pages = length / page_tokens + (length % page_tokens != 0 ? 1 : 0);
    return {row, length, pages, length - (pages - 1) * page_tokens};
  }
};

static_assert(std::is_trivially_copyable_v<TableSource> && std::is_standard_layout_v<TableSource>);

}  // namespace kvcache::inline v0_1
