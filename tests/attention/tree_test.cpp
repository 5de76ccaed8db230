// SPDX-License-Identifier: Apache-2.0
// Token trees: each token sees the rows before its chunk and its own path, and nothing of other branches.

#include <kvcache/core/dtype.hpp>

#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "attention/attention_checks.hpp"
#include "attention/tree_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionOptions;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;

namespace {

constexpr std::uint64_t seed = 20261129;
constexpr double tolerance = 1e-5;

struct Case {
  Geometry geometry;
  AttentionShape shape;
  std::vector<Index> lengths;
  std::vector<StepChunk> chunks;
  std::vector<Parents> trees;  // of each chunk; empty for a plain one
  AttentionOptions options;
};

template <class List>
auto pick(std::mt19937_64& random, List const& list)
{
  return list[random() % std::size(list)];
}

Parents some_tree(std::mt19937_64& random, std::size_t tokens)
{
  switch (random() % 6) {
    case 0:
      return chain(tokens);
    case 1:
      return siblings(tokens);
    case 2:
      return star(tokens);
    case 3:
      return random_tree(random, tokens, true);
    default:
      return random_tree(random, tokens, false);
  }
}

/// One to three trees among prefills, decodes and padding, in any order.
Case random_case(std::mt19937_64& random)
{
  static constexpr std::int32_t dims[] = {8, 24, 64, 72};
  static constexpr std::int32_t pages[] = {1, 7, 16};
  static constexpr std::int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8};
  static constexpr Index prefixes[] = {0, 1, 15, 16, 100};
  static constexpr Index sizes[] = {1, 2, 3, 5, 8, 17, 31, 32, 33, 48, 63, 64};
  static constexpr Index splits[] = {0, 0, 32, 64};
  auto const kv_heads = static_cast<std::int32_t>(1 + random() % 2);
  Case c{.geometry = {.layers = 2,
                      .kv_heads = kv_heads,
                      .head_dim = pick(random, dims),
                      .page_tokens = pick(random, pages)},
         .shape = {.query_heads = kv_heads * pick(random, groups), .kv_heads = kv_heads},
         .lengths = {},
         .chunks = {},
         .trees = {},
         .options = {.workers = static_cast<std::int32_t>(1 + random() % 5),
                     .split_rows = pick(random, splits)}};
  auto const add = [&](Index prefix, Index tokens, Parents tree) {
    c.chunks.push_back({static_cast<int>(c.lengths.size()), tokens});
    c.lengths.push_back(prefix + tokens);
    c.trees.push_back(std::move(tree));
  };
  std::size_t const trees = 1 + random() % 3;
  for (std::size_t i = 0; i < trees; ++i) {
    switch (random() % 4) {
      case 0:
        add(pick(random, prefixes), 20, {});
        break;
      case 1:
        add(40, 1, {});
        break;
      case 2:
        c.chunks.push_back({-1, 2});
        c.trees.emplace_back();
        break;
      default:
        break;
    }
    Index const tokens = pick(random, sizes);
    add(pick(random, prefixes), tokens, some_tree(random, static_cast<std::size_t>(tokens)));
  }
  return c;
}

template <class Pool>
void plant_all(Pool& pool, Case const& c)
{
  for (std::size_t i = 0; i < c.trees.size(); ++i) {
    if (!c.trees[i].empty()) {
      pool.plant(static_cast<Index>(i), c.trees[i]);
    }
  }
}

std::string words(Case const& c)
{
  std::string out = "head_dim " + std::to_string(c.geometry.head_dim) + ", page_tokens " +
                    std::to_string(c.geometry.page_tokens) + ", group " +
                    std::to_string(c.shape.group()) + ", kv_heads " +
                    std::to_string(c.shape.kv_heads) + ", workers " +
                    std::to_string(c.options.workers) + ", split_rows " +
                    std::to_string(c.options.split_rows) + ", chunks";
  for (std::size_t i = 0; i < c.chunks.size(); ++i) {
    out += " " + std::to_string(c.chunks[i].tokens);
    if (c.chunks[i].sequence >= 0) {
      out += " of " + std::to_string(c.lengths[static_cast<std::size_t>(c.chunks[i].sequence)]);
    }
    out += c.trees[i].empty() ? "," : " (tree),";
  }
  return out;
}

