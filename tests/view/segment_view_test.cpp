// SPDX-License-Identifier: Apache-2.0

#include <kvcache/view/segment_view.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"

using kvcache::SegmentView;

TEST_CASE("SegmentView: pages that all heads share use one table row a sequence",
          "[view][segment_view]")
{
  std::vector<std::int32_t> const table{1, 2, 3, 4, 5, 6};
  std::vector<std::uint32_t> const offsets{0, 2, 4};
  std::vector<std::byte> pool(1);
  SegmentView const view{.base = pool.data(),
                         .table = table.data(),
                         .layer_offset = offsets.data(),
                         .num_pages = 7,
                         .row_stride = 3,
                         .layer_stride = 0,
                         .seq_rows = 1,
                         .head_rows = 0,
                         .page_scale = 6,
                         .head_scale = 1,
                         .unit_bytes = 0};
  for (std::uint32_t row = 0; row < 2; ++row) {
    for (std::uint32_t p = 0; p < 3; ++p) {
      for (std::uint32_t layer = 0; layer < 3; ++layer) {
        for (std::uint32_t head = 0; head < 2; ++head) {
          CHECK(view.entry(layer, head, row, p) == row * 3 + p + 1);
        }
      }
    }
  }
}

TEST_CASE("SegmentView: tiles of one head use a table row per layer and head",
          "[view][segment_view]")
{
  // 2 layers, 2 heads, 2 sequences, 3 places: entry = ((layer * 4) + sequence * 2 + head) * 3 + p
  std::vector<std::int32_t> table(24);
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::int32_t>(i);
  }
  std::vector<std::uint32_t> const offsets{0, 0};
  alignas(128) static std::byte pool[24 * 128];
  SegmentView const view{.base = pool,
                         .table = table.data(),
                         .layer_offset = offsets.data(),
                         .num_pages = 24,
                         .row_stride = 3,
                         .layer_stride = 12,
                         .seq_rows = 2,
                         .head_rows = 1,
                         .page_scale = 1,
                         .head_scale = 0,
                         .unit_bytes = 128};
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (std::uint32_t row = 0; row < 2; ++row) {
      for (std::uint32_t head = 0; head < 2; ++head) {
        for (std::uint32_t p = 0; p < 3; ++p) {
          std::uint32_t const want = (layer * 4 + row * 2 + head) * 3 + p;
          CHECK(view.entry(layer, head, row, p) == want);
          CHECK(view.tile(layer, head, want) == pool + want * 128);
        }
      }
    }
  }
  CHECK(view.tile(1, 1, 24) == pool);
  CHECK(view.tile(1, 1, ~std::uint32_t{0}) == pool);
}

TEST_CASE("Team: Solo is one of one, Lanes is one of many", "[view][team]")
{
  CHECK(kvcache::Solo{}.rank() == 0);
  CHECK(kvcache::Solo{}.size() == 1);
  CHECK(kvcache::Lanes{5, 32}.rank() == 5);
  CHECK(kvcache::Lanes{5, 32}.size() == 32);
  static_assert(!kvcache::Team<int>);
}
