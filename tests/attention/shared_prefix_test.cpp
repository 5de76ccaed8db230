// SPDX-License-Identifier: Apache-2.0
// One pass over pages that several sequences begin with: who is grouped, what is loaded, and that it is right.

#include <kvcache/attention/shared_prefix.hpp>
#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionItem;
using kvcache::AttentionOptions;
using kvcache::AttentionPlan;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;
using kvcache::detail::SharedPrefixes;

namespace {

constexpr std::uint64_t seed = 20261130;
using Layout = PagedHeads<kvcache::bfloat16, 64, 16>;

/// Tables without bytes behind them.
struct Tables {
  std::vector<std::int32_t> entries;
  std::uint32_t stride;

  explicit Tables(std::vector<std::vector<std::int32_t>> const& tables) : stride(0)
  {
    for (auto const& table : tables) {
      stride = std::max(stride, static_cast<std::uint32_t>(table.size()));
    }
    for (auto const& table : tables) {
      entries.insert(entries.end(), table.begin(), table.end());
      entries.resize(entries.size() + stride - table.size(), -1);
    }
  }
  [[nodiscard]] kvcache::BatchView<Layout> view() const
  {
    kvcache::BatchView<Layout> v{};
    v.segment.table = entries.data();
    v.segment.row_stride = stride;
    v.segment.seq_rows = 1;
    return v;
  }
};

Index saved(std::vector<SharedPrefixes::Group> const& groups)
{
  Index rows = 0;
  for (auto const& group : groups) {
    rows += static_cast<Index>(group.last - group.first - 1) * group.rows;
  }
  return rows;
}

/// The most rows that any choice of groups saves, where each of tables `[first, last)` of the sorted ones may
/// also join a group over the `outer` rows before page `page`.
Index most_saved(std::vector<std::vector<std::int32_t>> const& tables,
                 std::size_t first,
                 std::size_t last,
                 std::size_t page = 0,
                 Index outer = 0)
{
  if (last - first < 2) {
    return static_cast<Index>(last - first) * outer;
  }
  Index const rows = static_cast<Index>(page) * 16 / 32 * 32;
  Index apart = 0;
  Index here = -rows;
  for (std::size_t from = first; from < last;) {
    std::size_t to = from + 1;
    if (page < tables[from].size()) {
      while (to < last && page < tables[to].size() && tables[to][page] == tables[from][page]) {
        ++to;
      }
    }
    bool const leaf = page >= tables[from].size();
    apart += leaf ? outer : most_saved(tables, from, to, page + 1, outer);
    here += leaf ? rows : most_saved(tables, from, to, page + 1, rows);
    from = to;
  }
  return std::max(apart, rows > 0 ? here : 0);
}

/// KV rows, over all heads, that the items of a plan load.
std::int64_t loads(AttentionPlan const& plan)
{
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    rows += std::int64_t{plan.item(i).heads} * (plan.item(i).end - plan.item(i).begin);
  }
  return rows;
}

}  // namespace

TEST_CASE("SharedPrefixes: groups save about as many loads as any choice of groups could",
          "[attention][shared_prefix]")
{
  std::mt19937_64 random(seed);
  CAPTURE(seed);
  Index all_saved = 0;
  Index all_best = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<std::vector<std::int32_t>> tables;
    std::size_t const n = random() % 12;
    for (std::size_t s = 0; s < n; ++s) {
      std::vector<std::int32_t> table(1 + random() % 12);
      for (std::size_t p = 0; p < table.size(); ++p) {
        // A page is where it is because of the pages before it.
        table[p] =
          static_cast<std::int32_t>((p == 0 ? 0 : table[p - 1]) * 3 + (random() % 4 == 0 ? 2 : 1));
      }
      tables.push_back(table);
    }
    Tables const all(tables);
    SharedPrefixes prefixes;
    for (std::size_t s = 0; s < n; ++s) {
      prefixes.add({static_cast<Index>(s),
                    static_cast<std::uint32_t>(s),
                    static_cast<Index>(16 * tables[s].size())});
    }
    auto const& groups = prefixes.find(all.view(), 32, 32);
    std::vector<int> used(n);
    for (auto const& group : groups) {
      CHECK(group.rows >= 32);
      CHECK(group.last - group.first >= 2);
      for (std::size_t k = group.first; k < group.last; ++k) {
        ++used[static_cast<std::size_t>(prefixes.member(k).chunk)];
        auto const& table = tables[prefixes.member(k).row];
        auto const& other = tables[prefixes.member(group.first).row];
        CHECK(std::equal(table.begin(), table.begin() + group.rows / 16, other.begin()));
      }
    }
    CHECK(std::all_of(used.begin(), used.end(), [](int times) { return times <= 1; }));
    std::sort(tables.begin(), tables.end());
    Index const best = most_saved(tables, 0, n);
    CHECK(saved(groups) <= best);
    CHECK(10 * saved(groups) >= 9 * best);
    all_saved += saved(groups);
    all_best += best;
  }
  std::printf(
    "SharedPrefixes: 500 random steps: %d rows saved of %d that could be\n", all_saved, all_best);
  CHECK(100 * all_saved >= 99 * all_best);
}

