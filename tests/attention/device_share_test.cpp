// SPDX-License-Identifier: Apache-2.0
// Rows that chunks of a step share, on the device: which spans it finds against sets of equal prefixes, and that attention over
// them is right.

#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <set>
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
using kvcache::DeviceWork;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;
using kvcache::SharedWork;
using kvcache::detail::WorkTile;

namespace {

constexpr std::uint64_t seed = 20261130;
using Layout = PagedHeads<kvcache::half>;
using Members = std::set<Index>;

/// KV rows that some chunks share.
struct Span {
  Index begin;
  Index end;
  Index level;
  Members chunks;
  auto operator<=>(Span const&) const = default;
};

/// The spans of a step, from sets of chunks whose tables begin alike, one set for each step of rows and prefix.
std::set<Span> model_spans(PagedPool<Layout>& pool, AttentionShape const& shape, Index step)
{
  auto const view = pool.view();
  Index const page_tokens = pool.geometry().page_tokens;
  std::vector<std::vector<Members>> sets(static_cast<std::size_t>(view.num_chunks()));
  for (Index g = 0;; ++g) {
    std::map<std::vector<std::uint32_t>, Members> alike;
    for (Index c = 0; c < view.num_chunks(); ++c) {
      Index const tokens = view.chunk_first[c + 1] - view.chunk_first[c];
      if (tokens == 0 || tokens * shape.group() > 16) {
        continue;
      }
      auto const chunk = view.chunk(c);
      bool sees_all = chunk.first_index >= (g + 1) * step;
      for (Index t = 0; t < tokens; ++t) {
        sees_all = sees_all && model_sees(pool, shape.window, {}, chunk.first_token + t, 0);
      }
      if (sees_all) {
        std::vector<std::uint32_t> pages;
        for (Index p = 0; p * page_tokens < (g + 1) * step; ++p) {
          pages.push_back(view.segment.entry(0, 0, chunk.row, static_cast<std::uint32_t>(p)));
        }
        alike[pages].insert(c);
      }
    }
    if (alike.empty()) {
      break;
    }
    for (auto const& [pages, chunks] : alike) {
      for (Index const c : chunks) {
        sets[static_cast<std::size_t>(c)].push_back(chunks);
      }
    }
  }
  std::set<Span> spans;
  for (auto const& of_chunk : sets) {
    Index level = -1;
    for (std::size_t g = 0; g < of_chunk.size() && of_chunk[g].size() > 1;) {
      std::size_t to = g;
      while (to < of_chunk.size() && of_chunk[to] == of_chunk[g]) {
        ++to;
      }
      if (++level == SharedWork::levels) {
        break;
      }
      spans.insert(
        {static_cast<Index>(g) * step, static_cast<Index>(to) * step, level, of_chunk[g]});
      g = to;
    }
  }
  return spans;
}

/// The spans that the device found, each read back through its query rows.
std::set<Span> spans_of(PagedPool<Layout>& pool, DeviceWork const& work)
{
  auto const view = pool.view();
  std::set<Span> spans;
  for (Index s = 0; s < work.shared.counts->spans; ++s) {
    auto const& span = work.shared.spans[s];
    Span found{span.begin, span.end, span.level, {}};
    std::vector<Index> queries;
    for (Index r = span.first; r < span.first + span.rows; ++r) {
      queries.push_back(work.shared.rows[r].query);
      for (Index c = 0; c < view.num_chunks(); ++c) {
        Index const token = queries.back() / work.shape.group();
        if (token >= view.chunk_first[c] && token < view.chunk_first[c + 1]) {
          found.chunks.insert(c);
        }
      }
    }
    std::size_t all = 0;
    for (Index const c : found.chunks) {
      all += static_cast<std::size_t>(view.chunk_first[c + 1] - view.chunk_first[c]);
    }
    std::sort(queries.begin(), queries.end());
    CHECK(std::adjacent_find(queries.begin(), queries.end()) == queries.end());
    CHECK(queries.size() == all * static_cast<std::size_t>(work.shape.group()));
    CHECK(found.chunks.contains(span.chunk));
    spans.insert(found);
  }
  CHECK(spans.size() == static_cast<std::size_t>(work.shared.counts->spans));
  return spans;
}

/// Whether each query row's tiles cover all it sees, once, and end in states of their own.
bool covers(PagedPool<Layout>& pool, DeviceWork const& work, Index tiles)
{
  auto const view = pool.view();
  auto const rows = static_cast<std::size_t>(pool.num_tokens() * work.shape.group());
  std::vector<std::map<Index, WorkTile>> of_query(rows);  // by first KV row
  for (Index t = 0; t < tiles; ++t) {
    WorkTile const& tile = work.tiles[t];
    for (Index r = 0; r < tile.rows; ++r) {
      of_query.at(static_cast<std::size_t>(work.query(view, tile, r))).emplace(tile.begin, tile);
    }
  }
  bool good = true;
  for (std::size_t q = 0; q < rows; ++q) {
    Index level = 0;
    Index end = -1;
    for (auto const& [begin, tile] : of_query[q]) {
      good = good && (end == -1 || begin == end);
      good = good && (of_query[q].size() == 1 ? tile.level == -1 : tile.level == level);
      good = good && (level == 0 || begin % WorkTile::unit_rows == 0);
      end = tile.end;
      ++level;
    }
    good = good && !of_query[q].empty() &&
           (end >= pool.sees(static_cast<Index>(q) / work.shape.group()));
  }
  for (Index r = 0; r < work.shared.counts->rows; ++r) {
    auto const& row = work.shared.rows[r];
    good = good && static_cast<std::size_t>(row.states) ==
                     of_query.at(static_cast<std::size_t>(row.query)).size();
  }
  return good;
}

/// Tiles of the planned step.
Index num_tiles(DeviceWork const& work)
{
  Index tiles = 0;
  for (std::int64_t at = 0; at < *work.total; ++tiles) {
    at += std::int64_t{work.tiles[tiles].units()} * work.shape.kv_heads;
  }
  return tiles;
}

struct Case {
  Geometry geometry;
  AttentionShape shape;
  std::vector<Index> lengths;
  std::vector<StepChunk> chunks;
  std::vector<std::pair<std::size_t, std::uint32_t>>
    shares;  // of each sequence: whose pages, how many
  std::vector<Parents> trees;
  Index step;
  std::int32_t blocks;

