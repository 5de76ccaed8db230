// SPDX-License-Identifier: Apache-2.0
// The device's attention against double precision: ragged batches of any kind, every head size that has an odd way, every
// schedule.

#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention/attention_checks.hpp"
#include "attention/device_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/engine_types.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;
using kvcache::ScoreAt;

namespace {

constexpr std::uint64_t seed = 20261130;
constexpr double tolerance = 1e-3;

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
  std::int32_t blocks;
};

/// A few chunks of any kind: nothing, decodes, drafts in trees, prefills, padding.
Case random_case(std::mt19937_64& random, std::int32_t head_dim)
{
  static constexpr std::int32_t pages[] = {1, 7, 16, 64, 256};
  static constexpr std::int32_t groups[] = {1, 4, 7, 8};
  static constexpr Index prefixes[] = {0, 1, 15, 16, 47, 63, 64, 65, 130, 300};
  static constexpr Index tokens[] = {1, 1, 1, 2, 5, 9, 17};
  static constexpr Index windows[] = {0, 0, 1, 2, 16, 33, 64, 100, 1000};
  static constexpr float caps[] = {0.0F, 0.0F, 5.0F, 50.0F};
  static constexpr float scales[] = {
    0.0F, 0.0F, 0.2F, 8.0F};  // the last: sums that need their maximum
  auto const kv_heads = static_cast<std::int32_t>(1 + random() % 2);
  Case c{.geometry = {.layers = 2,
                      .kv_heads = kv_heads,
                      .head_dim = head_dim,
                      .page_tokens = pick(random, pages)},
         .shape = {.query_heads = kv_heads * pick(random, groups),
                   .kv_heads = kv_heads,
                   .scale = pick(random, scales),
                   .soft_cap = pick(random, caps),
                   .window = pick(random, windows)},
         .lengths = {},
         .chunks = {},
         .trees = {},
         .blocks = static_cast<std::int32_t>(1 + random() % 12)};
  auto const sequences = static_cast<int>(random() % 5);
  for (int s = 0; s < sequences; ++s) {
    Index const chunk = random() % 8 == 0 ? 0 : pick(random, tokens);
    c.lengths.push_back(pick(random, prefixes) + chunk);
    c.chunks.push_back({s, chunk});
    c.trees.emplace_back();
    if (chunk > 1 && random() % 2 == 0) {
      c.trees.back() = random_tree(random, static_cast<std::size_t>(chunk), random() % 2 == 0);
    }
  }
  if (random() % 4 == 0) {
    c.chunks.push_back({-1, static_cast<Index>(1 + random() % 3)});
  }
  return c;
}

std::string words(Case const& c)
{
  std::string out =
    "head_dim " + std::to_string(c.geometry.head_dim) + ", page_tokens " +
    std::to_string(c.geometry.page_tokens) + ", heads " + std::to_string(c.shape.query_heads) +
    " to " + std::to_string(c.shape.kv_heads) + ", window " + std::to_string(c.shape.window) +
    ", cap " + std::to_string(c.shape.soft_cap) + ", scale " + std::to_string(c.shape.scale) +
    ", blocks " + std::to_string(c.blocks) + ", chunks";
  for (std::size_t i = 0; i < c.chunks.size(); ++i) {
    out += " " + std::to_string(c.chunks[i].tokens) +
           (c.chunks[i].sequence < 0
              ? " of padding"
              : (c.trees[i].empty() ? " of " : " in a tree of ") + std::to_string(c.lengths[i]));
  }
  return out;
}

/// Adds a number to each score that depends on all that a bias is told, and leaves some rows out, for some tokens all.
struct TestBias {
  float operator()(ScoreAt at) const
  {
    Index const x = (at.row * 7 + at.query_head * 3 + at.token) % 11;
    return x == 3 ? -std::numeric_limits<float>::infinity() : static_cast<float>(x) * 0.125F;
  }
};

/// A case in the pool of a test; returns the worst error.
template <int HeadDim, class Layout, class Query, class Out, class Bias = kvcache::NoBias>
double error_of(Case const& c,
                std::uint64_t case_seed,
                simt::Options const& options,
                Bias const& bias = {},
                Attended* result = nullptr)
{
  PagedPool<Layout> pool(c.geometry, c.lengths, c.chunks, Poison::nan, case_seed);
  for (std::size_t i = 0; i < c.trees.size(); ++i) {
    if (!c.trees[i].empty()) {
      pool.plant(static_cast<Index>(i), c.trees[i]);
    }
  }
  std::vector<float> const q = random_queries(query_floats(pool, c.shape), case_seed);
  Attended const got = run_on_device<HeadDim, Query, Out>(
    pool, c.shape, 1, q, limits_of(pool, c.blocks), options, bias);
  if (result != nullptr) {
    *result = got;
  }
  Rules rules;
  if constexpr (!std::is_same_v<Bias, kvcache::NoBias>) {
    rules.bias = [&](ScoreAt at) { return static_cast<double>(bias(at)); };
  }
  return error_against_double(pool, c.shape, 1, q, got, rules);
}

