// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file All derived tables of a batch, made by the host's `fill` and by a launch of each kernel.

#include <kvcache/interop/table_kernels.hpp>
#include <kvcache/interop/tables.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/simt/simt.hpp"

namespace kvcache_test {

/// Memory for all tables of `lines` lines and `tokens` tokens, of whatever length, full of other numbers.
struct TableMemory {
  std::size_t width;
  std::vector<std::int32_t> indptr, indices, last_page_len, blocks, block_lens, offsets,
    offset_lens;
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> short_slots;

  TableMemory(kvcache::TableSource const& source, std::size_t lines, std::size_t tokens)
      : width(static_cast<std::size_t>(source.most_pages())),
        indptr(lines + 1, -7),
        indices(lines * width, -7),
        last_page_len(lines, -7),
        blocks(lines * width, -7),
        block_lens(lines, -7),
        offsets(lines * 2 * width, -7),
        offset_lens(lines, -7),
        slots(tokens, -7),
        short_slots(tokens, -7)
  {
  }
  kvcache::PageLists lists()
  {
    return {.indptr = indptr, .indices = indices, .last_page_len = last_page_len};
  }
  kvcache::BlockTable rectangle()
  {
    return {.pages = blocks, .seq_lens = block_lens, .width = width, .padding = -1};
  }
  kvcache::OffsetTable planes()
  {
    return {.offsets = offsets,
            .seq_lens = offset_lens,
            .width = width,
            .planes = {.page_planes = 4, .plane_bytes = 64}};
  }
  bool operator==(TableMemory const&) const = default;
};

/// By `fill`, on the host.
inline TableMemory by_host(kvcache::TableSource const& source,
                           std::size_t lines,
                           std::size_t tokens)
{
  TableMemory m(source, lines, tokens);
  REQUIRE(kvcache::fill(m.lists(), source));
  REQUIRE(kvcache::fill(m.rectangle(), source));
  REQUIRE(kvcache::fill(m.planes(), source));
  REQUIRE(kvcache::fill_slots(std::span(m.slots), source));
  REQUIRE(kvcache::fill_slots(std::span(m.short_slots), source));
  return m;
}

/// By a launch each.
inline TableMemory by_kernels(kvcache::TableSource const& source,
                              std::size_t lines,
                              std::size_t tokens,
                              std::int32_t blocks,
                              std::int32_t threads,
                              simt::Options const& options)
{
  TableMemory m(source, lines, tokens);
  auto const run = [&](auto const& made) {
    REQUIRE(made);
    simt::launch(blocks, threads, made->shared_bytes(threads), *made, options);
  };
  run(kvcache::table_kernel(m.lists(), source));
  run(kvcache::table_kernel(m.rectangle(), source));
  run(kvcache::table_kernel(m.planes(), source));
  run(kvcache::slots_kernel(std::span(m.slots), source));
  run(kvcache::slots_kernel(std::span(m.short_slots), source));
  return m;
}

}  // namespace kvcache_test