  void build(PagedPool<Layout>& pool) const
  {
    for (std::size_t s = 0; s < shares.size(); ++s) {
      pool.share(s, shares[s].first, shares[s].second);
    }
    for (std::size_t c = 0; c < trees.size(); ++c) {
      if (!trees[c].empty()) {
        pool.plant(static_cast<Index>(c), trees[c]);
      }
    }
  }
};

/// Sequences that were forked of each other anywhere, some often.
Case random_case(std::mt19937_64& random, std::size_t least, std::size_t most, Index longest)
{
  static constexpr std::int32_t pages[] = {1, 7, 16, 16, 64, 100};
  static constexpr std::int32_t groups[] = {1, 1, 2, 4, 4, 8, 17};
  static constexpr Index windows[] = {0, 0, 0, 0, 150, 400};
  auto const kv_heads = static_cast<std::int32_t>(1 + random() % 2);
  Case c{.geometry = {.layers = 1,
                      .kv_heads = kv_heads,
                      .head_dim = 64,
                      .page_tokens = pages[random() % std::size(pages)]},
         .shape = {.query_heads = kv_heads * groups[random() % std::size(groups)],
                   .kv_heads = kv_heads,
                   .window = windows[random() % std::size(windows)]},
         .lengths = {},
         .chunks = {},
         .shares = {},
         .trees = {},
         .step = random() % 2 == 0 ? 64 : 128,
         .blocks = static_cast<std::int32_t>(1 + random() % 9)};
  std::size_t const sequences = least + random() % (most + 1 - least);
  bool const chain =
    random() % 3 == 0;  // each forked of the one before: deeper than there are levels
  for (std::size_t s = 0; s < sequences; ++s) {
    auto const tokens = static_cast<Index>(random() % 4 == 0 ? random() % 20 : 1);
    c.lengths.push_back(tokens + 1 +
                        static_cast<Index>(random() % 4 == 0
                                             ? random() % static_cast<unsigned>(longest)
                                             : static_cast<unsigned>(longest)));
    c.chunks.push_back({static_cast<int>(s), tokens});
    std::size_t const of = s == 0 ? 0 : chain ? s - 1 : random() % s;
    Index const both = std::min(c.lengths[s], c.lengths[of]) / c.geometry.page_tokens;
    Index const shared = s == 0 || random() % 6 == 0 ? 0
                         : random() % 2 == 0
                           ? both
                           : static_cast<Index>(random() % static_cast<unsigned>(both + 1));
    c.shares.emplace_back(of, static_cast<std::uint32_t>(shared));
  }
  std::shuffle(c.chunks.begin(), c.chunks.end(), random);
  for (StepChunk const& chunk : c.chunks) {
    bool const tree = chunk.tokens > 1 && random() % 2 == 0;
    c.trees.push_back(tree ? random_tree(random, static_cast<std::size_t>(chunk.tokens), false)
                           : Parents{});
  }
  c.chunks.push_back({-1, static_cast<Index>(random() % 3)});
  return c;
}

std::string words(Case const& c)
{
  std::string out = "page_tokens " + std::to_string(c.geometry.page_tokens) + ", group " +
                    std::to_string(c.shape.group()) + ", window " + std::to_string(c.shape.window) +
                    ", step " + std::to_string(c.step) + ", blocks " + std::to_string(c.blocks) +
                    ", sequences";
  for (std::size_t s = 0; s < c.lengths.size(); ++s) {
    out += " " + std::to_string(c.lengths[s]) + " (" + std::to_string(c.shares[s].second) +
           " pages of " + std::to_string(c.shares[s].first) + ")";
  }
  return out;
}

}  // namespace

