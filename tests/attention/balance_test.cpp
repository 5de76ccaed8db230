// SPDX-License-Identifier: Apache-2.0
// Ragged steps: equal shares for the workers, and results that do not depend on how many there are.

#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/catch.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionItem;
using kvcache::AttentionPlan;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;

namespace {

constexpr std::uint64_t seed = 20261130;
using Layout = kvcache::PagedHeads<kvcache::bfloat16, 128, 16>;

/// A step without bytes: a plan looks at tokens and tables only.
struct Lengths {
  std::vector<std::uint32_t> rows;
  std::vector<Index> index;
  std::vector<Index> first{0};
  Index counts[2] = {0, 0};

  explicit Lengths(std::vector<StepChunk> const& chunks, std::vector<Index> const& lengths)
  {
    for (StepChunk const& chunk : chunks) {
      for (Index t = 0; t < chunk.tokens; ++t) {
        rows.push_back(static_cast<std::uint32_t>(chunk.sequence));
        index.push_back(lengths[static_cast<std::size_t>(chunk.sequence)] - chunk.tokens + t);
      }
      first.push_back(static_cast<Index>(rows.size()));
    }
    counts[0] = static_cast<Index>(rows.size());
    counts[1] = static_cast<Index>(chunks.size());
  }
  [[nodiscard]] kvcache::BatchView<Layout> view() const
  {
    return {.segment = {},
            .map = {},
            .counts = counts,
            .token_row = rows.data(),
            .token_index = index.data(),
            .chunk_first = first.data()};
  }
};

/// What `share` promises: an equal share, 128 rows of the costliest item, and what no item is cut below.
std::int64_t bound(AttentionPlan const& plan, std::int64_t total, std::int32_t workers)
{
  std::int64_t row = 0;
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    AttentionItem const& item = plan.item(i);
    row = std::max(row, std::int64_t{item.heads} * (item.queries * item.tokens + 4));
  }
  return total / workers + 128 * row + 2048;
}

struct Shares {
  std::int64_t total = 0;
  std::int64_t most = 0;
};

Shares shares(AttentionPlan const& plan, std::int32_t workers)
{
  Shares out;
  std::size_t next = 0;
  for (std::int32_t w = 0; w < workers; ++w) {
    AttentionPlan::Share const share = plan.share(w);
    CHECK(share.first == next);
    next = share.last;
    std::int64_t cost = 0;
    for (std::size_t i = share.first; i < share.last; ++i) {
      cost += plan.cost(plan.item(i));
    }
    out.total += cost;
    out.most = std::max(out.most, cost);
  }
  CHECK(next == plan.num_items());
  return out;
}

}  // namespace

