// SPDX-License-Identifier: Apache-2.0

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;

ControlOptions sizes(Geometry const& g, PageCount pages)
{
  ControlOptions options{.pages = pages, .page_tokens = g.page_tokens, .max_sequences = 1};
  (void)options.complete();
  return options;
}

/// Marks every byte of every row through the view's own addresses; each byte of the pool is one row's at most.
template <class Layout>
void check_addresses(Geometry const& g, PageCount pages)
{
  auto const pool = Pool<Layout>::create(g, sizes(g, pages));
  REQUIRE(pool);
  auto const view = pool->view();
  std::vector<std::uint8_t> marks(pool->arena_bytes(), 0);
  std::size_t const row_bytes =
    static_cast<std::size_t>(g.head_dim) * sizeof(typename Layout::element);
  std::size_t outside = 0;
  std::size_t unaligned = 0;
  std::size_t twice = 0;
  std::size_t marked = 0;
  for (std::uint32_t page = 0; page <= pages; ++page) {
    for (std::int32_t layer = 0; layer < g.layers; ++layer) {
      for (std::int32_t head = 0; head < g.kv_heads; ++head) {
        std::byte const* const tile = view.segment.tile(
          static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(head), page);
        RawTile<typename Layout::element> const raw =
          TileView<Layout>(tile, view.map, 0, g.page_tokens).raw();
        unaligned += reinterpret_cast<std::uintptr_t>(raw.k) % 128 != 0 ? 1U : 0U;
        unaligned += reinterpret_cast<std::uintptr_t>(raw.v) % 16 != 0 ? 1U : 0U;
        for (Index row = 0; row < g.page_tokens; ++row) {
          for (auto const* const section : {raw.k, raw.v}) {
            auto const* const bytes = reinterpret_cast<std::byte const*>(
              section + static_cast<std::size_t>(row) * raw.row_elements);
            std::ptrdiff_t const at = bytes - pool->page(zero_page);
            if (at < 0 || static_cast<std::size_t>(at) + row_bytes > marks.size()) {
              ++outside;
              continue;
            }
            for (std::size_t i = 0; i < row_bytes; ++i, ++marked) {
              std::uint8_t& mark = marks[static_cast<std::size_t>(at) + i];
              twice += mark;
              mark = 1;
            }
          }
        }
      }
    }
  }
  CHECK(outside == 0);
  CHECK(unaligned == 0);
  CHECK(twice == 0);
  Footprint const f = Layout::footprint(g);
  CHECK(marked == std::size_t{f.row_bytes} * f.tiles_per_page *
                    static_cast<std::size_t>(g.page_tokens) * (std::size_t{pages} + 1));
}

}  // namespace

TEST_CASE("PagedHeads: all rows are disjoint, inside the pool, and aligned",
          "[layout][paged_heads]")
{
  constexpr std::uint64_t seed = 12;
  kvcache_test::Random random(seed);
  CAPTURE(seed);
  for (int i = 0; i < 60; ++i) {
    Geometry const g{.layers = static_cast<std::int32_t>(random.between(1, 3)),
                     .kv_heads = static_cast<std::int32_t>(random.between(1, 4)),
                     .head_dim = static_cast<std::int32_t>(8 * random.between(1, 32)),
                     .page_tokens = static_cast<std::int32_t>(random.between(1, 17))};
    CAPTURE(i, g.layers, g.kv_heads, g.head_dim, g.page_tokens);
    check_addresses<PagedHeads<float>>(g, 3);
    check_addresses<PagedHeads<half>>(g, 3);
    check_addresses<PagedHeads<bfloat16>>(g, 3);
  }
}