TEST_CASE("ShareRowsKernel: spans are the sets of chunks whose tables begin alike",
          "[attention][device_share][threads]")
{
  std::mt19937_64 random(seed);
  std::vector<simt::Options> const ways = simt::schedules(seed);
  std::size_t all = 0;
  Index deepest = 0;
  int const cases = simt::has_tsan ? 3 : cases_of(60);
  for (int i = 0; i < cases; ++i) {
    Case const c = random_case(random, simt::has_tsan ? 6 : 0, simt::has_tsan ? 8 : 24, 900);
    PagedPool<Layout> pool(c.geometry, c.lengths, c.chunks, Poison::zeros, random());
    c.build(pool);
    WorkMemory const memory(c.shape, limits_of(pool, c.blocks, c.step));
    DeviceWork const& work = memory.work();
    plan_on_device(pool, work, ways[static_cast<std::size_t>(i) % ways.size()]);
    INFO("case " << i << ", " << words(c));
    std::set<Span> const want = model_spans(pool, c.shape, c.step);
    CHECK(spans_of(pool, work) == want);
    Index const tiles = num_tiles(work);
    REQUIRE(tiles <= DeviceWork::max_tiles(c.shape, work.limits));
    CHECK(covers(pool, work, tiles));
    CHECK(work.shared.counts->rows <= work.shared.max_rows);
    all += want.size();
    for (Span const& span : want) {
      deepest = std::max(deepest, span.level);
    }
  }
  std::printf(
    "device share: %zu spans from seed %llu\n", all, static_cast<unsigned long long>(seed));
  CHECK(all > 0);
  if (cases == 60) {
    CHECK(all > 150);
    CHECK(deepest == SharedWork::levels - 1);
  }
}

TEST_CASE("ShareRowsKernel: more chunks than threads", "[attention][device_share]")
{
  std::mt19937_64 random(seed);
  Case c = random_case(random, 0, 0, 10);
  c.geometry.page_tokens = 16;
  c.shape = {.query_heads = 4, .kv_heads = 1};
  c.step = 64;
  c.chunks.clear();
  c.trees.clear();
  for (std::size_t s = 0; s < 530; ++s) {
    c.lengths.push_back(static_cast<Index>(66 + random() % 100));
    c.chunks.push_back({static_cast<int>(s), 1});
    c.shares.emplace_back(s < 5 ? s : random() % 5, s < 5 ? 0 : 4);
  }
  PagedPool<Layout> pool(c.geometry, c.lengths, c.chunks, Poison::zeros, seed);
  c.build(pool);
  WorkMemory const memory(c.shape, limits_of(pool, c.blocks, c.step));
  plan_on_device(pool, memory.work(), {});
  CHECK(spans_of(pool, memory.work()) == model_spans(pool, c.shape, c.step));
  CHECK(memory.work().shared.counts->spans == 5);
  CHECK(memory.work().shared.counts->rows == 530 * 4);
  CHECK(covers(pool, memory.work(), num_tiles(memory.work())));
}

TEST_CASE("ShareRowsKernel: tables of their own for layers or heads share nothing",
          "[attention][device_share]")
{
  AttentionShape const shape{.query_heads = 4, .kv_heads = 1};
  PagedPool<Layout> pool({.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16},
                         {200, 200},
                         {{0, 1}, {1, 1}},
                         Poison::zeros,
                         seed);
  pool.share(1, 0, 10);
  WorkMemory const memory(shape, limits_of(pool, 4, 64));
  using Share = kvcache::ShareRowsKernel<Layout>;
  auto const spans = [&](std::uint32_t layer_stride, std::uint32_t head_rows) {
    auto view = pool.view();
    view.segment.layer_stride = layer_stride;
    view.segment.head_rows = head_rows;
    simt::launch(1, Share::max_threads, Share::shared_bytes, Share{view, memory.work()}, {});
    return memory.work().shared.counts->spans;
  };
  CHECK(spans(0, 0) == 1);
  CHECK(spans(64, 0) == 0);
  CHECK(spans(0, 1) == 0);
}