TEST_CASE(
  "AttentionPlan: no worker's share of a ragged step passes an equal one by more than a chunk",
  "[attention][balance]")
{
  std::mt19937_64 random(seed);
  CAPTURE(seed);
  double most_over = 0;
  for (int i = 0; i < 120; ++i) {
    std::vector<Index> lengths;
    std::vector<StepChunk> chunks;
    std::size_t const sequences = 1 + random() % 60;
    for (std::size_t s = 0; s < sequences; ++s) {
      // Log-uniform from 1 to 100,000, so that a few long ones stand among many short ones.
      double const x = std::uniform_real_distribution<double>(0.0, std::log(100000.0))(random);
      lengths.push_back(std::clamp(static_cast<Index>(std::exp(x)), 1, 100000));
      Index const tokens =
        i % 3 == 0 && random() % 4 == 0 ? 1 + static_cast<Index>(random() % 300) : 1;
      chunks.push_back({static_cast<int>(s), std::min(tokens, lengths.back())});
    }
    Lengths const step(chunks, lengths);
    auto const group = static_cast<std::int32_t>(1 + random() % 8);
    AttentionShape const shape{
      .query_heads = 8 * group, .kv_heads = 8, .window = i % 4 == 3 ? 4096 : 0};
    for (std::int32_t const workers : {1, 2, 3, 8, 16, 64}) {
      AttentionPlan plan;
      REQUIRE(plan.make(step.view(), shape, {.workers = workers}).has_value());
      Shares const got = shares(plan, workers);
      INFO("case " << i << ", " << workers << " workers, " << sequences << " sequences, group "
                   << group);
      CHECK(got.most <= bound(plan, got.total, workers));
      std::int64_t seen = 0;
      for (std::size_t t = 0; t < step.index.size(); ++t) {
        kvcache::Sight const sight = plan.sight(static_cast<Index>(t));
        seen += std::int64_t{sight.last - sight.first} * shape.query_heads;
      }
      std::int64_t met = 0;
      for (std::size_t k = 0; k < plan.num_items(); ++k) {
        AttentionItem const& item = plan.item(k);
        met += plan.cost(item) - std::int64_t{item.heads} * 4 * (item.end - item.begin);
      }
      CHECK(met == seen);
      if (workers == 8 && got.total > 1000000) {
        most_over =
          std::max(most_over, static_cast<double>(got.most) * 8.0 / static_cast<double>(got.total));
      }
    }
  }
  std::printf(
    "AttentionPlan: 120 ragged steps from seed %llu, 8 workers: largest share %.3f of an equal "
    "one\n",
    static_cast<unsigned long long>(seed),
    most_over);
  // The broken twin: whole sequences in turn.
  std::vector<Index> lengths(16, 10);
  lengths[3] = 100000;
  std::vector<StepChunk> chunks;
  for (int s = 0; s < 16; ++s) {
    chunks.push_back({s, 1});
  }
  Lengths const step(chunks, lengths);
  AttentionPlan plan;
  REQUIRE(plan.make(step.view(), {.query_heads = 32, .kv_heads = 8}, {.workers = 1}).has_value());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    total += plan.cost(plan.item(i));
  }
  CHECK(plan.num_items() == 16);
  CHECK(plan.cost(plan.item(3)) > bound(plan, total, 8));
}

TEST_CASE("AttentionPlan: a ragged step is cut at most once for each end of a share",
          "[attention][balance]")
{
  std::vector<Index> lengths;
  std::vector<StepChunk> chunks;
  for (int s = 0; s < 64; ++s) {
    lengths.push_back(s == 7 ? 60000 : 1 + s * 20);
    chunks.push_back({s, 1});
  }
  Lengths const step(chunks, lengths);
  for (std::int32_t const workers : {2, 8, 32}) {
    AttentionPlan plan;
    REQUIRE(
      plan.make(step.view(), {.query_heads = 32, .kv_heads = 8}, {.workers = workers}).has_value());
    CHECK(plan.num_items() < 64 + static_cast<std::size_t>(2 * workers));
    CHECK(plan.num_merges() < static_cast<std::size_t>(2 * workers));
  }
}

TEST_CASE("attend: a ragged step gives the same with any number of workers, to 1e-6",
          "[attention][balance]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 10, .kv_heads = 2};
  PagedPool<kvcache::PagedHeads<kvcache::bfloat16>> pool(
    geometry,
    {5000, 1, 40, 700, 3, 1999, 64},
    {{0, 1}, {1, 1}, {2, 7}, {3, 1}, {4, 2}, {5, 1}, {6, 30}},
    Poison::nan,
    seed);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  for (Path const path : {paths().front(), paths().back()}) {
    Attended const one = run(pool, shape, {}, 0, q, path);
    for (std::int32_t const workers : {2, 3, 8, 40}) {
      INFO(workers << " workers, " << name(path));
      Attended const got = run(pool, shape, {.workers = workers}, 0, q, path);
      CHECK(largest_difference(one.out, got.out) <= 1e-6);
      CHECK(largest_difference(one.lse, got.lse) <= 1e-5);
    }
  }
}
