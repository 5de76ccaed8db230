// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/hash.hpp>
#include <kvcache/pool/pool.hpp>
#include <kvcache/view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/catch.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;
using kvcache_test::add_chunk;
using kvcache_test::bytes_of;
using kvcache_test::pool_sizes;
using kvcache_test::set_table;

constexpr Geometry geometry{.layers = 2, .kv_heads = 3, .head_dim = 16, .page_tokens = 4};

/// A number that names its row and element, and is exact in all three element types.
float stamp(Index index, std::int32_t layer, std::int32_t head, std::int32_t d, bool value)
{
  std::uint64_t h = mix(static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(layer));
  h = mix(mix(h, static_cast<std::uint64_t>(head)), static_cast<std::uint64_t>(d * 2 + value));
  return static_cast<float>(static_cast<int>(h % 255) - 127) / 4.0F;
}

/// Stores every token of the step for every (layer, head), with a team of `lanes` that take turns.
template <class Layout, class U>
void append_all(BatchView<Layout> const& kv, std::int32_t lanes)
{
  std::vector<U> k(geometry.head_dim);
  std::vector<U> v(geometry.head_dim);
  for (Index token = 0; token < kv.num_tokens(); ++token) {
    for (std::int32_t layer = 0; layer < geometry.layers; ++layer) {
      for (std::int32_t head = 0; head < geometry.kv_heads; ++head) {
        for (std::int32_t d = 0; d < geometry.head_dim; ++d) {
          auto const at = static_cast<std::size_t>(d);
          k[at] = ElementTraits<U>::from_float(stamp(kv.index(token), layer, head, d, false));
          v[at] = ElementTraits<U>::from_float(stamp(kv.index(token), layer, head, d, true));
        }
        for (std::int32_t lane = 0; lane < lanes; ++lane) {
          kv.append(Lanes{lane, lanes}, layer, head, token, k.data(), v.data());
        }
      }
    }
  }
}

/// Reads each token's rows by `tiles()` and by `raw()`; the number of elements that differ from their stamp.
template <class Layout>
int count_wrong(BatchView<Layout> const& kv)
{
  int wrong = 0;
  for (Index token = 0; token < kv.num_tokens(); ++token) {
    for (std::int32_t layer = 0; layer < geometry.layers; ++layer) {
      for (std::int32_t head = 0; head < geometry.kv_heads; ++head) {
        Index next = 0;
        for (auto const tile : kv.tiles(layer, head, token)) {
          auto const raw = tile.raw();
          wrong += tile.first() == next && tile.rows() >= 1 && raw.rows == tile.rows() ? 0 : 1;
          for (Index r = 0; r < tile.rows(); ++r, ++next) {
            wrong += tile.bias(r) == 0.0F ? 0 : 1;
            for (std::int32_t d = 0; d < geometry.head_dim; ++d) {
              std::size_t const at =
                static_cast<std::size_t>(r) * raw.row_elements + static_cast<std::size_t>(d);
              float const key = stamp(next, layer, head, d, false);
              float const value = stamp(next, layer, head, d, true);
              using Traits = ElementTraits<typename Layout::element>;
              bool const same = tile.key(r, d) == key && tile.value(r, d) == value &&
                                Traits::to_float(raw.k[at]) == key &&
                                Traits::to_float(raw.v[at]) == value;
              wrong += same ? 0 : 1;
            }
          }
        }
        wrong += next == kv.index(token) + 1 ? 0 : 1;  // 0 .. index(token), its own row included
      }
    }
  }
  return wrong;
}

template <class Layout, class U>
void check_round_trip(std::int32_t lanes)
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 9));
  REQUIRE(pool);
  Plan prefill;
  set_table(prefill, 2, 0, {7, 3, 5});
  set_table(prefill, 0, 0, {1});
  add_chunk(prefill, 2, 0, 11);
  add_chunk(prefill, 0, 0, 3);
  REQUIRE(pool->apply(kvcache_test::in_order(prefill)));
  append_all<Layout, U>(pool->view(), lanes);
  CHECK(count_wrong(pool->view()) == 0);

  Plan decode;  // crosses into a page that only now enters the table
  set_table(decode, 2, 3, {9});
  add_chunk(decode, 2, 11, 2);
  add_chunk(decode, 0, 3, 1);
  REQUIRE(pool->apply(kvcache_test::in_order(decode)));
  append_all<Layout, U>(pool->view(), lanes);
  CHECK(count_wrong(pool->view()) == 0);
  CHECK(pool->view().index(1) == 12);
}

}  // namespace