TEST_CASE("AttendKernel: sixty-four sequences load what they share once",
          "[attention][device_share]")
{
  AttentionShape const shape{.query_heads = 8, .kv_heads = 2};
  std::vector<Index> lengths(64, 1024 + 256);
  std::vector<StepChunk> chunks;
  for (int s = 0; s < 64; ++s) {
    chunks.push_back({s, 1});
  }
  PagedPool<Layout> pool({.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16},
                         lengths,
                         chunks,
                         Poison::zeros,
                         seed);
  for (std::size_t s = 1; s < 64; ++s) {
    pool.share(s, 0, 1024 / 16);
  }
  WorkMemory const memory(shape, limits_of(pool, 264, 256));
  plan_on_device(pool, memory.work(), {});
  // Units of 64 rows: 16 shared ones in each of 4 tiles of 64 query rows, 4 of each sequence's own; for two heads.
  CHECK(*memory.work().total == 2 * (4 * 16 + 64 * 4));
  WorkMemory const apart(shape, limits_of(pool, 264));
  plan_on_device(pool, apart.work(), {});
  CHECK(*apart.work().total == 2 * 64 * 20);
}

TEST_CASE("AttendKernel: steps in which chunks share rows equal attention in double precision",
          "[attention][device_share]")
{
  std::mt19937_64 random(seed + 1);
  std::vector<simt::Options> const ways = simt::schedules(seed);
  double worst = 0.0;
  Index spans = 0;
  int const cases = cases_of(40);
  for (int i = 0; i < cases; ++i) {
    Case c = random_case(random, 0, 9, 330);
    c.shape.soft_cap = random() % 4 == 0 ? 20.0F : 0.0F;
    PagedPool<Layout> pool(c.geometry, c.lengths, c.chunks, Poison::nan, random());
    c.build(pool);
    std::vector<float> const q = random_queries(query_floats(pool, c.shape), seed);
    kvcache::DeviceLimits const limits = limits_of(pool, c.blocks, c.step);
    Attended const got = run_on_device<64, float, float>(
      pool, c.shape, 0, q, limits, ways[static_cast<std::size_t>(i) % ways.size()]);
    INFO("case " << i << ", " << words(c));
    double const error = error_against_double(pool, c.shape, 0, q, got);
    CHECK(error <= 1e-3);
    worst = std::max(worst, error);
    spans += static_cast<Index>(model_spans(pool, c.shape, c.step).size());
  }
  std::printf(
    "device share: %d steps with %d spans, worst error against double %.1e\n", cases, spans, worst);
  if (cases == 40) {
    CHECK(spans > 40);
  }
}

TEST_CASE("AttendKernel: seventy sequences of up to 5,000 rows, most of them shared",
          "[attention][device_share]")
{
  std::mt19937_64 random(seed);
  AttentionShape const shape{.query_heads = 4, .kv_heads = 1};
  std::vector<Index> lengths;
  std::vector<StepChunk> chunks;
  for (int s = 0; s < 70; ++s) {  // a long one, and what was forked of it and of its forks
    lengths.push_back(s < 4 ? 5000 - 13 * s : 1 + static_cast<Index>(random() % 200));
    chunks.push_back({s, random() % 5 == 0 && lengths.back() > 20 ? 3 : 1});
  }
  PagedPool<Layout> pool({.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16},
                         lengths,
                         chunks,
                         Poison::nan,
                         seed);
  for (std::size_t s = 1; s < 70; ++s) {
    std::size_t const of = s < 4 ? s - 1 : random() % s;
    pool.share(s, of, static_cast<std::uint32_t>(std::min(lengths[s], lengths[of]) / 16));
  }
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  simt::Options const way{.order = simt::Order::random, .seed = seed};
  Attended const got =
    run_on_device<64, float, float>(pool, shape, 0, q, limits_of(pool, 23, 64), way);
  double const error = error_against_double(pool, shape, 0, q, got);
  std::printf("device share: seventy sequences, worst error against double %.1e\n", error);
  CHECK(error <= 1e-3);
  CHECK(model_spans(pool, shape, 64).size() > 4);
}

TEST_CASE("AttendKernel: shared rows have the same bits in every schedule",
          "[attention][device_share][threads]")
{
  AttentionShape const shape{.query_heads = 4, .kv_heads = 1};
  PagedPool<Layout> pool({.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16},
                         {150, 140, 212, 215, 90},
                         {{0, 1}, {1, 2}, {2, 1}, {3, 1}, {4, 20}},
                         Poison::nan,
                         seed);
  for (std::size_t s = 1; s < 5; ++s) {
    pool.share(s, 0, 4);
  }
  pool.share(3, 2, 13);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  Attended first;
  for (simt::Options const& way : simt::schedules(seed)) {
    Attended const got =
      run_on_device<64, float, float>(pool, shape, 0, q, limits_of(pool, 5, 64), way);
    INFO(simt::to_string(way));
    CHECK(error_against_double(pool, shape, 0, q, got) <= 1e-3);
    first = first.out.empty() ? got : first;
    CHECK(same_bits(got, first));
  }
}