/// Cases enough for fibers; on threads the schedules' test goes through the same code.
template <int HeadDim, class Layout, class Query, class Out, class Bias = kvcache::NoBias>
void check_cases(char const* name, int all, double bound, Bias const& bias = {})
{
  int const cases = cases_of(all);
  std::mt19937_64 random(seed + HeadDim);
  std::vector<simt::Options> const ways = simt::schedules(seed);
  double worst = 0.0;
  for (int i = 0; i < cases; ++i) {
    Case const c = random_case(random, HeadDim);
    std::uint64_t const case_seed = random();
    simt::Options const& way = ways[static_cast<std::size_t>(i) % ways.size()];
    double const error = error_of<HeadDim, Layout, Query, Out>(c, case_seed, way, bias);
    INFO(words(c) << ", seed " << case_seed << ", " << simt::to_string(way));
    CHECK(error <= bound);
    worst = std::max(worst, error);
  }
  std::printf("device attention: %d cases of %s from seed %llu, worst error against double: %.1e\n",
              cases,
              name,
              static_cast<unsigned long long>(seed + HeadDim),
              worst);
}

/// Shares that cut items of every kind: a decode, drafts in a tree, a prefill of two tiles.
template <int HeadDim, class Layout, class Query>
void check_schedules()
{
  std::mt19937_64 random(seed);
  Case const c{.geometry = {.layers = 2, .kv_heads = 1, .head_dim = HeadDim, .page_tokens = 7},
               .shape = {.query_heads = 4, .kv_heads = 1, .window = 100},
               .lengths = {140, 70, 18},
               .chunks = {{0, 1}, {1, 4}, {2, 18}, {-1, 1}},
               .trees = {{}, random_tree(random, 4, false), {}, {}},
               .blocks = 5};
  Attended first;
  for (simt::Options const& way : simt::schedules(seed)) {
    Attended got;
    double const error = error_of<HeadDim, Layout, Query, float>(c, seed, way, {}, &got);
    INFO("head_dim " << HeadDim << ", " << simt::to_string(way));
    CHECK(error <= tolerance);
    first = first.out.empty() ? got : first;
    CHECK(same_bits(got, first));
  }
}

}  // namespace

/// The engine's own type has the bits of ours.
template <>
struct kvcache::MatrixElement<engine::Bf16> {
  using type = kvcache::bfloat16;
};

TEST_CASE(
  "AttendKernel: as many blocks as it says fit into the shared memory of the smallest target",
  "[attention][device_attend]")
{
  // 164 KiB a multiprocessor of sm_80, 163 KiB a block, 1 KiB of them the system's (CUDA C++ Programming Guide, "Compute
  // Capabilities").
  auto const fits = [](std::size_t shared_bytes, int blocks) {
    return shared_bytes <= 163 * 1024 &&
           (shared_bytes + 1024) * static_cast<std::size_t>(blocks) <= 164 * 1024;
  };
  using K64 = kvcache::AttendKernel<PagedHeads<kvcache::half>, 64, float, float>;
  using K128 = kvcache::AttendKernel<PagedHeads<kvcache::half>, 128, float, float>;
  using K192 = kvcache::AttendKernel<PagedHeads<kvcache::half>, 192, float, float>;
  using K256 = kvcache::AttendKernel<PagedHeads<kvcache::half>, 256, float, float>;
  CHECK(K64::shared_bytes == 39424);
  CHECK(K128::shared_bytes == 72192);
  CHECK(K256::shared_bytes == 78592);
  CHECK(fits(K192::shared_bytes, K192::blocks_beside));
  CHECK(fits(K64::shared_bytes, K64::blocks_beside));
  CHECK(fits(K128::shared_bytes, K128::blocks_beside));
  CHECK(fits(K256::shared_bytes, K256::blocks_beside));
  CHECK(K256::blocks_beside == 2);
  // 99 KiB a block of sm_86, sm_89 and sm_120.
  CHECK(K256::shared_bytes <= 99 * 1024);
}

TEST_CASE("AttendKernel: every schedule gives the same bits", "[attention][device_attend][threads]")
{
  check_schedules<64, PagedHeads<kvcache::half>, float>();
  check_schedules<128, PagedHeads<kvcache::bfloat16, 128>, kvcache::bfloat16>();
  check_schedules<256, PagedHeads<kvcache::half, 256>, kvcache::half>();
}

