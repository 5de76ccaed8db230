// SPDX-License-Identifier: Apache-2.0
// The work list that the device makes: tiles against a list made token by token, shares by arithmetic and in a real batch.

#include <kvcache/core/check.hpp>
#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "attention/attention_checks.hpp"
#include "attention/device_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::DeviceLimits;
using kvcache::DeviceWork;
using kvcache::Index;
using kvcache::PagedHeads;
using kvcache::detail::WorkShares;
using kvcache::detail::WorkTile;

namespace {

constexpr std::uint64_t seed = 20261130;
using Layout = PagedHeads<kvcache::half>;

/// What a tile should be, from the model's answers for each token.
std::vector<WorkTile> model_tiles(PagedPool<Layout>& pool, AttentionShape const& shape)
{
  std::vector<WorkTile> out;
  std::int64_t start = 0;
  auto const view = pool.view();
  for (Index c = 0; c < view.num_chunks(); ++c) {
    Index const first_token = view.chunk_first[c];
    Index const rows = (view.chunk_first[c + 1] - first_token) * shape.group();
    Index const step = rows <= 16 ? 16 : 64;
    for (Index first = 0; first < rows; first += step) {
      WorkTile tile{
        .start = start, .chunk = c, .first = first, .rows = 0, .begin = 0, .end = 0, .level = -1};
      for (Index row = first; row < std::min(rows, first + step); ++row) {
        ++tile.rows;
        Index const token = first_token + row / shape.group();
        Index const length = pool.sees(token) == 0 ? 0 : pool.length_of(token);
        for (Index i = 0; i < length; ++i) {
          if (model_sees(pool, shape.window, {}, token, i)) {
            tile.begin = tile.end == 0 ? i : std::min(tile.begin, i);
            tile.end = std::max(tile.end, i + 1);
          }
        }
      }
      std::int64_t units = 0;
      for (Index unit = 0; unit <= tile.end / 64; ++unit) {
        units += unit * 64 < tile.end && (unit + 1) * 64 > tile.begin ? 1 : 0;
      }
      start += std::max<std::int64_t>(units, 1) * shape.kv_heads;
      out.push_back(tile);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("WorkShares: shares are equal, in order and cover the line; block_of finds them",
          "[attention][device_plan]")
{
  for (std::int64_t const total : {1, 2, 7, 63, 64, 65, 1000, 4099}) {
    for (std::int32_t const grid : {1, 2, 3, 64, 264}) {
      INFO("total " << total << ", grid " << grid);
      WorkShares const shares = WorkShares::of(total, grid);
      REQUIRE(shares.blocks == std::min<std::int64_t>(total, grid));
      CHECK(shares.first(0) == 0);
      CHECK(shares.first(shares.blocks) == total);
      bool right = true;
      for (std::int64_t b = 0; b < shares.blocks; ++b) {
        std::int64_t const units = shares.first(b + 1) - shares.first(b);
        right = right && units >= total / shares.blocks && units <= total / shares.blocks + 1;
        for (std::int64_t x = shares.first(b); x < shares.first(b + 1); ++x) {
          right = right && shares.block_of(x) == b;
        }
      }
      CHECK(right);
    }
  }
  CHECK(WorkShares::of(0, 8).blocks == 0);
}

TEST_CASE("PlanWorkKernel: tiles are what each token sees, and each share starts in its tile",
          "[attention][device_plan][threads]")
{
  std::mt19937_64 random(seed);
  std::vector<simt::Options> const ways = simt::schedules(seed);
  int trees = 0;
  for (int i = 0; i < (simt::has_tsan ? 4 : cases_of(40)); ++i) {
    std::vector<Index> lengths;
    std::vector<StepChunk> chunks;
    std::vector<Parents> plants;
    auto const sequences = static_cast<int>(random() % 71);
    for (int s = 0; s < sequences; ++s) {
      auto const chunk = static_cast<Index>(random() % 4 == 0 ? random() % 60 : random() % 3);
      lengths.push_back(static_cast<Index>(random() % 250) + chunk);
      chunks.push_back({s, chunk});
      bool const tree = chunk > 1 && random() % 2 == 0;
      plants.push_back(
        tree ? random_tree(random, static_cast<std::size_t>(chunk), random() % 2 == 0) : Parents{});
    }
    chunks.push_back({-1, static_cast<Index>(random() % 3)});
    auto const kv_heads = static_cast<std::int32_t>(1 + random() % 3);
    static constexpr std::int32_t groups[] = {1, 4, 7, 8, 71};
    static constexpr Index windows[] = {0, 0, 1, 30, 64, 100};
    AttentionShape const shape{.query_heads = kv_heads * groups[random() % std::size(groups)],
                               .kv_heads = kv_heads,
                               .window = windows[random() % std::size(windows)]};
    PagedPool<Layout> pool({.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16},
                           lengths,
                           chunks,
                           Poison::zeros,
                           random());
    for (std::size_t c = 0; c < plants.size(); ++c) {
      if (!plants[c].empty()) {
        pool.plant(static_cast<Index>(c), plants[c]);
        ++trees;
      }
    }
    auto const blocks = static_cast<std::int32_t>(1 + random() % 300);
    WorkMemory const memory(shape, limits_of(pool, blocks));
    DeviceWork const& work = memory.work();
    plan_on_device(pool, work, ways[static_cast<std::size_t>(i) % ways.size()]);

    std::vector<WorkTile> const want = model_tiles(pool, shape);
    INFO("case " << i << ", " << sequences << " sequences, group " << shape.group() << ", window "
                 << shape.window);
    REQUIRE(static_cast<Index>(want.size()) <= DeviceWork::max_tiles(shape, work.limits));
    bool same = true;
    std::int64_t total = 0;
    for (std::size_t t = 0; t < want.size(); ++t) {
      WorkTile const& got = work.tiles[t];
      same = same && got.start == want[t].start && got.chunk == want[t].chunk &&
             got.first == want[t].first && got.rows == want[t].rows && got.begin == want[t].begin &&
             got.end == want[t].end && got.level == want[t].level;
      total = got.start + std::int64_t{got.units()} * shape.kv_heads;
    }
    CHECK(same);
    CHECK(*work.total == total);
    WorkShares const shares = WorkShares::of(total, blocks);
    for (std::int64_t b = 0; b < shares.blocks; ++b) {
      WorkTile const& tile = work.tiles[work.first_tile[b]];
      same = same && tile.start <= shares.first(b) &&
             shares.first(b) < tile.start + std::int64_t{tile.units()} * shape.kv_heads;
    }
    CHECK(same);
  }
  CHECK(trees > 0);
}

TEST_CASE(
  "PlanWorkKernel: a batch as uneven as DeepSeek's example gives every block the same units, give "
  "or "
  "take one",
  "[attention][device_plan]")
{
  AttentionShape const shape{.query_heads = 8, .kv_heads = 2};
  PagedPool<Layout> pool({.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 64},
                         {4641, 45118, 1730, 1696},
                         {{0, 1}, {1, 1}, {2, 1}, {3, 1}},
                         Poison::zeros,
                         seed);
  WorkMemory const memory(shape, limits_of(pool, 264));
  plan_on_device(pool, memory.work(), {});
  // 73 + 705 + 28 + 27 units of 64 rows, for each of two heads.
  CHECK(*memory.work().total == 1666);
  WorkShares const shares = WorkShares::of(*memory.work().total, 264);
  std::int64_t most = 0;
  for (std::int64_t b = 0; b < shares.blocks; ++b) {
    most = std::max(most, shares.first(b + 1) - shares.first(b));
  }
  CHECK(most == 7);  // 6.3 on average
}

TEST_CASE("DeviceWork: what a device cannot do is refused by name", "[attention][device_plan]")
{
  AttentionShape const shape{.query_heads = 8, .kv_heads = 2};
  DeviceLimits const good{.tokens = 64, .chunks = 8, .head_dim = 128, .blocks = 264};
  auto const refusal = [&](AttentionShape s, DeviceLimits limits) {
    return DeviceWork::check(s, limits);
  };
  CHECK(refusal(shape, good).why == kvcache::Why::ok);
  auto const named = [&](DeviceLimits limits) { return std::string(refusal(shape, limits).field); };
  DeviceLimits bad = good;
  bad.head_dim = 72;
  CHECK(named(bad) == "head_dim");
  CHECK(
    std::string(refusal(shape, bad).message().text) ==
    "head_dim = 72 (bad configuration): must be 64, 80, 96, 112, 128, 160, 192 or 256 on a device");
  bad = good;
  bad.tokens = 0;
  CHECK(named(bad) == "tokens");
  bad.tokens = 1 << 30;
  CHECK(named(bad) == "tokens");
  bad = good;
  bad.chunks = 0;
  CHECK(named(bad) == "chunks");
  bad = good;
  bad.blocks = 20000;
  CHECK(named(bad) == "blocks");
  bad = good;
  bad.shared_rows = 32;
  CHECK(named(bad) == "shared_rows");
  bad.shared_rows = -64;
  CHECK(named(bad) == "shared_rows");
  bad.shared_rows = 1 << 21;
  CHECK(named(bad) == "shared_rows");
  CHECK(std::string(refusal({.query_heads = 7, .kv_heads = 2}, good).field) == "query_heads");
  std::byte memory[1];
  CHECK(!DeviceWork::make(memory, shape, bad).has_value());
}

TEST_CASE("DeviceWork: heads and limits that make refuses take no memory, and make says why",
          "[attention][device_plan][errors]")
{
  DeviceLimits const good{.tokens = 8, .chunks = 8, .head_dim = 64, .blocks = 4, .shared_rows = 64};
  AttentionShape const heads{.query_heads = 8, .kv_heads = 2};
  REQUIRE(DeviceWork::bytes(heads, good) > 0);
  struct alignas(256) Line {
    std::byte bytes[256];
  };
  Line line{};
  auto const refused = [&](AttentionShape const& shape, DeviceLimits const& limits) {
    CHECK(DeviceWork::bytes(shape, limits) == 0);
    auto const made = DeviceWork::make(line.bytes, shape, limits);
    REQUIRE_FALSE(made.has_value());
    return std::string(made.error().message().text);
  };
  AttentionShape shape = heads;
  for (std::int32_t const kv_heads : {0, -1}) {
    shape.kv_heads = kv_heads;
    CHECK(refused(shape, good) ==
          "kv_heads = " + std::to_string(kv_heads) + " (bad configuration): must be at least 1");
    CHECK(DeviceWork::max_shared_rows(shape, good) == 0);
    CHECK(DeviceWork::max_tiles(shape, good) == 0);
  }
  shape = heads;
  shape.query_heads = 0;
  CHECK(refused(shape, good).find("query_heads = 0 ") == 0);
  DeviceLimits limits = good;
  limits.tokens = -5;
  CHECK(refused(heads, limits).find("tokens = -5 ") == 0);
  limits = good;
  limits.chunks = -1;
  CHECK(refused(heads, limits).find("chunks = -1 ") == 0);
  limits = good;
  limits.blocks = 0;
  CHECK(refused(heads, limits).find("blocks = 0 ") == 0);
}

TEST_CASE("DeviceWork: a step that was planned on one stream is not attended on another",
          "[attention][device_plan][errors]")
{
  AttentionShape const shape{.query_heads = 4, .kv_heads = 4};
  WorkMemory const memory(shape, {.tokens = 8, .chunks = 8, .head_dim = 64, .blocks = 4});
  DeviceWork const& work = memory.work();
  int const streams[2] = {};
  CHECK_NOTHROW(work.expect_on(&streams[0]));  // planned by launches of the caller's own
  work.plan_on(&streams[0]);
  CHECK_NOTHROW(work.expect_on(&streams[0]));
  CHECK_THROWS_WITH(work.expect_on(&streams[1]),
                    "kvcache: a DeviceWork is for one stream at a time; attend on the stream that "
                    "its step was planned on, or plan on this one");
  DeviceWork const copy = work;
  CHECK_THROWS_AS(copy.expect_on(&streams[1]), kvcache::LogicError);
  work.plan_on(&streams[1]);
  CHECK_NOTHROW(work.expect_on(&streams[1]));
  CHECK_THROWS_AS(work.expect_on(&streams[0]), kvcache::LogicError);
}
