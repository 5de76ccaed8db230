// SPDX-License-Identifier: Apache-2.0
// Window, soft cap and two-way spans, alone and together with trees, chunks, cuts and partial pages.

#include <kvcache/core/dtype.hpp>

#include <array>
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
using kvcache::AttentionPlan;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;
using kvcache::TwoWaySpan;

namespace {

constexpr std::uint64_t seed = 20261130;
constexpr double tolerance = 1e-5;
using Half = PagedHeads<kvcache::half>;

template <class List>
auto pick(std::mt19937_64& random, List const& list)
{
  return list[random() % std::size(list)];
}

struct Case {
  Geometry geometry;
  AttentionShape shape;
  std::vector<Index> lengths;
  std::vector<StepChunk> chunks;
  std::vector<Parents> trees;  // of each chunk; empty for a plain one
  std::vector<TwoWaySpan> two_way;
  std::int32_t workers;
  Index split_rows;
};

/// Up to four chunks of any kind; a plain one may hold a span, or two side by side.
Case random_case(std::mt19937_64& random)
{
  static constexpr std::int32_t dims[] = {8, 24, 64, 72, 128};
  static constexpr std::int32_t pages[] = {1, 7, 16, 64};
  static constexpr Index prefixes[] = {0, 1, 15, 16, 31, 32, 100, 300};
  static constexpr Index tokens[] = {1, 1, 2, 5, 17, 33, 64};
  static constexpr Index windows[] = {0, 1, 2, 7, 16, 31, 32, 33, 64, 100, 1000};
  static constexpr float caps[] = {0.0F, 0.0F, 0.5F, 5.0F, 50.0F};
  static constexpr Index splits[] = {0, 0, 32, 64};
  auto const kv_heads = static_cast<std::int32_t>(1 + random() % 2);
  auto const group = static_cast<std::int32_t>(1 + random() % 16);
  Case c{.geometry = {.layers = 2,
                      .kv_heads = kv_heads,
                      .head_dim = pick(random, dims),
                      .page_tokens = pick(random, pages)},
         .shape = {.query_heads = kv_heads * group,
                   .kv_heads = kv_heads,
                   .scale = random() % 3 == 0 ? 0.4F : 0.0F,
                   .soft_cap = pick(random, caps),
                   .window = pick(random, windows)},
         .lengths = {},
         .chunks = {},
         .trees = {},
         .two_way = {},
         .workers = static_cast<std::int32_t>(1 + random() % 5),
         .split_rows = pick(random, splits)};
  Index step = 0;
  std::size_t const chunks = 1 + random() % 4;
  for (std::size_t i = 0; i < chunks; ++i) {
    Index const n = group > 8 ? 1 + pick(random, tokens) % 8 : pick(random, tokens);
    bool const padding = random() % 8 == 0;
    bool const tree = !padding && random() % 3 == 0;
    c.chunks.push_back({padding ? -1 : static_cast<int>(c.lengths.size()), n});
    c.trees.push_back(tree ? random_tree(random, static_cast<std::size_t>(n), random() % 2 == 0)
                           : Parents{});
    if (!padding) {
      c.lengths.push_back(pick(random, prefixes) + n);
    }
    if (!padding && !tree && random() % 2 == 0) {
      auto const first = static_cast<Index>(random() % static_cast<std::size_t>(n));
      auto const some = static_cast<Index>(1 + random() % static_cast<std::size_t>(n - first));
      c.two_way.push_back({step + first, some});
      if (first + some < n) {
        c.two_way.push_back({step + first + some, n - first - some});
      }
    }
    step += n;
  }
  return c;
}

std::string words(Case const& c)
{
  std::string out = "head_dim " + std::to_string(c.geometry.head_dim) + ", page_tokens " +
                    std::to_string(c.geometry.page_tokens) + ", group " +
                    std::to_string(c.shape.group()) + ", window " + std::to_string(c.shape.window) +
                    ", soft_cap " + std::to_string(c.shape.soft_cap) + ", workers " +
                    std::to_string(c.workers) + ", split_rows " + std::to_string(c.split_rows) +
                    ", chunks";
  for (std::size_t i = 0; i < c.chunks.size(); ++i) {
    out += " " + std::to_string(c.chunks[i].tokens) + " of " +
           (c.chunks[i].sequence < 0
              ? "padding"
              : std::to_string(c.lengths[static_cast<std::size_t>(c.chunks[i].sequence)])) +
           (c.trees[i].empty() ? "" : " (tree)");
  }
  for (TwoWaySpan const& span : c.two_way) {
    out += ", span " + std::to_string(span.first_token) + "+" + std::to_string(span.tokens);
  }
  return out;
}

template <class Layout>
void check(Case const& c, std::uint64_t case_seed, WorstErrors& worst)
{
  PagedPool<Layout> pool(c.geometry, c.lengths, c.chunks, Poison::nan, case_seed);
  for (std::size_t i = 0; i < c.trees.size(); ++i) {
    if (!c.trees[i].empty()) {
      pool.plant(static_cast<Index>(i), c.trees[i]);
    }
  }
  std::vector<float> const q = random_queries(query_floats(pool, c.shape), case_seed);
  AttentionOptions const options{
    .workers = c.workers, .split_rows = c.split_rows, .two_way = c.two_way};
  for (Path const path : paths()) {
    double const error = error_against_double(
      pool, c.shape, 1, q, run(pool, c.shape, options, 1, q, path), {.two_way = c.two_way});
    INFO(name(path) << ", " << words(c) << ", seed " << case_seed);
    CHECK(error <= tolerance);
    worst.add(path, error);
  }
}

}  // namespace