TEMPLATE_TEST_CASE("BatchView: what is appended is read back, whatever the team",
                   "[view][batch_view]",
                   float,
                   half,
                   bfloat16)
{
  for (std::int32_t const lanes : {1, 3, 16, 32}) {
    CAPTURE(lanes);
    check_round_trip<PagedHeads<TestType>, float>(lanes);
    check_round_trip<PagedHeads<TestType, 16, 4>, TestType>(lanes);
    check_round_trip<PagedHeads<TestType, 16>, half>(lanes);
  }
}

TEST_CASE("BatchView: append rounds to nearest even, as the element type does",
          "[view][batch_view]")
{
  using Layout = PagedHeads<half>;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 1));
  REQUIRE(pool);
  Plan plan;
  set_table(plan, 0, 0, {1});
  add_chunk(plan, 0, 0, 1);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  std::vector<float> k(16, 1.0F + 0x1p-11F);  // a tie: down to even
  std::vector<float> v(16, 1.0F + 0x3p-11F);  // a tie: up to even
  auto const kv = pool->view();
  kv.append(Solo{}, 1, 2, 0, k.data(), v.data());
  for (auto const tile : kv.tiles(1, 2, 0)) {
    CHECK(tile.key(0, 15) == 1.0F);
    CHECK(tile.value(0, 0) == 1.0F + 0x1p-9F);
  }
}

template <class View>
concept GivesTiles = requires(View view) { static_cast<View>(view).tiles(0, 0, 0); };

TEST_CASE("BatchView: a range over a view that has no name does not compile", "[view][batch_view]")
{
  static_assert(GivesTiles<BatchView<PagedHeads<float>> const&>);
  CHECK_FALSE(GivesTiles<BatchView<PagedHeads<float>>&&>);
}

TEST_CASE("BatchView: chunks and tokens are those of the plan", "[view][batch_view]")
{
  auto pool = Pool<PagedHeads<float>>::create(geometry, pool_sizes(geometry, 9));
  REQUIRE(pool);
  CHECK(pool->view().num_tokens() == 0);
  CHECK(pool->view().num_chunks() == 0);
  Plan plan;
  set_table(plan, 3, 0, {1, 2, 3});
  set_table(plan, 1, 0, {4});
  add_chunk(plan, 3, 7, 4);
  add_chunk(plan, 1, 0, 1);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  auto const kv = pool->view();
  REQUIRE(kv.num_tokens() == 5);
  REQUIRE(kv.num_chunks() == 2);
  CHECK(kv.chunk(0).first_token == 0);
  CHECK(kv.chunk(0).tokens == 4);
  CHECK(kv.chunk(0).first_index == 7);
  CHECK(kv.chunk(0).row == 3);
  CHECK(kv.chunk(1).first_token == 4);
  CHECK(kv.chunk(1).tokens == 1);
  CHECK(kv.chunk(1).first_index == 0);
  CHECK(kv.chunk(1).row == 1);
  CHECK(kv.index(3) == 10);
  CHECK(kv.index(4) == 0);
}

TEST_CASE("BatchView: tiles and rows of the last one, at and around the page's end",
          "[view][batch_view]")
{
  auto pool = Pool<PagedHeads<float>>::create(geometry, pool_sizes(geometry, 9));
  REQUIRE(pool);
  Plan plan;
  set_table(plan, 0, 0, {1, 2, 3});
  add_chunk(plan, 0, 0, 9);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  auto const kv = pool->view();
  struct Want {
    Index length, tiles, last_rows;
  };
  for (Want const want : {Want{0, 0, 0}, {1, 1, 1}, {4, 1, 4}, {5, 2, 1}, {8, 2, 4}, {9, 3, 1}}) {
    CAPTURE(want.length);
    CHECK(kv.tiles_of(want.length) == want.tiles);
    if (want.length > 0) {
      CHECK(kv.tile(0, 0, 0, want.tiles - 1, want.length).rows() == want.last_rows);
      Index seen = 0;
      for (auto const tile : kv.tiles(0, 0, want.length - 1)) {
        seen += tile.rows();
      }
      CHECK(seen == want.length);
    }
  }
}

