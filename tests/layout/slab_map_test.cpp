// SPDX-License-Identifier: Apache-2.0

#include <kvcache/alloc/slab_table.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/layout/slab_map.hpp>
#include <kvcache/view/segment_view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;

constexpr std::uint32_t layers = 2;
constexpr std::uint32_t heads = 3;

/// Pages of a model whose tiles have so many bytes.
Footprint pages_of(std::uint32_t tile_bytes)
{
  return {.tile_bytes = tile_bytes,
          .tiles_per_page = layers * heads,
          .row_bytes = 0,
          .unit_bytes = tile_bytes,
          .head_units = 1,
          .layer_units = heads,
          .layers = layers};
}

std::string refusal(std::vector<Footprint> const& classes, std::uint64_t arena_bytes)
{
  auto const made = SlabMap::create(classes, arena_bytes);
  return made ? "made" : made.error().message().text;
}

/// Where a view of the class finds a tile, from the arena's start.
std::uint64_t tile_at(
  SlabMap const& map, std::size_t c, PageId page, std::uint32_t layer, std::uint32_t head)
{
  Footprint const& f = map.footprint(c);
  std::uint32_t const offsets[layers] = {0, f.layer_stride(0)};
  constexpr std::uintptr_t origin = std::uintptr_t{1} << 40;  // never read
  SegmentView const segment{.base = reinterpret_cast<std::byte*>(origin),
                            .table = nullptr,
                            .layer_offset = offsets,
                            .num_pages = map.num_pages(c),
                            .row_stride = 0,
                            .layer_stride = 0,
                            .seq_rows = 1,
                            .head_rows = 0,
                            .page_scale = f.page_units(),
                            .head_scale = f.head_units,
                            .unit_bytes = f.unit_bytes};
  return reinterpret_cast<std::uintptr_t>(segment.tile(layer, head, page.value)) - origin;
}

// Tiles of 32 rows of 128 elements: in 16 bits, and as KIVI's two bits with their scales.
constexpr std::uint32_t open_tile = 16384;
constexpr std::uint32_t sealed_tile = 3072;

}  // namespace

TEST_CASE("SlabMap: one class is a plain pool", "[layout][slab_map]")
{
  Geometry const g{.layers = 30, .kv_heads = 3, .head_dim = 64, .page_tokens = 16};
  Footprint const f = PagedHeads<half>::footprint(g);
  auto const map = SlabMap::create({&f, 1}, f.pool_bytes(100));
  REQUIRE(map);
  CHECK(map->slab_bytes() == f.page_bytes());
  CHECK(map->num_slabs() == 101);
  CHECK(map->num_pages(0) == 101);
  CHECK(map->zero_bytes() == f.page_bytes());
  CHECK(map->pages(0, 0).count == 0);  // the page of zeros
  CHECK(map->pages(0, 1).first == PageId{1});
  CHECK(map->pages(0, 100).first == PageId{100});
  CHECK(map->pages(0, 100).count == 1);
}

TEST_CASE("SlabMap: a slab is a common multiple of the page sizes, and ids count over the arena",
          "[layout][slab_map]")
{
  std::array const classes{pages_of(open_tile), pages_of(sealed_tile)};
  std::uint64_t const slab = std::uint64_t{49152} * layers * heads;
  auto const map = SlabMap::create(classes, 5 * slab + 7);
  REQUIRE(map);
  CHECK(map->slab_bytes() == slab);
  CHECK(map->num_slabs() == 5);
  CHECK(map->zero_bytes() == std::uint64_t{open_tile} * layers * heads);
  CHECK(map->num_pages(0) == 15);
  CHECK(map->num_pages(1) == 80);
  CHECK(map->pages(0, 0).first == PageId{1});
  CHECK(map->pages(0, 0).count == 2);
  CHECK(map->pages(1, 0).first == PageId{6});  // 5.33 sealed pages are zeros
  CHECK(map->pages(1, 0).count == 10);
  CHECK(map->pages(1, 3).first == PageId{48});
  CHECK(map->pages(1, 3).count == 16);
  CHECK(map->slab_of(1, PageId{47}) == 2);
  CHECK(map->slab_of(1, PageId{48}) == 3);

  auto const larger = SlabMap::create(classes, 5 * slab, slab + 1);
  REQUIRE(larger);
  CHECK(larger->slab_bytes() == 2 * slab);
  CHECK(larger->num_slabs() == 2);
  CHECK_FALSE(SlabMap::create(classes, 5 * slab, 6 * slab));
  CHECK_FALSE(SlabMap::create(classes, 5 * slab, ~std::uint64_t{0}));
}