/// One case on every path against double precision; adds the worst error of each to `worst`.
template <class Layout>
void check_double(Case const& c, std::uint64_t case_seed, WorstErrors& worst)
{
  PagedPool<Layout> pool(c.geometry, c.lengths, c.chunks, Poison::nan, case_seed);
  plant_all(pool, c);
  std::vector<float> const q = random_queries(query_floats(pool, c.shape), case_seed);
  for (Path const path : paths()) {
    double const error =
      error_against_double(pool, c.shape, 1, q, run(pool, c.shape, c.options, 1, q, path));
    INFO(name(path) << ", " << words(c) << " seed " << case_seed);
    CHECK(error <= tolerance);
    worst.add(path, error);
  }
}

}  // namespace

TEST_CASE("attend: equals double precision over exactly the paths of random trees",
          "[attention][tree]")
{
  std::mt19937_64 random(seed);
  WorstErrors worst;
  int const cases = cases_of(80);
  for (int i = 0; i < cases; ++i) {
    Case const c = random_case(random);
    std::uint64_t const case_seed = random();
    if (i % 2 == 0) {
      check_double<PagedHeads<kvcache::half>>(c, case_seed, worst);
    } else {
      check_double<PagedHeads<kvcache::bfloat16>>(c, case_seed, worst);
    }
  }
  REQUIRE(worst.report("steps with random trees", cases, seed));
}

TEST_CASE("attend: a step without its masks is noticed", "[attention][tree]")
{
  using Layout = PagedHeads<kvcache::half>;
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  PagedPool<Layout> masked(geometry, {50}, {{0, 20}}, Poison::nan, seed);
  PagedPool<Layout> causal(geometry, {50}, {{0, 20}}, Poison::nan, seed);
  masked.plant(0, star(20));
  std::vector<float> const q = random_queries(query_floats(masked, shape), seed);
  for (Path const path : paths()) {
    INFO(name(path));
    CHECK(error_against_double(masked, shape, 0, q, run(masked, shape, {}, 0, q, path)) <=
          tolerance);
    CHECK(error_against_double(masked, shape, 0, q, run(causal, shape, {}, 0, q, path)) > 1e-2);
  }
}

TEST_CASE("attend: a tree equals each of its paths as a plain chunk of its own",
          "[attention][tree]")
{
  CAPTURE(seed);
  using Layout = PagedHeads<kvcache::bfloat16>;
  std::mt19937_64 random(seed);
  for (Index const prefix : {0, 1, 15, 16, 100}) {
    for (std::size_t const tokens : {1U, 2U, 7U, 33U, 64U}) {
      Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 7};
      auto const group = static_cast<std::int32_t>(1 + random() % 8);
      AttentionShape const shape{.query_heads = 2 * group, .kv_heads = 2};
      for (Parents const& tree : {chain(tokens),
                                  siblings(tokens),
                                  star(tokens),
                                  random_tree(random, tokens, true),
                                  random_tree(random, tokens, false)}) {
        for (Path const path : {paths().front(), paths().back()}) {
          INFO(name(path) << ", prefix " << prefix << ", tokens " << tokens << ", group " << group);
          CHECK(error_against_paths<Layout>(tree, prefix, geometry, shape, path, seed) <= 1e-6);
        }
      }
    }
  }
}

TEST_CASE("attend: a tree that is a chain has the bits of a plain chunk", "[attention][tree]")
{
  using Layout = PagedHeads<kvcache::half>;
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  for (std::int32_t const page_tokens : {1, 7, 16}) {
    for (Index const tokens : {1, 5, 33}) {
      for (Index const prefix : {0, 15, 100}) {
        Geometry const geometry{
          .layers = 1, .kv_heads = 2, .head_dim = 72, .page_tokens = page_tokens};
        std::vector<Index> const lengths{prefix + tokens, 80};
        PagedPool<Layout> plain(geometry, lengths, {{0, tokens}, {1, 9}}, Poison::nan, seed);
        PagedPool<Layout> tree(geometry, lengths, {{0, tokens}, {1, 9}}, Poison::nan, seed);
        tree.plant(0, chain(static_cast<std::size_t>(tokens)));
        std::vector<float> const q = random_queries(query_floats(plain, shape), seed);
        for (Path const path : paths()) {
          for (AttentionOptions const options :
               {AttentionOptions{}, {.workers = 4}, {.workers = 2, .split_rows = 32}}) {
            INFO(name(path) << ", page_tokens " << page_tokens << ", tokens " << tokens
                            << ", prefix " << prefix << ", split_rows " << options.split_rows);
            CHECK(same_bits(run(plain, shape, options, 0, q, path),
                            run(tree, shape, options, 0, q, path)));
          }
        }
      }
    }
  }
}

