// SPDX-License-Identifier: Apache-2.0
// What a view tells of token trees: positions, and which rows of a tile a token sees.

#include <kvcache/view.hpp>

#include <cstdint>
#include <random>
#include <vector>

#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::Geometry;
using kvcache::Index;

namespace {

using Layout = kvcache::PagedHeads<float>;
constexpr std::uint64_t seed = 4711;

/// Rows whose `sees`, `bias` or `hidden` is not what the parents say, over all tokens of the step.
int count_wrong(PagedPool<Layout>& pool)
{
  auto const kv = pool.view();
  int wrong = 0;
  for (Index token = 0; token < kv.num_tokens(); ++token) {
    Index next = 0;
    for (auto const tile : kv.tiles(0, 1, token)) {
      for (Index r = 0; r < tile.rows(); ++r, ++next) {
        bool const sees = pool.visible(token, next);
        bool const hidden = (tile.hidden(r) & 1) != 0;
        bool const in_groups = (tile.hidden(r - r % 8) >> r % 8 & 1) != 0;
        float const bias = tile.bias(r);
        bool const right = tile.sees(r) == sees && hidden == !sees && in_groups == !sees &&
                           (sees ? bias == 0.0F : bias <= -1.0e30F && bias * 2.0F > -3.0e38F) &&
                           kv.hidden(token).at(next) == !sees;
        wrong += right ? 0 : 1;
      }
      std::uint64_t const all = tile.hidden();
      wrong += tile.rows() < 64 && all >> tile.rows() != 0 ? 1 : 0;  // no bit behind the last row
    }
    wrong += next == pool.sees(token) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("BatchView: the position of a tree token is the prefix and its depth", "[view][tree]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 8, .page_tokens = 4};
  PagedPool<Layout> pool(
    geometry, {30, 9, 70, 6}, {{0, 5}, {1, 4}, {2, 64}, {3, 1}, {-1, 2}}, Poison::nan, seed);
  auto const plain = pool.view();
  CHECK(plain.token_mask == nullptr);
  for (Index token = 0; token < plain.num_tokens(); ++token) {
    CHECK(plain.position(token) == plain.index(token));
    CHECK_FALSE(plain.hidden(token).any());
  }
  pool.plant(0, {-1, 0, 1, 0, 3});
  pool.plant(2, siblings(64));
  auto const kv = pool.view();
  std::vector<Index> const tree{
    25, 26, 27, 26, 27};  // a token and its sibling's child may share one
  for (Index token = 0; token < 5; ++token) {
    CHECK(kv.position(token) == tree[static_cast<std::size_t>(token)]);
    CHECK(kv.index(token) == 25 + token);
  }
  for (Index token = 5; token < 9; ++token) {
    CHECK(kv.position(token) == token);  // a plain chunk beside it: rows 5 to 8
  }
  for (Index token = 9; token < 73; ++token) {
    CHECK(kv.position(token) == 6);
    CHECK(kv.index(token) == token - 3);
  }
  CHECK(kv.position(73) == 5);
  CHECK(kv.position(74) < 0);  // padding
}

TEST_CASE("BatchView: positions of random trees, 1 to 64 tokens", "[view][tree]")
{
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 8, .page_tokens = 16};
  for (std::size_t tokens = 1; tokens <= 64; ++tokens) {
    auto const prefix = static_cast<Index>(random() % 40);
    auto const n = static_cast<Index>(tokens);
    PagedPool<Layout> pool(geometry, {prefix + n}, {{0, n}}, Poison::nan, seed);
    Parents const parents = random_tree(random, tokens, tokens % 2 == 0);
    pool.plant(0, parents);
    auto const kv = pool.view();
    CAPTURE(tokens, prefix);
    for (Index token = 0; token < n; ++token) {
      REQUIRE(kv.position(token) ==
              prefix + static_cast<Index>(path_to(parents, token).size()) - 1);
    }
  }
}

TEST_CASE("TileView: a tree token sees the prefix and its path, in pages of any length",
          "[view][tree]")
{
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int32_t const page_tokens : {1, 7, 16, 100, 256}) {
    Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 8, .page_tokens = page_tokens};
    for (Index const prefix : {0, 1, 15, 16, 100}) {
      CAPTURE(page_tokens, prefix);
      PagedPool<Layout> pool(geometry,
                             {prefix + 64, 40, prefix + 33, prefix + 10},
                             {{0, 64}, {1, 20}, {2, 33}, {3, 10}, {-1, 3}},
                             Poison::nan,
                             seed);
      CHECK(count_wrong(pool) == 0);  // no trees
      pool.plant(0, random_tree(random, 64, false));
      CHECK(count_wrong(pool) == 0);
      pool.plant(2, random_tree(random, 33, true));
      pool.plant(3, chain(10));
      CHECK(count_wrong(pool) == 0);
      pool.plant(0, star(64));
      pool.plant(3, siblings(10));
      CHECK(count_wrong(pool) == 0);
    }
  }
}

TEST_CASE("TileView: the low level stays causal unless it is told what to hide", "[view][tree]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 8, .page_tokens = 16};
  PagedPool<Layout> pool(geometry, {12}, {{0, 8}}, Poison::nan, seed);
  pool.plant(0, siblings(8));
  auto const kv = pool.view();
  auto const causal = kv.tile(0, 0, 0, 0, 12);
  CHECK(causal.hidden() == 0);
  CHECK(causal.sees(4));
  auto const masked = kv.tile(0, 0, 0, 0, 12, kv.hidden(7));
  CHECK(masked.hidden() == 0b0111'1111'0000);
  CHECK_FALSE(masked.sees(4));
  CHECK(masked.sees(11));
}