TEST_CASE("attend: windows, soft caps, spans and trees together equal double precision",
          "[attention][mask]")
{
  std::mt19937_64 random(seed);
  WorstErrors worst;
  std::array<bool, 17> groups{};
  int const cases = cases_of(160);
  for (int i = 0; i < cases; ++i) {
    Case const c = random_case(random);
    groups[static_cast<std::size_t>(c.shape.group())] = true;
    std::uint64_t const case_seed = random();
    switch (i % 3) {
      case 0:
        check<PagedHeads<float>>(c, case_seed, worst);
        break;
      case 1:
        check<Half>(c, case_seed, worst);
        break;
      default:
        check<PagedHeads<kvcache::bfloat16>>(c, case_seed, worst);
    }
  }
  CHECK((cases < 160 || std::count(groups.begin(), groups.end(), true) == 16));
  REQUIRE(worst.report("masked steps", cases, seed));
}

TEST_CASE("attend: a window, a cap or a span left out is noticed", "[attention][mask]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  PagedPool<Half> pool(geometry, {90}, {{0, 20}}, Poison::nan, seed);
  AttentionShape const plain{.query_heads = 6, .kv_heads = 2, .scale = 0.5F};
  std::vector<float> const q = random_queries(query_floats(pool, plain), seed);
  AttentionShape window = plain;
  window.window = 40;
  AttentionShape one_more = plain;
  one_more.window = 41;
  AttentionShape cap = plain;
  cap.soft_cap = 2.0F;
  std::vector<TwoWaySpan> const spans{{4, 9}};
  for (Path const path : paths()) {
    INFO(name(path));
    Attended const got = run(pool, plain, {}, 0, q, path);
    CHECK(error_against_double(pool, plain, 0, q, got) <= tolerance);
    CHECK(error_against_double(pool, window, 0, q, got) > 1e-2);
    CHECK(error_against_double(pool, cap, 0, q, got) > 1e-2);
    CHECK(error_against_double(pool, plain, 0, q, got, {.two_way = spans}) > 1e-2);
    CHECK(error_against_double(pool, one_more, 0, q, run(pool, window, {}, 0, q, path)) > 1e-3);
  }
}

TEST_CASE("attend: what lies outside the window is not read, not even its table entries",
          "[attention][mask]")
{
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2, .window = 50};
  for (std::int32_t const page_tokens : {1, 7, 16, 64}) {
    for (Index const tokens : {1, 5}) {
      Geometry const geometry{
        .layers = 1, .kv_heads = 2, .head_dim = 24, .page_tokens = page_tokens};
      constexpr Index length = 300;
      PagedPool<Half> whole(geometry, {length}, {{0, tokens}}, Poison::nan, seed);
      PagedPool<Half> cut(geometry, {length}, {{0, tokens}}, Poison::nan, seed);
      Index const first = length - tokens + 1 - shape.window;
      float const nan = std::numeric_limits<float>::quiet_NaN();
      for (Index i = 0; i < first; ++i) {
        cut.put(0, 0, 0, i, nan, nan);
        cut.put(0, 0, 1, i, nan, nan);
      }
      for (Index p = 0; p < first / page_tokens; ++p) {
        cut.set_entry(0, static_cast<std::uint32_t>(p), 0x7fffffff);
      }
      std::vector<float> const q = random_queries(query_floats(whole, shape), seed);
      for (Path const path : paths()) {
        for (std::int32_t const workers : {1, 3}) {
          INFO(name(path) << ", page_tokens " << page_tokens << ", tokens " << tokens);
          Attended const right = run(whole, shape, {.workers = workers}, 0, q, path);
          CHECK(same_bits(right, run(cut, shape, {.workers = workers}, 0, q, path)));
        }
      }
      AttentionPlan plan;
      REQUIRE(plan.make(cut.view(), shape).has_value());
      for (std::size_t i = 0; i < plan.num_items(); ++i) {
        CHECK(plan.item(i).begin == first / 32 * 32);
      }
    }
  }
}

TEST_CASE("attend: in a window too, a tree equals each of its paths as a plain chunk",
          "[attention][mask][tree]")
{
  std::mt19937_64 random(seed);
  CAPTURE(seed);
  for (Index const prefix : {0, 16, 100}) {
    for (Index const window : {1, 3, 20, 70}) {
      Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 7};
      AttentionShape const shape{.query_heads = 6, .kv_heads = 2, .window = window};
      Parents const tree = random_tree(random, 40, true);
      for (Path const path : {paths().front(), paths().back()}) {
        INFO(name(path) << ", prefix " << prefix << ", window " << window);
        CHECK(error_against_paths<PagedHeads<kvcache::bfloat16>>(
                tree, prefix, geometry, shape, path, seed) <= 1e-6);
      }
    }
  }
}

