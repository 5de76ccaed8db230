// SPDX-License-Identifier: Apache-2.0
// The derived tables by kernels: on random ragged batches, in every grid and schedule, the words that `fill` writes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "interop/hand_batch.hpp"
#include "interop/ragged_batch.hpp"
#include "interop/table_memory.hpp"
#include "support/catch.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache_test;
using kvcache::Index;
using kvcache::TableSource;

namespace {

constexpr std::uint64_t first_seed = 20261130;

struct Grid {
  std::int32_t blocks;
  std::int32_t threads;
};

}  // namespace

TEST_CASE("Table kernels: the words that fill writes, in every schedule", "[interop][tables][simt]")
{
  constexpr Grid grids[] = {{1, 64}, {5, 32}, {3, 128}, {90, 32}};
  std::uint64_t seed = first_seed;
  for (simt::Options const& schedule : simt::schedules(first_seed)) {
    for (Grid const grid : grids) {
      for (std::int32_t const page_tokens : {1, 16, 64}) {
        ++seed;
        CAPTURE(seed, page_tokens, grid.blocks, grid.threads, simt::to_string(schedule));
        RaggedBatch<> const batch(page_tokens, seed);
        TableSource source = TableSource::of(batch.view());
        source.empty_rows = static_cast<Index>(seed % 2);
        std::size_t const lines = batch.chunks().size() + seed % 3;
        std::size_t const tokens = static_cast<std::size_t>(batch.view().num_tokens()) + seed % 5;
        CHECK(by_kernels(source, lines, tokens, grid.blocks, grid.threads, schedule) ==
              by_host(source, lines, tokens));
      }
    }
  }
}

TEST_CASE("Table kernels: rows by name, lengths as the device has them", "[interop][tables][simt]")
{
  for (std::uint64_t seed = first_seed; seed < first_seed + 6; ++seed) {
    CAPTURE(seed);
    RaggedBatch<> const batch(16, seed);
    std::vector<std::uint32_t> rows;
    for (RaggedSequence const& s : batch.sequences()) {
      rows.push_back(s.row);
    }
    auto const kv = batch.view();
    for (std::size_t c = 0; c < batch.chunks().size(); ++c) {  // a kernel rejected some
      kv.set_length(
        static_cast<Index>(c),
        batch.chunks()[c].length - static_cast<Index>(c % 2) % batch.chunks()[c].tokens);
    }
    auto const source = TableSource::of(kv, rows.data(), static_cast<Index>(rows.size()));
    CHECK(by_kernels(
            source, rows.size() + 1, 10000, 7, 64, {.order = simt::Order::random, .seed = seed}) ==
          by_host(source, rows.size() + 1, 10000));
  }
}

TEST_CASE("Table kernels: many more lines than threads, and none", "[interop][tables][simt]")
{
  RaggedBatch<> const batch(64, first_seed);
  std::vector<std::uint32_t> rows;
  for (std::size_t i = 0; i < 700; ++i) {
    rows.push_back(static_cast<std::uint32_t>(i * 37 % RaggedBatch<>::table_rows));
  }
  auto const source = TableSource::of(batch.view(), rows.data(), static_cast<Index>(rows.size()));
  for (Grid const grid : {Grid{1, 32}, Grid{3, 64}, Grid{2, 256}, Grid{800, 32}}) {
    CAPTURE(grid.blocks, grid.threads);
    CHECK(by_kernels(source, 700, 5000, grid.blocks, grid.threads, {}) ==
          by_host(source, 700, 5000));
  }
  auto const nothing = TableSource::of(batch.view(), rows.data(), 0);
  CHECK(by_kernels(nothing, 0, 5000, 2, 32, {}) == by_host(nothing, 0, 5000));
  CHECK(by_kernels(nothing, 3, 5000, 2, 32, {}) == by_host(nothing, 3, 5000));
}

TEST_CASE("Table kernels: memory that a longer step would overflow is refused", "[interop][tables]")
{
  HandBatch const hand;
  TableSource const source = hand.source();
  auto const width = static_cast<std::size_t>(source.most_pages());
  std::vector<std::int32_t> words(4 * width), lens(2), more(3);
  std::span<std::int32_t> const memory(words);
  using kvcache::table_kernel;
  std::string const short_by_one = std::to_string(2 * width - 1);
  std::string const enough = ": must have at least " + std::to_string(2 * width);

  CHECK(
    refusal(table_kernel(
              {.indptr = more, .indices = memory.first(2 * width), .last_page_len = lens}, source))
      .empty());
  CHECK(refusal(table_kernel(
          {.indptr = more, .indices = memory.first(2 * width - 1), .last_page_len = lens},
          source)) == "indices = " + short_by_one + " (bad configuration)" + enough);
  CHECK(refusal(table_kernel({.indptr = lens, .indices = memory, .last_page_len = lens}, source)) ==
        "indptr = 2 (bad configuration): must have at least 3");
  CHECK(refusal(table_kernel(
          {.pages = memory.first(2 * width - 1), .seq_lens = lens, .width = width}, source)) ==
        "pages = " + short_by_one + " (bad configuration)" + enough);
  CHECK_THAT(refusal(table_kernel({.pages = memory, .seq_lens = lens, .width = width - 1}, source)),
             StartsWith("width = "));
  CHECK_THAT(refusal(table_kernel(
               {.offsets = memory.first(4 * width - 1), .seq_lens = lens, .width = width}, source)),
             StartsWith("offsets = "));
  CHECK_THAT(
    refusal(table_kernel({.offsets = memory, .seq_lens = lens, .width = width - 1}, source)),
    StartsWith("width = "));
  TableSource large = source;
  large.segment.num_pages = 0x30000000;
  std::vector<std::int64_t> wide(1);
  CHECK_THAT(refusal(kvcache::slots_kernel(std::span(words), large)),
             StartsWith("last slot of the pool = "));
  CHECK(refusal(kvcache::slots_kernel(std::span(wide), large)).empty());
  large.segment.row_stride = 0x7fffffff;
  CHECK_THAT(
    refusal(table_kernel({.indptr = more, .indices = memory, .last_page_len = lens}, large)),
    StartsWith("indices = 2 (bad configuration): lines of the longest would pass 32 bits"));
  TableSource split = source;
  split.segment.head_rows = 1;
  CHECK_THAT(
    refusal(table_kernel({.indptr = more, .indices = memory, .last_page_len = lens}, split)),
    StartsWith("head_rows = 1"));
}
