// SPDX-License-Identifier: Apache-2.0

// A tree of drafts through the facade: what kernels see, and the bytes after the accepted path was moved.

#include <kvcache/kvcache.hpp>

#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/facade.hpp"

using namespace kvcache;
using namespace kvcache_test;

TEST_CASE("KVCache: a token tree shows each token its ancestors, and its path ends up in a row",
          "[cache][tree]")
{
  Cache cache = make_cache(16);
  Tokens text = {1, 2, 3, 4, 5, 6};
  Sequence const s = prefilled(cache, text);
  Tokens const tree = {10, 11, 12, 13, 14};
  std::vector<Index> const parents = {-1, 0, 0, 2, 2};
  auto step = cache.prepare({{.sequence = s, .tokens = tree, .parents = parents}});
  REQUIRE(step);
  auto const kv = step->view();
  Index const depth[] = {0, 1, 1, 2, 2};
  for (Index token = 0; token < 5; ++token) {
    CHECK(kv.index(token) == 6 + token);
    CHECK(kv.position(token) == 6 + depth[token]);
    // Rows are named by position here, as rotated keys are.
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      for (std::int32_t head = 0; head < 2; ++head) {
        float const x =
          stamp(tree[static_cast<std::size_t>(token)], kv.position(token), layer, head);
        float const k[8] = {x, x, x, x, x, x, x, x};
        float const v[8] = {-x, -x, -x, -x, -x, -x, -x, -x};
        kv.append(Solo{}, layer, head, token, k, v);
      }
    }
  }
  std::vector<Index> seen;
  for (auto const tile : kv.tiles(0, 0, 4)) {
    for (Index r = 0; r < tile.rows(); ++r) {
      CHECK(tile.sees(r) == (tile.bias(r) == 0.0F));
      if (tile.sees(r)) {
        seen.push_back(tile.first() + r);
      }
    }
  }
  CHECK(seen == std::vector<Index>{0, 1, 2, 3, 4, 5, 6, 8, 10});

  std::vector<Index> const path = {0, 2, 4};
  Outcome const outcome{.accepted = 3, .path = path};
  REQUIRE(step->commit(std::span(&outcome, 1)));
  CHECK(s.length() == 9);
  text.insert(text.end(), {10, 12, 14});
  append(cache, s, {20}, text);  // reads all rows, and checks them
  append(cache, s, {21, 22}, text);
  CHECK(s.length() == 12);
  CHECK(cache.check_invariants());
}