TEST_CASE("attend: with a window, a row has the same bits in any chunk and with any workers",
          "[attention][mask]")
{
  constexpr Index length = 200;
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2, .soft_cap = 30.0F, .window = 75};
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 72, .page_tokens = 16};
  PagedPool<Half> whole(geometry, {length}, {{0, length}}, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(whole, shape), seed);
  for (Path const path : paths()) {
    Attended const right = run(whole, shape, {.split_rows = 64}, 0, q, path);
    for (Index const tokens : {1, 7, 64}) {
      PagedPool<Half> part(geometry, {length, 90}, {{0, tokens}, {1, 3}}, Poison::ones, seed);
      std::ptrdiff_t const floats = std::ptrdiff_t{6} * 72 * tokens;
      std::vector<float> some(q.end() - floats, q.end());
      some.resize(query_floats(part, shape), 0.5F);
      for (std::int32_t const workers : {1, 4}) {
        INFO(tokens << " tokens, " << workers << " workers, " << name(path));
        Attended const got =
          run(part, shape, {.workers = workers, .split_rows = 64}, 0, some, path);
        CHECK(std::equal(right.out.end() - floats, right.out.end(), got.out.begin()));
      }
    }
  }
}

TEST_CASE("attend: a logit far beyond the cap is the cap, and minus infinity its negative",
          "[attention][mask]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 16, .page_tokens = 4};
  AttentionShape const shape{.query_heads = 2, .kv_heads = 1, .soft_cap = 3.0F};
  PagedPool<PagedHeads<kvcache::bfloat16>> pool(geometry, {40}, {{0, 1}}, Poison::nan, seed);
  pool.put(0, 0, 0, 3, 1.0e30F, 0.25F);
  pool.put(0, 0, 0, 5, -1.0e30F, 0.75F);
  pool.put(0, 0, 0, 7, -std::numeric_limits<float>::infinity(), 0.5F);
  std::vector<float> const q(query_floats(pool, shape), 0.25F);
  for (Path const path : paths()) {
    INFO(name(path));
    CHECK(error_against_double(pool, shape, 0, q, run(pool, shape, {}, 0, q, path)) <= tolerance);
  }
}

TEST_CASE("AttentionPlan: refuses windows, caps and spans that cannot be, by name",
          "[attention][mask]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 16, .page_tokens = 4};
  PagedPool<Half> pool(geometry, {40, 30}, {{0, 5}, {1, 6}, {-1, 2}}, Poison::nan, seed);
  pool.plant(1, chain(6));
  auto const error = [&](AttentionShape shape, AttentionOptions const& options = {}) {
    shape.query_heads = 4;
    shape.kv_heads = 2;
    AttentionPlan plan;
    auto const made = plan.make(pool.view(), shape, options);
    REQUIRE_FALSE(made.has_value());
    CHECK(plan.num_items() == 0);
    return std::string(made.error().message().text);
  };
  CHECK(error({.soft_cap = -1.0F}) ==
        "soft_cap = -1 (bad configuration): must be 0 for none, or from 0.001 to 1000000");
  CHECK_THAT(error({.soft_cap = -0.5F}), Contains("soft_cap = -1 "));
  CHECK_THAT(error({.soft_cap = 1.0e-4F}), Contains("soft_cap = 0 "));
  CHECK_THAT(error({.soft_cap = std::numeric_limits<float>::quiet_NaN()}), Contains("soft_cap"));
  CHECK_THAT(error({.soft_cap = std::numeric_limits<float>::infinity()}), Contains("soft_cap"));
  CHECK_THAT(error({.window = -1}), Contains("window = -1 "));
  CHECK_THAT(error({}, {.shared_rows = -5}), Contains("shared_rows = -5 "));
  auto const span = [&](std::vector<TwoWaySpan> const& spans) {
    return error({}, {.two_way = spans});
  };
  CHECK_THAT(span({{-1, 2}}), Contains("two_way.first_token = -1 "));
  CHECK_THAT(span({{13, 1}}), Contains("two_way.first_token = 13 "));
  CHECK_THAT(span({{1, 2}, {2, 2}}), Contains("two_way.first_token = 2 "));
  CHECK_THAT(span({{0, 0}}), Contains("two_way.tokens = 0 "));
  CHECK_THAT(span({{3, 3}}), Contains("two_way.tokens = 3 "));       // reaches into the next chunk
  CHECK_THAT(span({{5, 2}}), Contains("two_way.first_token = 5 "));  // a tree
  CHECK_THAT(span({{11, 1}}), Contains("padding"));
  AttentionPlan plan;
  std::vector<TwoWaySpan> const good{{0, 2}, {2, 3}};
  CHECK(plan.make(pool.view(), {.query_heads = 4, .kv_heads = 2}, {.two_way = good}).has_value());
}
