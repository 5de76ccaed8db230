// SPDX-License-Identifier: Apache-2.0

#include <kvcache/interop/slot_mapping.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/foreign.hpp"
#include "interop/hand_batch.hpp"
#include "support/catch.hpp"
#include "support/hand_plan.hpp"

using namespace kvcache_test;
using kvcache::Index;
using kvcache::TableSource;

TEST_CASE("SlotMapping: the picture's batch, in both widths, and -1 behind it",
          "[interop][slot_mapping]")
{
  HandBatch const batch;
  std::vector<std::int64_t> wide(5, -7);
  REQUIRE(kvcache::fill_slots(std::span(wide), batch.source()));
  CHECK(wide == std::vector<std::int64_t>{21, 22, 6, -1, -1});
  std::vector<std::int32_t> narrow(3, -7);
  REQUIRE(kvcache::fill_slots(std::span(narrow), batch.source()));
  CHECK(narrow == std::vector<std::int32_t>{21, 22, 6});
}

TEST_CASE("SlotMapping: a row that was appended is found in its slot", "[interop][slot_mapping]")
{
  HandBatch const batch;
  auto const kv = batch.pool.view();
  std::vector<std::int64_t> slots(3);
  REQUIRE(kvcache::fill_slots(std::span(slots), batch.source()));
  auto const tile = batch.pool.footprint().tile_bytes;
  for (Index token = 0; token < 3; ++token) {
    std::vector<float> const k(8, static_cast<float>(token) + 0.5F);
    std::vector<float> const v(8, static_cast<float>(token) + 0.75F);
    kv.append(kvcache::Solo{}, 1, 2, token, k.data(), v.data());
    auto const* const first = reinterpret_cast<float const*>(batch.pool.page(kvcache::zero_page) +
                                                             std::size_t{1 * 3} * tile);
    ForeignLayer<float> const layer{first, first + 8 * 4, tile / 4 * 6, tile / 4, 8, 4};
    std::size_t const at = slot_at(layer, slots[static_cast<std::size_t>(token)], 2);
    CHECK(layer.k[at] == k[0]);
    CHECK(layer.k[at + 7] == k[7]);
    CHECK(layer.v[at] == v[0]);
  }
}

TEST_CASE("SlotMapping: the tokens of a tree have the slots of their rows, not of their positions",
          "[interop][slot_mapping]")
{
  HandBatch batch;
  kvcache::Plan plan;
  set_table(plan, 2, 3, {9});
  add_chunk(plan, 2, 11, 3);
  plan.chunks.back().parents_at = 0;
  plan.parents = {-1, 0, 0};
  REQUIRE(batch.pool.apply(kvcache_test::in_order(plan)));
  REQUIRE(batch.pool.view().position(1) == batch.pool.view().position(2));
  std::vector<std::int64_t> slots(3);
  REQUIRE(kvcache::fill_slots(std::span(slots), batch.source()));
  CHECK(slots == std::vector<std::int64_t>{23, 36, 37});
  CHECK(batch.source().line(0).length == 14);
}

TEST_CASE("SlotMapping: what append would not store has no slot", "[interop][slot_mapping]")
{
  HandBatch const batch;
  std::vector<std::int32_t> table{0, 1, 99, -1};
  std::vector<std::uint32_t> const rows{0, 1, 2, 3, kvcache::nil, 0, 1};
  std::vector<Index> const places{
    0, 0, 0, 0, -1, 4, 0};  // 4 is behind its table row, the last not of the step
  std::vector<Index> const counts{6, 5};
  TableSource source = batch.source();
  source.segment.table = table.data();
  source.segment.row_stride = 1;
  source.counts = counts.data();
  source.token_row = rows.data();
  source.token_index = places.data();
  std::vector<std::int64_t> slots(7);
  REQUIRE(kvcache::fill_slots(std::span(slots), source));
  CHECK(slots == std::vector<std::int64_t>{-1, 4, -1, -1, -1, -1, -1});
}

TEST_CASE("SlotMapping: refused are too few places, and slots that 32 bits cannot number",
          "[interop][slot_mapping]")
{
  HandBatch const batch;
  std::vector<std::int32_t> slots(3, -7);
  CHECK(refusal(kvcache::fill_slots(std::span(slots).first(2), batch.source())) ==
        "slot_mapping = 2 (bad configuration): must have at least 3");
  TableSource source = batch.source();
  source.segment.num_pages = 1U << 29;  // of 4: the last slot is 2^31 - 1
  CHECK(refusal(kvcache::fill_slots(std::span(slots), source)).empty());
  slots.assign(3, -7);
  source.segment.num_pages += 1;
  CHECK(refusal(kvcache::fill_slots(std::span(slots), source)) ==
        "last slot of the pool = 2147483651 (bad configuration): an int32 slot_mapping numbers "
        "slots up to 2147483647");
  CHECK(slots == std::vector<std::int32_t>(3, -7));
  std::vector<std::int64_t> wide(3);
  CHECK(refusal(kvcache::fill_slots(std::span(wide), source)).empty());
}
