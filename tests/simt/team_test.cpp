// SPDX-License-Identifier: Apache-2.0
// The library's own functions in a kernel: a block, or each of its warps, as the team that appends rows.

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <vector>

#include "support/catch.hpp"
#include "support/paged_pool.hpp"
#include "support/simt/simt.hpp"

using kvcache::Index;
using kvcache::PagedHeads;
using kvcache_test::PagedPool;
using kvcache_test::Poison;

namespace {

using Pages = PagedPool<PagedHeads<float>>;

constexpr kvcache::Geometry geometry{.layers = 2, .kv_heads = 2, .head_dim = 48, .page_tokens = 4};

/// Element d of a token's K; its V is the negative.
float stamp(Index token, int layer, int head, int d)
{
  return static_cast<float>(((token * 2 + layer) * 2 + head) * 100 + d + 1);
}

/// A block for each (layer, head). `warps`: its warps take the tokens in turn; otherwise the block takes one after the other.
struct AppendAll {
  kvcache::BatchView<PagedHeads<float>> kv;
  std::vector<float> const* k;  // (layer, head, token, d)
  std::vector<float> const* v;
  bool warps;

  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    int const layer = block.index() / geometry.kv_heads;
    int const head = block.index() % geometry.kv_heads;
    Index const first = warps ? block.warp().index() : 0;
    Index const step = warps ? block.threads() / 32 : 1;
    for (Index token = first; token < kv.num_tokens(); token += step) {
      auto const at =
        static_cast<std::size_t>((block.index() * kv.num_tokens() + token) * geometry.head_dim);
      if (warps) {
        kv.append(
          kvcache::team_of(block.warp()), layer, head, token, k->data() + at, v->data() + at);
      } else {
        kv.append(kvcache::team_of(block), layer, head, token, k->data() + at, v->data() + at);
      }
    }
  }
};

}  // namespace

TEST_CASE("Simt: a block and a warp are teams that append rows", "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    for (bool const warps : {false, true}) {
      INFO(to_string(options) << (warps ? ", warps" : ", blocks"));
      Pages pool(geometry, {9, 3}, {{0, 5}, {1, 3}}, Poison::nan, 4);
      auto const kv = pool.view();
      std::vector<float> k;
      std::vector<float> v;
      for (int layer = 0; layer < geometry.layers; ++layer) {
        for (int head = 0; head < geometry.kv_heads; ++head) {
          for (Index token = 0; token < kv.num_tokens(); ++token) {
            for (int d = 0; d < geometry.head_dim; ++d) {
              k.push_back(stamp(token, layer, head, d));
              v.push_back(-k.back());
            }
          }
        }
      }
      simt::launch(
        geometry.layers * geometry.kv_heads, 96, 0, AppendAll{kv, &k, &v, warps}, options);
      int wrong = 0;
      for (Index token = 0; token < kv.num_tokens(); ++token) {
        for (int layer = 0; layer < geometry.layers; ++layer) {
          for (int head = 0; head < geometry.kv_heads; ++head) {
            for (auto const tile : kv.tiles(layer, head, token)) {
              Index const row = kv.index(token) - tile.first();
              for (int d = 0; d < geometry.head_dim && row >= 0 && row < tile.rows(); ++d) {
                float const right = stamp(token, layer, head, d);
                wrong += tile.key(row, d) == right && tile.value(row, d) == -right ? 0 : 1;
              }
            }
          }
        }
      }
      CHECK(wrong == 0);
      REQUIRE(kv.num_tokens() == 8);
    }
  }
}