TEST_CASE("attend: steps in which some sequences share prefixes equal double precision",
          "[attention][shared_prefix]")
{
  std::mt19937_64 random(seed);
  CAPTURE(seed);
  double worst = 0;
  int shared_items = 0;
  int const cases = cases_of(40);
  for (int i = 0; i < cases; ++i) {
    static constexpr std::int32_t dims[] = {8, 64, 72, 128};
    static constexpr std::int32_t pages[] = {1, 7, 16, 64};
    Geometry const geometry{.layers = 1,
                            .kv_heads = static_cast<std::int32_t>(1 + random() % 3),
                            .head_dim = dims[random() % 4],
                            .page_tokens = pages[random() % 4]};
    auto const group = static_cast<std::int32_t>(1 + random() % 5);
    AttentionShape const shape{.query_heads = group * geometry.kv_heads,
                               .kv_heads = geometry.kv_heads,
                               .soft_cap = random() % 3 == 0 ? 20.0F : 0.0F,
                               .window = random() % 4 == 0 ? 150 : 0};
    std::size_t const sequences = 3 + random() % 5;
    std::vector<Index> lengths;
    std::vector<StepChunk> chunks;
    for (std::size_t s = 0; s < sequences; ++s) {
      lengths.push_back(static_cast<Index>(64 + random() % 200));
      Index const tokens = random() % 3 == 0 ? static_cast<Index>(1 + random() % 9) : 1;
      chunks.push_back({static_cast<int>(s), random() % 9 == 0 ? 40 : tokens});
    }
    std::shuffle(chunks.begin(), chunks.end(), random);
    PagedPool<PagedHeads<kvcache::bfloat16>> pool(geometry, lengths, chunks, Poison::nan, seed);
    // Two families and loners; now and then the pages that a chunk writes are shared as well.
    for (std::size_t s = 2; s < sequences; ++s) {
      if (random() % 5 != 0) {
        auto const rows =
          std::min({static_cast<Index>(40 + random() % 100), lengths[s], lengths[s % 2]});
        pool.share(s, s % 2, static_cast<std::uint32_t>(rows / geometry.page_tokens));
      }
    }
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      if (chunks[c].tokens > 2 && random() % 2 == 0) {
        pool.plant(static_cast<Index>(c),
                   random_tree(random, static_cast<std::size_t>(chunks[c].tokens), false));
      }
    }
    std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
    AttentionOptions const options{.workers = static_cast<std::int32_t>(1 + random() % 4),
                                   .split_rows = random() % 3 == 0 ? 64 : 0,
                                   .shared_rows = 32};
    AttentionOptions apart = options;
    apart.shared_rows = 0;
    AttentionPlan plan;
    REQUIRE(plan.make(pool.view(), shape, options).has_value());
    for (std::size_t k = 0; k < plan.num_items(); ++k) {
      shared_items += plan.item(k).shared ? 1 : 0;
    }
    for (Path const path : {paths().front(), paths().back()}) {
      INFO(name(path) << ", case " << i << ", head_dim " << geometry.head_dim << ", page_tokens "
                      << geometry.page_tokens << ", group " << group << ", window "
                      << shape.window);
      Attended const got = run(pool, shape, options, 0, q, path);
      double const error = error_against_double(pool, shape, 0, q, got);
      CHECK(error <= 1e-5);
      worst = std::max(worst, error);
      Attended const alone = run(pool, shape, apart, 0, q, path);
      CHECK(largest_difference(alone.out, got.out) <= 2e-6);
      if (options.split_rows > 0) {
        CHECK(same_bits(alone, got));
      }
    }
  }
  std::printf(
    "attend: %d steps with shared prefixes from seed %llu, %d shared items, worst error against "
    "double %.1e\n",
    cases,
    static_cast<unsigned long long>(seed),
    shared_items,
    worst);
  CHECK(shared_items > (cases < 40 ? 0 : 40));
}

