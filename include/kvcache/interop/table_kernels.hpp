// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/interop/block_table.hpp>
#include <kvcache/interop/check_source.hpp>
#include <kvcache/interop/offset_table.hpp>
#include <kvcache/interop/page_lists.hpp>
#include <kvcache/interop/slot_mapping.hpp>
#include <kvcache/interop/table_source.hpp>
#include <kvcache/view/block_sum.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

/// \file The derived tables, each written by one launch on the device: the same words that `fill` writes on a host.
///
///   auto const kernel = kvcache::table_kernel(kvcache::PageLists{...}, source);   // once; refused if memory is too small
///   run<<<blocks, threads, kernel->shared_bytes(threads), stream>>>(*kernel);     // each step, or in a graph
///
/// Lengths, page ids and how many lines are real are read on the device, so a captured launch serves every later step of
/// its slot. Any grid is right, one that fills the device is fastest; memory must hold what the largest step can need.
/// Lines and tokens past that memory are left out.

namespace kvcache::inline v0_1 {

/// A line a warp.
struct BlockTableKernel {
  TableSource source;
  std::int32_t* pages;
  std::int32_t* seq_lens;
  Index lines;
  Index width;
  std::int32_t padding;

  static constexpr std::int32_t max_threads = 256;  ///< of a block

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::int32_t) { return 0; }
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    std::int32_t const warps = block.threads() / warp_lanes;
    Lanes const team{block.warp().lane(), warp_lanes};
    for (Index i = block.index() * warps + block.warp().index(); i < lines;
         i += block.blocks() * warps) {
      std::int32_t* const line =
        pages + static_cast<std::size_t>(i) * static_cast<std::size_t>(width);
      write_block_table(team, source, i, line, width, padding, seq_lens + i);
    }
  }
};

/// A line a warp.
struct OffsetTableKernel {
  TableSource source;
  std::int32_t* offsets;
  std::int32_t* seq_lens;
  Index lines;
  Index width;
  PlaneNumbers planes;

  static constexpr std::int32_t max_threads = 256;  ///< of a block

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::int32_t) { return 0; }
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    std::int32_t const warps = block.threads() / warp_lanes;
    Lanes const team{block.warp().lane(), warp_lanes};
    for (Index i = block.index() * warps + block.warp().index(); i < lines;
         i += block.blocks() * warps) {
      std::int32_t* const line =
        offsets + 2 * static_cast<std::size_t>(i) * static_cast<std::size_t>(width);
      write_offset_table(team, source, i, planes, line, width, seq_lens + i);
    }
  }
};

/// A token a thread.
template <SlotNumber T>
struct SlotMappingKernel {
  TableSource source;
  T* slots;
  Index tokens;

  static constexpr std::int32_t max_threads = 256;  ///< of a block

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::int32_t) { return 0; }
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    for (Index token = block.index() * block.threads() + block.thread(); token < tokens;
         token += block.blocks() * block.threads()) {
      slots[token] = static_cast<T>(source.slot(token));
    }
  }
};

/// Each block has an equal run of lines. Where its page ids begin depends on all lines before it, whose pages it counts by
/// itself: a few loads a thread, less than to wait for the blocks before it, and no word is left in memory between launches.
/// Its own lines are summed `threads` at a time, then each warp copies the ids of a line.
struct PageListsKernel {
  TableSource source;
  std::int32_t* indptr;
  std::int32_t* indices;
  std::int32_t* last_page_len;
  Index lines;

  static constexpr std::int32_t max_threads = 256;  ///< of a block

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::int32_t threads)
  {
    return (block_sum_places(threads) + static_cast<std::size_t>(threads)) * sizeof(std::int32_t);
  }
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    auto* const scratch = reinterpret_cast<std::int32_t*>(block.shared());
    std::int32_t* const firsts = scratch + block_sum_places(block.threads());
    Index const share = (lines + block.blocks() - 1) / block.blocks();
    std::int64_t const begin = std::int64_t{share} * block.index();
    if (block.index() == 0 && block.thread() == 0) {
      indptr[0] = 0;  // also of no lines
    }
    if (begin >= lines) {
      return;  // the whole block
    }
    auto const first_line = static_cast<Index>(begin);
    Index const end = lines - first_line < share ? lines : first_line + share;

    std::int32_t pages = 0;
    for (Index i = block.thread(); i < first_line; i += block.threads()) {
      pages += source.line(i).pages;
    }
    std::int32_t first = block_sum(block, pages, scratch).total;
    std::int32_t const warps = block.threads() / warp_lanes;
    Lanes const team{block.warp().lane(), warp_lanes};
    for (Index i = first_line; i < end; i += block.threads()) {
      Index const own = i + block.thread();
      auto const sum = block_sum(block, own < end ? source.line(own).pages : 0, scratch);
      firsts[block.thread()] = first + sum.before;
      block.sync();
      for (Index at = block.warp().index(); at < block.threads() && i + at < end; at += warps) {
        write_page_list(team, source, i + at, firsts[at], indptr, indices, last_page_len);
      }
      first += sum.total;  // the barriers of the next sum keep `firsts` until all have read them
    }
  }
};