TEST_CASE("attend: what lies in hidden rows has no effect at all, NaN included",
          "[attention][tree]")
{
  CAPTURE(seed);
  using Layout = PagedHeads<kvcache::half>;
  std::mt19937_64 random(seed);
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 24, .page_tokens = 7};
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  for (Index const prefix : {0, 16, 40}) {
    Parents const tree = random_tree(random, 40, false);
    for (Index const token : {1, 20, 33, 39}) {
      PagedPool<Layout> pool(geometry, {prefix + 40}, {{0, 40}}, Poison::nan, seed);
      pool.plant(0, tree);
      std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
      Attended const reference = run_tiles(pool, shape, q, false);
      Attended const example = run_tiles(pool, shape, q, true);
      std::vector<Attended> before;
      for (Path const path : paths()) {
        before.push_back(run(pool, shape, {.split_rows = 32}, 0, q, path));
      }
      float const nan = std::numeric_limits<float>::quiet_NaN();
      for (float const value : {1.0e4F, -1.0e4F, nan}) {
        INFO("prefix " << prefix << ", token " << token << ", hidden rows of " << value);
        CHECK((spoil_hidden(pool, token, value) > 0 || token == 1));
        for (std::size_t i = 0; i < before.size(); ++i) {
          INFO(name(paths()[i]));
          CHECK(same_token(
            run(pool, shape, {.split_rows = 32}, 0, q, paths()[i]), before[i], token, shape, 24));
        }
        if (!std::isnan(
              value)) {  // a kernel that masks by bias reads the rows: they must be numbers
          CHECK(same_token(run_tiles(pool, shape, q, false), reference, token, shape, 24));
          CHECK(same_token(run_tiles(pool, shape, q, true), example, token, shape, 24));
        }
      }
    }
  }
}

TEST_CASE("attend: parts in which a token sees no row are empty, not NaN", "[attention][tree]")
{
  using Layout = PagedHeads<kvcache::bfloat16>;
  AttentionShape const shape{.query_heads = 10, .kv_heads = 2};
  for (std::int32_t const page_tokens : {1, 7, 16}) {
    for (Index const prefix : {0, 1, 31, 32}) {
      Geometry const geometry{
        .layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = page_tokens};
      PagedPool<Layout> pool(geometry, {prefix + 64}, {{0, 64}}, Poison::nan, seed);
      pool.plant(0, siblings(64));  // prefix 0: the last sees one row, in the last part
      std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
      for (Path const path : paths()) {
        INFO(name(path) << ", page_tokens " << page_tokens << ", prefix " << prefix);
        Attended const got = run(pool, shape, {.split_rows = 32}, 0, q, path);
        CHECK(error_against_double(pool, shape, 0, q, got) <= tolerance);
        kvcache::AttentionPlan plan;
        REQUIRE(plan.make(pool.view(), shape, {.split_rows = 32}).has_value());
        CHECK(plan.num_merges() > 0);
        CHECK(largest_difference(got.out, run(pool, shape, {}, 0, q, path).out) <= 1e-6);
      }
    }
  }
}

TEST_CASE("reference_attention and the example's kernel: trees come by bias alone",
          "[attention][reference][tree]")
{
  CHECK(std::exp(-1.0e30F) == 0.0F);  // a hidden row's weight, once a row was seen
  CAPTURE(seed);
  using Layout = PagedHeads<kvcache::half>;
  std::mt19937_64 random(seed);
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 24, .page_tokens = 7};
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  for (Index const prefix : {0, 1, 16}) {
    PagedPool<Layout> pool(geometry,
                           {prefix + 64, 20, prefix + 30},
                           {{0, 64}, {1, 5}, {2, 30}, {-1, 1}},
                           Poison::nan,
                           seed);
    pool.plant(0, siblings(64));  // at prefix 0, whole tiles are hidden before the first row seen
    pool.plant(2, random_tree(random, 30, false));
    std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
    INFO("prefix " << prefix);
    Attended const reference = run_tiles(pool, shape, q, false);
    CHECK(error_against_double(pool, shape, 0, q, reference) <= tolerance);
    CHECK(largest_difference(run_tiles(pool, shape, q, true).out, reference.out) <= tolerance);
  }
}