TEST_CASE("AttentionPlan: a prefix of sixteen sequences is loaded once",
          "[attention][shared_prefix]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 128, .page_tokens = 16};
  constexpr Index prefix = 512;
  for (std::int32_t const group : {1, 4, 8}) {
    AttentionShape const shape{.query_heads = 2 * group, .kv_heads = 2};
    std::vector<Index> lengths;
    std::vector<StepChunk> chunks;
    for (int s = 0; s < 18; ++s) {  // sixteen that share, two strangers
      lengths.push_back(prefix + 1 + 3 * s);
      chunks.push_back({s, 1});
    }
    PagedPool<PagedHeads<kvcache::bfloat16>> pool(geometry, lengths, chunks, Poison::nan, seed);
    for (std::size_t s = 1; s < 16; ++s) {
      pool.share(s, 0, prefix / 16);
    }
    std::int64_t all = 0;
    for (Index const length : lengths) {
      all += 2 * length;
    }
    for (std::int32_t const workers : {1, 4}) {
      INFO("group " << group << ", " << workers << " workers");
      AttentionPlan plan;
      REQUIRE(plan.make(pool.view(), shape, {.workers = workers}).has_value());
      CHECK(loads(plan) == all);
      REQUIRE(plan.make(pool.view(), shape, {.workers = workers, .shared_rows = 512}).has_value());
      std::int64_t const passes = group == 8 ? 2 : 1;  // 64 query rows of 128 are an item's limit
      CHECK(loads(plan) == all - 2 * prefix * (16 - passes));
      REQUIRE(plan.make(pool.view(), shape, {.workers = workers, .shared_rows = 544}).has_value());
      CHECK(loads(plan) == all);  // less in common than was asked for
    }
  }
}

TEST_CASE(
  "AttentionPlan: chunks whose window has left the prefix behind, or that write it, go alone",
  "[attention][shared_prefix]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16};
  PagedPool<Layout> pool(geometry, {100, 101, 102}, {{0, 1}, {1, 1}, {2, 40}}, Poison::nan, seed);
  pool.share(1, 0, 4);
  PagedPool<Layout> writer(geometry, {100, 102}, {{0, 1}, {1, 40}}, Poison::nan, seed);
  writer.share(1, 0, 6);  // the chunk writes rows 62 to 101
  auto const groups = [](PagedPool<Layout>& of, Index window, std::int32_t heads) {
    AttentionPlan plan;
    REQUIRE(plan
              .make(of.view(),
                    {.query_heads = heads, .kv_heads = 1, .window = window},
                    {.shared_rows = 32})
              .has_value());
    std::vector<Index> out;
    for (std::size_t i = 0; i < plan.num_items(); ++i) {
      if (plan.item(i).shared) {
        out.push_back(plan.item(i).tokens);
        out.push_back(plan.item(i).end);
      }
    }
    return out;
  };
  CHECK(groups(pool, 0, 2) == std::vector<Index>{2, 64});
  CHECK(groups(pool, 101, 2) == std::vector<Index>{2, 64});
  CHECK(groups(pool, 100, 2).empty());
  CHECK(groups(writer, 0, 1) == std::vector<Index>{41, 32});
  CHECK(groups(writer, 0, 2).empty());  // 80 query rows are worth their loads alone
}