TEST_CASE("SlabMap: while slabs change hands, no two live pages share a byte, nor any the zeros",
          "[layout][slab_map][slab_table]")
{
  constexpr std::uint64_t seed = 71;
  CAPTURE(seed);
  kvcache_test::Random random(seed);
  std::array const classes{pages_of(open_tile), pages_of(sealed_tile), pages_of(1280)};
  auto const map = SlabMap::create(classes, std::uint64_t{1} << 24);
  REQUIRE(map);
  REQUIRE(map->num_slabs() > 3);
  SlabTable table(map->num_slabs());
  std::uint64_t const unit = 128;
  std::uint64_t const end = map->num_slabs() * map->slab_bytes();
  int moved = 0;
  for (int round = 0; round < 60; ++round) {
    auto const c = static_cast<std::uint8_t>(random.below(3));
    TakenSlab const taken = table.take(c);
    if (taken.slab != nil) {
      moved += taken.was_other ? 1 : 0;
      table.use(taken.slab, map->pages(c, taken.slab).count);
    }
    std::uint32_t const emptied = random.below(table.size());
    if (table.owner(emptied) != SlabTable::nobody) {
      table.release(emptied, table.used(emptied));
    }
    if (round % 6 != 0) {
      continue;
    }
    std::vector<std::uint8_t> taken_bytes(end / unit, 0);
    std::size_t wrong = 0;
    for (std::uint32_t s = 0; s < table.size(); ++s) {
      if (table.owner(s) == SlabTable::nobody) {
        continue;
      }
      std::size_t const owner = table.owner(s);
      SlabPages const pages = map->pages(owner, s);
      for (std::uint32_t id = pages.first.value; id < pages.first.value + pages.count; ++id) {
        wrong += map->slab_of(owner, PageId{id}) == s && id < map->num_pages(owner) ? 0U : 1U;
        for (std::uint32_t tile = 0; tile < layers * heads; ++tile) {
          std::uint64_t const at = tile_at(*map, owner, PageId{id}, tile / heads, tile % heads);
          wrong += at >= map->zero_bytes() && at / map->slab_bytes() == s ? 0U : 1U;
          for (std::uint64_t i = 0; i < map->footprint(owner).tile_bytes; i += unit) {
            wrong += taken_bytes.at((at + i) / unit)++;
          }
        }
      }
    }
    REQUIRE(wrong == 0);
  }
  CHECK(moved > 5);
  for (std::size_t c = 0; c < 3; ++c) {  // what is no page reads zeros, in every class
    CHECK(tile_at(*map, c, PageId{map->num_pages(c)}, 1, 2) + map->footprint(c).tile_bytes <=
          map->zero_bytes());
  }
}

TEST_CASE("SlabMap: what cannot work is refused with the figure", "[layout][slab_map]")
{
  CHECK(refusal({}, 1 << 20) == "classes = 0 (bad configuration): must be 1 to 8");
  CHECK(refusal(std::vector<Footprint>(9, pages_of(128)), 1 << 20) ==
        "classes = 9 (bad configuration): must be 1 to 8");
  CHECK(refusal({pages_of(open_tile), pages_of(sealed_tile)}, 294911) ==
        "arena_bytes = 294911 (bad configuration): must hold a slab, a common multiple of all page "
        "sizes 294912");
  CHECK(refusal({pages_of(open_tile), pages_of(sealed_tile)}, 294912) == "made");
  Footprint layer_first = pages_of(128);
  layer_first.arrangement = Arrangement::layer_first;
  CHECK(refusal({pages_of(128), layer_first}, 1 << 20) ==
        "classes = 1 (bad configuration): is the number of one whose pages are no extents; all "
        "must be page_first");
  // Units of 3,072 bytes end before those of 16,384 do: at 12 TiB.
  std::uint64_t const most = std::uint64_t{0xffffffff} * sealed_tile / 294912 * 294912;
  CHECK(refusal({pages_of(open_tile), pages_of(sealed_tile)}, most + 294911) == "made");
  CHECK(refusal({pages_of(open_tile), pages_of(sealed_tile)}, most + 294912) ==
        "arena_bytes = " + std::to_string(most + 294912) +
          " (bad configuration): must leave units of 32 bits and page ids of 31 for every class, "
          "so at most " +
          std::to_string(most));
}

TEST_CASE("SlabTable: an empty slab changes hands, one in use does not", "[layout][slab_table]")
{
  SlabTable table(2);
  CHECK(table.owner(0) == SlabTable::nobody);
  TakenSlab const first = table.take(0);
  CHECK(first.slab == 0);
  CHECK_FALSE(first.was_other);
  table.use(0, 3);
  CHECK(table.take(1).slab == 1);
  table.use(1, 1);
  CHECK(table.take(0).slab == nil);
  table.release(0, 2);
  CHECK(table.take(1).slab == nil);
  table.release(0, 1);
  CHECK(table.take(0).slab == nil);  // it has that one
  TakenSlab const moved = table.take(1);
  CHECK(moved.slab == 0);
  CHECK(moved.was_other);
  CHECK(table.owner(0) == 1);
  CHECK_THROWS_AS(table.release(0, 1), LogicError);
  SlabTable fresh(1);
  CHECK_THROWS_AS(fresh.use(0, 1), LogicError);
}