static_assert(std::is_trivially_copyable_v<PageListsKernel>);

namespace detail {

/// What can be said without reading the device: whether `lines` of any length fit in `size` words, `each` a line.
[[nodiscard]] inline Error check_room(TableSource const& source,
                                      char const* span,
                                      std::size_t size,
                                      std::size_t lines,
                                      std::size_t each) noexcept
{
  if (Error const error = check(source); error.why != Why::ok) {
    return error;
  }
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  if (lines > most || (each != 0 && lines > most / each)) {
    return {Why::bad_config,
            span,
            static_cast<std::int64_t>(lines),
            "lines of the longest would pass 32 bits; with such lines at most",
            static_cast<std::int64_t>(each == 0 ? most : most / each)};
  }
  return size < lines * each ? too_small(span, size, lines * each) : Error{};
}

/// The same for rectangles of `width` pages a line, each of `words`: a line must hold the longest.
[[nodiscard]] inline Error check_rectangle(TableSource const& source,
                                           char const* span,
                                           std::size_t size,
                                           std::size_t lines,
                                           std::size_t width,
                                           std::size_t words) noexcept
{
  auto const least = static_cast<std::size_t>(source.most_pages());
  return width < least ? too_small("width", width, least)
                       : check_room(source, span, size, lines, words * width);
}

}  // namespace detail

/// Kernels that write the tables into the caller's device memory. **Cost** none; nothing of the device is read.
/// **Errors** memory that some step could overflow, with what is enough.
[[nodiscard]] inline Result<BlockTableKernel> table_kernel(BlockTable const& out,
                                                           TableSource const& source)
{
  std::size_t const lines = out.seq_lens.size();
  if (Error const error =
        detail::check_rectangle(source, "pages", out.pages.size(), lines, out.width, 1);
      error.why != Why::ok) {
    return error;
  }
  return BlockTableKernel{source,
                          out.pages.data(),
                          out.seq_lens.data(),
                          static_cast<Index>(lines),
                          static_cast<Index>(out.width),
                          out.padding};
}
[[nodiscard]] inline Result<OffsetTableKernel> table_kernel(OffsetTable const& out,
                                                            TableSource const& source)
{
  std::size_t const lines = out.seq_lens.size();
  if (Error const error =
        detail::check_rectangle(source, "offsets", out.offsets.size(), lines, out.width, 2);
      error.why != Why::ok) {
    return error;
  }
  return OffsetTableKernel{source,
                           out.offsets.data(),
                           out.seq_lens.data(),
                           static_cast<Index>(lines),
                           static_cast<Index>(out.width),
                           out.planes};
}
[[nodiscard]] inline Result<PageListsKernel> table_kernel(PageLists const& out,
                                                          TableSource const& source)
{
  std::size_t const lines = out.last_page_len.size();
  if (out.indptr.size() < lines + 1) {
    return detail::too_small("indptr", out.indptr.size(), lines + 1);
  }
  if (Error const error = detail::check_room(source,
                                             "indices",
                                             out.indices.size(),
                                             lines,
                                             static_cast<std::size_t>(source.most_pages()));
      error.why != Why::ok) {
    return error;
  }
  return PageListsKernel{source,
                         out.indptr.data(),
                         out.indices.data(),
                         out.last_page_len.data(),
                         static_cast<Index>(lines)};
}
/// The same for slots, as many as `slots` has places. **Errors** a pool of more slots than the type can number.
template <SlotNumber T>
[[nodiscard]] Result<SlotMappingKernel<T>> slots_kernel(std::span<T> slots,
                                                        TableSource const& source)
{
  if (Error const error = detail::check_room(source, "slot_mapping", slots.size(), slots.size(), 1);
      error.why != Why::ok) {
    return error;
  }
  if (Error const error = detail::check_slots<T>(source); error.why != Why::ok) {
    return error;
  }
  return SlotMappingKernel<T>{source, slots.data(), static_cast<Index>(slots.size())};
}

}  // namespace kvcache::inline v0_1