TEST_CASE("AttendKernel: random ragged batches equal attention in double precision",
          "[attention][device_attend]")
{
  check_cases<64, PagedHeads<kvcache::half>, float, float>("f16, head_dim 64", 60, tolerance);
  check_cases<128, PagedHeads<kvcache::bfloat16, 128>, kvcache::bfloat16, float>(
    "bf16, head_dim 128", 24, tolerance);
  check_cases<192, PagedHeads<kvcache::half, 192>, kvcache::half, float>(
    "f16, head_dim 192", 8, tolerance);
  check_cases<256, PagedHeads<kvcache::half, 256>, kvcache::half, float>(
    "f16, head_dim 256", 8, tolerance);
}

TEST_CASE(
  "AttendKernel: row orders, head sizes that are no power of two, results in the element, an "
  "engine's own type",
  "[attention][device_attend]")
{
  // Outputs of the size of 1 and logs of sums up to 8, the one rounded to 8 bits.
  check_cases<80,
              PagedHeads<kvcache::half, 80, kvcache::dynamic, kvcache::RowOrder::nhd>,
              kvcache::half,
              kvcache::half>("f16, head_dim 80, rows by token", 12, tolerance);
  check_cases<64, PagedHeads<engine::Bf16>, engine::Bf16, engine::Bf16>(
    "an engine's bf16, head_dim 64", 12, 4e-3 + tolerance);
}

TEST_CASE(
  "AttendKernel: a bias is told the token, the query head and the row of each score, and may leave "
  "rows out",
  "[attention][device_attend]")
{
  check_cases<64, PagedHeads<kvcache::half>, float, float>(
    "f16, head_dim 64, with a bias", 24, tolerance, TestBias{});
}

TEST_CASE("AttendKernel: up to seventy sequences of up to 5,000 rows", "[attention][device_attend]")
{
  std::mt19937_64 random(seed);
  static constexpr std::int32_t pages[] = {1, 7, 16, 64, 256};
  double worst = 0.0;
  std::size_t most = 0;
  Index longest = 0;
  for (std::int32_t const page_tokens : pages) {
    Case c{.geometry = {.layers = 2, .kv_heads = 1, .head_dim = 64, .page_tokens = page_tokens},
           .shape = {.query_heads = 4, .kv_heads = 1},
           .lengths = {},
           .chunks = {},
           .trees = {},
           .blocks = static_cast<std::int32_t>(1 + random() % 40)};
    auto const sequences = page_tokens == 1 ? 70 : static_cast<int>(random() % 71);
    Index left = 9000;  // rows in all
    for (int s = 0; s < sequences; ++s) {
      auto length = static_cast<Index>(5000U >> random() % 13);  // short ones more often
      length = random() % 8 == 0 ? 0 : std::min(length, left);
      Index const chunk = std::min<Index>(length, random() % 10 == 0 && length < 700 ? 20 : 1);
      c.lengths.push_back(length);
      c.chunks.push_back({s, chunk});
      c.trees.emplace_back();
      left -= length;
      longest = std::max(longest, length);
    }
    most = std::max(most, c.lengths.size());
    simt::Options const way{.order = simt::Order::random, .seed = seed};
    std::uint64_t const case_seed = random();
    double const error = error_of<64, PagedHeads<kvcache::half>, float, float>(c, case_seed, way);
    INFO(words(c) << ", seed " << case_seed);
    CHECK(error <= tolerance);
    worst = std::max(worst, error);
  }
  std::printf(
    "device attention: up to %zu sequences, the longest of %d rows, worst error against double: "
    "%.1e\n",
    most,
    longest,
    worst);
  CHECK(most == 70);
  CHECK(longest == 5000);
}

TEST_CASE(
  "AttendKernel: rounding of weights to bfloat16 averages out where many rows carry the sum",
  "[attention][device_attend]")
{
  Case const c{.geometry = {.layers = 2, .kv_heads = 1, .head_dim = 128, .page_tokens = 64},
               .shape = {.query_heads = 4, .kv_heads = 1},
               .lengths = {3000, 700},
               .chunks = {{0, 1}, {1, 5}},
               .trees = {{}, {}},
               .blocks = 3};
  double const error =
    error_of<128, PagedHeads<kvcache::bfloat16, 128>, kvcache::bfloat16, float>(c, seed, {});
  std::printf("device attention: bf16 over 3,000 rows, worst error against double: %.1e\n", error);
  CHECK(error <= tolerance);
  CHECK(error > 1e-5);  // else the second product is never left out, and this test sees nothing
}