TEST_CASE("PagedHeads: static and dynamic dimensions give the same addresses",
          "[layout][paged_heads]")
{
  Geometry const g{.layers = 3, .kv_heads = 2, .head_dim = 72, .page_tokens = 5};
  auto const fixed = PagedHeads<half, 72, 5>::map(g);
  auto const half_fixed = PagedHeads<half, 72>::map(g);
  auto const open = PagedHeads<half>::map(g);
  CHECK(fixed.row_elements() == open.row_elements());
  CHECK(fixed.value_elements() == open.value_elements());
  CHECK(fixed.tile_bytes() == open.tile_bytes());
  CHECK(half_fixed.tile_bytes() == open.tile_bytes());
  CHECK(half_fixed.value_elements() == open.value_elements());
  static_assert(PagedHeads<half, 72, 5>::map({}).tile_bytes() == 1536);
  static_assert(sizeof(PagedHeads<half, 72, 5>::Map) <=
                2);  // nothing but what C++ asks of two members

  check_addresses<PagedHeads<half, 72, 5>>(g, 4);
  check_addresses<PagedHeads<half, 72>>(g, 4);
  check_addresses<PagedHeads<half, dynamic, 5>>(g, 4);
}

TEST_CASE("PagedHeads: addresses of a pool beyond 4 GiB are exact in 64 bits",
          "[layout][paged_heads]")
{
  using Layout = PagedHeads<half, 128, 16>;
  Geometry const g{.layers = 1, .kv_heads = 32, .head_dim = 128, .page_tokens = 16};
  Footprint const f = Layout::footprint(g);
  constexpr std::uintptr_t origin = std::uintptr_t{1} << 40;
  std::uint32_t const layer_offset = 0;
  SegmentView const segment{.base = reinterpret_cast<std::byte*>(origin),  // never read or written
                            .table = nullptr,
                            .layer_offset = &layer_offset,
                            .num_pages = ~std::uint32_t{0} / 32,
                            .row_stride = 0,
                            .layer_stride = 0,
                            .seq_rows = 1,
                            .head_rows = 0,
                            .page_scale = 32,
                            .head_scale = 1,
                            .unit_bytes = f.tile_bytes};
  auto const offset = [&](std::uint32_t page, std::uint32_t head) {
    return static_cast<std::uint64_t>(
      reinterpret_cast<std::uintptr_t>(segment.tile(0, head, page)) - origin);
  };
  // The last element of the K half of the last tile of 64,000 pages: 8 GiB of K and V.
  auto const map = Layout::map(g);
  std::uint64_t const last_key = offset(63999, 31) / 2 + 15U * map.row_elements() + 127U;
  CHECK(last_key == (std::uint64_t{63999} * 32 + 31) * 4096 + 2047);
  for (std::uint32_t const page :
       {0U, 1U, 16383U, 16384U, 32767U, 32768U, 65535U, 1U << 20, 134217726U}) {
    for (std::uint32_t const head : {0U, 1U, 31U}) {
      CHECK(offset(page, head) == (std::uint64_t{page} * 32 + head) * 8192);
    }
  }
  CHECK(offset(134217727U, 31) == 31U * 8192U);  // no page of the pool: the page of zeros
}

TEST_CASE("PagedHeads: the largest unit that 32 bits can name is reached", "[layout][paged_heads]")
{
  Geometry const g{.layers = 4096, .kv_heads = 4096, .head_dim = 256, .page_tokens = 256};
  Footprint const f = PagedHeads<float>::footprint(g);
  REQUIRE(f.validate(254).why == Why::ok);
  CHECK(f.page_bytes() == std::uint64_t{4096} * 4096 * 2 * 256 * 256 * 4);
  CHECK(f.pool_bytes(254) == f.page_bytes() * 255);
  constexpr std::uintptr_t origin = 4096;
  std::vector<std::uint32_t> layer_offset(4096);
  for (std::uint32_t layer = 0; layer < 4096; ++layer) {
    layer_offset[layer] = layer * 4096;
  }
  SegmentView const segment{.base = reinterpret_cast<std::byte*>(origin),
                            .table = nullptr,
                            .layer_offset = layer_offset.data(),
                            .num_pages = 255,
                            .row_stride = 0,
                            .layer_stride = 0,
                            .seq_rows = 1,
                            .head_rows = 0,
                            .page_scale = f.tiles_per_page,
                            .head_scale = 1,
                            .unit_bytes = f.tile_bytes};
  auto const at = reinterpret_cast<std::uintptr_t>(segment.tile(4095, 4095, 254)) - origin;
  CHECK(at == f.pool_bytes(254) - f.tile_bytes);
}
