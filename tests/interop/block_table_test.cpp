// SPDX-License-Identifier: Apache-2.0

#include <kvcache/interop/block_table.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interop/hand_batch.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;
using kvcache::TableSource;
using Numbers = std::vector<std::int32_t>;

TEST_CASE("BlockTable: the picture's batch, padded with the page of zeros, or with -1",
          "[interop][block_table]")
{
  HandBatch const batch;
  Numbers pages(13, -7);
  Numbers lens(3, -7);
  REQUIRE(kvcache::fill({.pages = pages, .seq_lens = lens, .width = 4}, batch.source()));
  CHECK(pages == Numbers{7, 3, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, -7});
  CHECK(lens == Numbers{11, 3, 0});
  REQUIRE(
    kvcache::fill({.pages = pages, .seq_lens = lens, .width = 3, .padding = -1}, batch.source()));
  CHECK(pages == Numbers{7, 3, 5, 1, -1, -1, -1, -1, -1, 0, 0, 0, -7});
  CHECK(kvcache::least_width(batch.source(), 3) == 3);
}

TEST_CASE("BlockTable: a line without rows may claim rows of the page of zeros, up to a page",
          "[interop][block_table]")
{
  HandBatch const batch;
  Numbers pages(9, -7);
  Numbers lens(3, -7);
  TableSource source = batch.source();
  source.empty_rows = 1;
  REQUIRE(kvcache::fill({.pages = pages, .seq_lens = lens, .width = 3, .padding = -1}, source));
  CHECK(pages == Numbers{7, 3, 5, 1, -1, -1, 0, -1, -1});
  CHECK(lens == Numbers{11, 3, 1});
  source.empty_rows = 100;
  REQUIRE(kvcache::fill({.pages = pages, .seq_lens = lens, .width = 3, .padding = -1}, source));
  CHECK(lens == Numbers{11, 3, 4});
}

TEST_CASE("BlockTable: what is too small is refused with the figure, and nothing is written",
          "[interop][block_table]")
{
  HandBatch const batch;
  Numbers pages(6, -7);
  Numbers lens(2, -7);
  auto const filled = [&](std::size_t places, std::size_t lines, std::size_t width) {
    return refusal(kvcache::fill({.pages = std::span(pages).first(places),
                                  .seq_lens = std::span(lens).first(lines),
                                  .width = width},
                                 batch.source()));
  };
  CHECK(filled(6, 2, 2) == "width = 2 (bad configuration): must have at least 3");
  CHECK(filled(5, 2, 3) == "pages = 5 (bad configuration): must have at least 6");
  CHECK(filled(6, 1, 3) == "seq_lens = 1 (bad configuration): must have at least 2");
  CHECK(pages == Numbers(6, -7));
  CHECK(lens == Numbers(2, -7));
  CHECK(filled(6, 2, 3).empty());
}

TEST_CASE("BlockTable: a kernel of fixed width leaves out what finds no place",
          "[interop][block_table]")
{
  HandBatch const batch;
  Numbers pages(3, -7);
  std::int32_t length = -7;
  kvcache::write_block_table(kvcache::Solo{}, batch.source(), 0, pages.data(), 2, 0, &length);
  CHECK(pages == Numbers{7, 3, -7});
  CHECK(length == 11);
}