TEST_CASE("BatchView: padding stores nothing and has no tiles", "[view][batch_view]")
{
  using Layout = PagedHeads<float>;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 4, 4, 8));
  REQUIRE(pool);
  std::vector<float> const row(16, 1.0F);
  auto const check_padding = [&](Index from) {
    auto const kv = pool->view();
    auto const before = bytes_of(*pool);
    for (Index token = from; token < 8; ++token) {
      CAPTURE(token);
      CHECK(kv.index(token) < 0);
      CHECK(kv.token_row[token] == nil);
      kv.append(Solo{}, 0, 0, token, row.data(), row.data());
      for (auto const tile : kv.tiles(0, 0, token)) {
        CHECK(tile.rows() == -1);  // not reached
      }
    }
    CHECK(bytes_of(*pool) == before);
  };
  check_padding(0);  // before the first step

  Plan plan;
  set_table(plan, 0, 0, {1, 2});
  add_chunk(plan, 0, 0, 6);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  check_padding(6);

  // A captured graph visits as many tokens as the largest step had: those of the step before are padding now.
  Plan smaller;
  add_chunk(smaller, 0, 6, 2);
  REQUIRE(pool->apply(kvcache_test::in_order(smaller)));
  CHECK(pool->view().index(1) == 7);
  check_padding(2);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  CHECK(pool->view().index(5) == 5);
  check_padding(6);
}

TEST_CASE("BatchView: a table entry that is no page reads zeros and stores nothing",
          "[view][batch_view]")
{
  using Layout = PagedHeads<half>;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 2));
  REQUIRE(pool);
  std::memset(pool->page(PageId{1}), 0x11, pool->footprint().page_bytes() * 2);
  Plan plan;
  set_table(plan, 0, 0, {1});
  add_chunk(plan, 0, 0, 1);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  auto kv = pool->view();
  std::vector<float> const row(16, 1.0F);
  auto const before = bytes_of(*pool);
  for (std::int32_t const entry : {0, 3, 4, 1 << 20, -1, -2147483647 - 1, 2147483647}) {
    CAPTURE(entry);
    std::int32_t const table[1] = {entry};
    kv.segment.table = table;
    for (std::int32_t layer = 0; layer < geometry.layers; ++layer) {
      for (std::int32_t head = 0; head < geometry.kv_heads; ++head) {
        kv.append(Solo{}, layer, head, 0, row.data(), row.data());
        float sum = 0.0F;
        for (auto const tile : kv.tiles(layer, head, 0)) {
          for (std::int32_t d = 0; d < 16; ++d) {
            sum += tile.key(0, d) * tile.key(0, d) + tile.value(0, d) * tile.value(0, d);
          }
        }
        CHECK(sum == 0.0F);
      }
    }
  }
  CHECK(bytes_of(*pool) == before);
}

TEST_CASE("BatchView: an append writes its one row and no other byte", "[view][batch_view]")
{
  using Layout = PagedHeads<bfloat16>;
  constexpr std::uint64_t seed = 31;
  kvcache_test::Random random(seed);
  CAPTURE(seed);
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 5));
  REQUIRE(pool);
  std::memset(pool->page(PageId{1}), 0x22, pool->footprint().page_bytes() * 5);
  Plan plan;
  set_table(plan, 1, 0, {4, 2, 5});
  add_chunk(plan, 1, 0, 12);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  auto const kv = pool->view();
  std::vector<float> const row(16, 1.0F);
  constexpr std::uint32_t pages[3] = {4, 2, 5};
  for (int i = 0; i < 50; ++i) {
    auto const token = static_cast<Index>(random.below(12));
    auto const layer = static_cast<std::int32_t>(random.below(2));
    auto const head = static_cast<std::int32_t>(random.below(3));
    auto want = bytes_of(*pool);
    kv.append(Lanes{0, 1}, layer, head, token, row.data(), row.data());
    Footprint const& f = pool->footprint();
    std::size_t const tile =
      pages[token / 4] * f.page_bytes() +
      static_cast<std::size_t>(layer * geometry.kv_heads + head) * f.tile_bytes;
    bfloat16 const one = ElementTraits<bfloat16>::from_float(1.0F);
    for (std::size_t d = 0; d < 16; ++d) {
      std::size_t const at = tile + (static_cast<std::size_t>(token % 4) * 16 + d) * 2;
      std::memcpy(&want[at], &one, 2);
      std::memcpy(&want[at + 4 * 16 * 2], &one, 2);
    }
    REQUIRE(bytes_of(*pool) == want);
  }
}
