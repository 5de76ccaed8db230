// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/interop/table_source.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/gather.hpp>

#include <cstddef>
#include <cstdint>

/// \file A layer's rows of many sequences, copied out of their pages by one launch: ragged, one sequence after the other.
///
///   lines    a: 11 rows   b: 3 rows          K   [ a 0 .. a 10 | b 0 1 2 ]   likewise V; line i begins where the lengths
///                                                                         before it end
///   out      out + row * token_stride + head * head_stride                `[rows][heads][dim]` or `[heads][rows][dim]`
///
/// For attention without pages over a cached prefix, and for exports. `dense.hpp` has the same for one sequence on a host.

namespace kvcache::inline v0_1 {

/// Pages are dealt out to blocks in turns, whatever sequences they belong to, so long and short ones weigh the same; each
/// block walks the lines and counts by itself. Entries that are no page of the pool give zeros.
/// **Pre** the rows were written; `out_k`, `out_v` and the strides are multiples of 16 bytes.
/// **Cost** each byte read and written once, in pieces of 16 bytes; a few loads a line and block. Any grid, no shared memory.
template <class Layout>
struct GatherKernel {
  using element = typename Layout::element;

  TableSource source;
  BatchView<Layout> kv;
  std::int32_t layer;
  std::int32_t heads;  ///< the first so many KV heads
  Index lines;  ///< as many as the memory was made for; those behind the source's last are empty
  std::int64_t rows;  ///< that have room in `out_k` and in `out_v`; those behind are left out
  element* out_k;
  element* out_v;
  std::int64_t token_stride;  ///< elements
  std::int64_t head_stride;   ///< elements

  static constexpr std::int32_t max_threads = 256;  ///< of a block
  static constexpr std::int32_t blocks_beside =
    4;  ///< on a multiprocessor; left to itself, nvcc takes 32 registers and spills

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::int32_t) { return 0; }
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    std::int64_t first = 0;  // row of the output where the line begins
    Index p = block.index();
    for (Index i = 0; i < lines; ++i) {
      TableSource::Line const line = source.line(i);
      for (; p < line.pages; p += block.blocks()) {
        copy_page(block, line, p, first);
      }
      p -= line.pages;
      first += line.length;
    }
  }

 private:
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void copy_page(B& block,
                                     TableSource::Line const& line,
                                     Index p,
                                     std::int64_t first) const
  {
    Index const page_tokens = kv.map.tokens.get();
    std::int64_t const begin = first + std::int64_t{p} * page_tokens;
    Index const left = line.length - p * page_tokens;
    Index count = left < page_tokens ? left : page_tokens;
    if (rows - begin < count) {
      count = rows > begin ? static_cast<Index>(rows - begin) : 0;
    }
    auto const page = static_cast<std::uint32_t>(source.page(line, p));
    constexpr auto fragment = static_cast<std::int32_t>(sizeof(detail::Fragment) / sizeof(element));
    std::int32_t const per_row = kv.map.dim.get() / fragment;
    std::int32_t const per_head = count * per_row;
    for (std::int32_t at = block.thread(); at < heads * per_head; at += block.threads()) {
      std::int32_t const head = at / per_head;
      Index const r = (at - head * per_head) / per_row;
      std::int32_t const d = (at - head * per_head - r * per_row) * fragment;
      auto const* const from =
        reinterpret_cast<element const*>(kv.segment.tile(
          static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(head), page)) +
        static_cast<std::size_t>(r) * kv.map.row_elements() + d;
      std::int64_t const to = (begin + r) * token_stride + head * head_stride + d;
      copy(out_k + to, from);
      copy(out_v + to, from + kv.map.value_elements());
    }
  }
  static KVCACHE_HOST_DEVICE void copy(element* to, element const* from)
  {
    *reinterpret_cast<detail::Fragment*>(to) = *reinterpret_cast<detail::Fragment const*>(from);
  }
};

}  // namespace kvcache::inline v0_1
