// SPDX-License-Identifier: Apache-2.0
// What a plan covers, refuses and promises of bits.

#include <kvcache/core/dtype.hpp>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/catch.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionItem;
using kvcache::AttentionOptions;
using kvcache::AttentionPlan;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::InstructionSet;
using kvcache::PagedHeads;

namespace {

constexpr std::uint64_t seed = 7;
using Layout = PagedHeads<kvcache::bfloat16>;
using Pool = PagedPool<Layout>;

/// A step of mixed chunks: prefill over a cached prefix, decodes, a draft, padding.
struct Mixed {
  std::vector<Index> lengths{700, 33, 1, 1500, 260};
  std::vector<StepChunk> chunks{{0, 50}, {1, 33}, {2, 1}, {3, 1}, {4, 5}, {-1, 2}};
};

constexpr Index longest = 2048;

/// How often each (token, query head, KV row) is met.
std::vector<std::uint8_t> met(AttentionPlan const& plan, Index tokens)
{
  std::vector<std::uint8_t> out(static_cast<std::size_t>(tokens * plan.shape().query_heads) *
                                longest);
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    AttentionItem const& item = plan.item(i);
    CHECK(item.begin % AttentionOptions::rows_per_block == 0);
    for (std::size_t r = 0; r < item.rows(); ++r) {
      std::size_t const row = plan.output_row(item, r);
      kvcache::Sight const sight = plan.sight(static_cast<Index>(row) / plan.shape().query_heads);
      for (Index at = std::max(item.begin, sight.first); at < std::min(item.end, sight.last);
           ++at) {
        ++out[row * longest + static_cast<std::size_t>(at)];
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("AttentionPlan: meets each token, query head and visible row exactly once",
          "[attention][plan]")
{
  Mixed const mixed;
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 128, .page_tokens = 16};
  Pool pool(geometry, mixed.lengths, mixed.chunks, Poison::nan, seed);
  for (std::int32_t const group : {1, 3, 71}) {
    AttentionShape const shape{.query_heads = 2 * group, .kv_heads = 2};
    std::vector<std::uint8_t> expected;
    for (Index token = 0; token < pool.num_tokens(); ++token) {
      for (std::int32_t head = 0; head < shape.query_heads; ++head) {
        expected.resize(expected.size() + longest);
        std::fill_n(expected.end() - longest, pool.sees(token), std::uint8_t{1});
      }
    }
    for (std::int32_t const workers : {1, 2, 3, 7, 64}) {
      for (Index const split : {0, 32, 256}) {
        INFO("group " << group << ", workers " << workers << ", split_rows " << split);
        AttentionPlan plan;
        REQUIRE(
          plan.make(pool.view(), shape, {.workers = workers, .split_rows = split}).has_value());
        bool const exact = met(plan, pool.num_tokens()) == expected;
        CHECK(exact);
        CHECK((workers > 1 || split > 0 || plan.num_merges() == 0));
        CHECK((plan.scratch_floats() == 0) == (plan.num_merges() == 0));
      }
    }
  }
}

TEST_CASE("AttentionPlan: a long decode is cut into equal shares for the workers",
          "[attention][plan]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 8, .head_dim = 128, .page_tokens = 16};
  Pool pool(geometry, {4096}, {{0, 1}}, Poison::zeros, seed);
  AttentionPlan plan;
  REQUIRE(plan.make(pool.view(), {.query_heads = 32, .kv_heads = 8}, {.workers = 2}).has_value());
  REQUIRE(plan.num_items() % 2 == 0);
  CHECK(plan.num_merges() == 1);
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    CHECK(plan.item(i).end - plan.item(i).begin == plan.item(0).end);
    CHECK(plan.item(i).heads == 8);  // the heads of a page lie side by side
  }
}

TEST_CASE("attend: any order of items and any threads give the same bits", "[attention][plan]")
{
  Mixed const mixed;
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  Pool pool(geometry, mixed.lengths, mixed.chunks, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  std::mt19937_64 random(seed);
  Path const path = paths().back();
  AttentionPlan plan;
  REQUIRE(
    plan.make(pool.view(), shape, {.workers = 3, .split_rows = 0, .instructions = set_of(path)})
      .has_value());
  REQUIRE(plan.num_merges() > 0);
  Attended const right = run_plan(pool, plan, 0, q, path);
  std::vector<std::size_t> order(plan.num_items());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int i = 0; i < 5; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    CHECK(same_bits(right, run_plan(pool, plan, 0, q, path, order)));
  }
  Attended threaded{std::vector<float>(q.size()), std::vector<float>(right.lse.size())};
  std::vector<float> scratch(plan.scratch_floats());
  kvcache::AttentionTensors const io{.q = q.data(),
                                     .out = threaded.out.data(),
                                     .lse = threaded.lse.data(),
                                     .scratch = scratch.data()};
  auto const view = pool.view();
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < plan.num_items(); i = next++) {
        kvcache::attend(view, plan, 0, io, i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < plan.num_merges(); ++i) {
    kvcache::merge(plan, io, i);
  }
  CHECK(same_bits(right, threaded));
}

TEST_CASE("attend: workers change the last bits only, and nothing with split_rows",
          "[attention][plan]")
{
  Mixed const mixed;
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 8, .kv_heads = 2};
  Pool pool(geometry, mixed.lengths, mixed.chunks, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  for (Path const path : paths()) {
    Attended const one = run(pool, shape, {}, 0, q, path);
    Attended const fixed = run(pool, shape, {.workers = 1, .split_rows = 256}, 0, q, path);
    for (std::int32_t const workers : {2, 3, 7}) {
      INFO(workers << " workers, " << name(path));
      Attended const got = run(pool, shape, {.workers = workers}, 0, q, path);
      CHECK(largest_difference(one.out, got.out) <= 1e-6);
      CHECK(
        same_bits(fixed, run(pool, shape, {.workers = workers, .split_rows = 256}, 0, q, path)));
    }
  }
}

TEST_CASE("attend: a row has the same bits in any chunk, batch and page size", "[attention][plan]")
{
  constexpr Index length = 150;
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  auto const geometry = [](std::int32_t page_tokens) {
    return Geometry{.layers = 1, .kv_heads = 2, .head_dim = 72, .page_tokens = page_tokens};
  };
  Pool whole(geometry(16), {length}, {{0, length}}, Poison::nan, seed);
  std::size_t const row = 6 * 72;
  std::vector<float> const q = random_queries(query_floats(whole, shape), seed);
  for (AttentionOptions const options :
       {AttentionOptions{}, AttentionOptions{.workers = 3, .split_rows = 96}}) {
    for (Path const path : paths()) {
      std::vector<float> const right = run(whole, shape, options, 0, q, path).out;
      for (Index const tokens : {1, 7, 16, 64}) {
        for (std::int32_t const page_tokens : {1, 4, 16, 256}) {
          // The last `tokens` rows alone, beside a stranger.
          Pool part(geometry(page_tokens), {length, 90}, {{0, tokens}, {1, 3}}, Poison::ones, seed);
          std::vector<float> some(q.end() - static_cast<std::ptrdiff_t>(row) * tokens, q.end());
          some.resize(query_floats(part, shape), 0.5F);
          std::vector<float> const got = run(part, shape, options, 0, some, path).out;
          INFO(tokens << " tokens, pages of " << page_tokens << ", " << name(path) << ", workers "
                      << options.workers);
          CHECK(std::equal(
            right.end() - static_cast<std::ptrdiff_t>(row) * tokens, right.end(), got.begin()));
        }
      }
    }
  }
}

TEST_CASE("attend: the output may overwrite the queries, and lse is optional", "[attention][plan]")
{
  Mixed const mixed;
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 8, .kv_heads = 2};
  Pool pool(geometry, mixed.lengths, mixed.chunks, Poison::nan, seed);
  std::vector<float> q = random_queries(query_floats(pool, shape), seed);
  for (std::int32_t const workers : {1, 4}) {
    AttentionPlan plan;
    REQUIRE(plan.make(pool.view(), shape, {.workers = workers}).has_value());
    Attended const right = run_plan(pool, plan, 0, q, paths().back());
    std::vector<float> both = q;
    std::vector<float> scratch(plan.scratch_floats());
    kvcache::attend_all(
      pool.view(),
      plan,
      0,
      {.q = both.data(), .out = both.data(), .lse = nullptr, .scratch = scratch.data()});
    CHECK(both == right.out);
  }
}

TEST_CASE("AttentionPlan: refuses what cannot work and names the field", "[attention][plan]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 4, .head_dim = 64, .page_tokens = 16};
  Pool pool(geometry, {20}, {{0, 1}}, Poison::zeros, seed);
  auto const field = [&](AttentionShape shape, AttentionOptions options = {}) {
    AttentionPlan plan;
    REQUIRE(plan.make(pool.view(), {.query_heads = 4, .kv_heads = 4}).has_value());
    auto const made = plan.make(pool.view(), shape, options);
    REQUIRE_FALSE(made.has_value());
    CHECK(plan.num_items() == 0);
    return std::string(made.error().field);
  };
  AttentionShape const good{.query_heads = 8, .kv_heads = 4};
  CHECK(field({.query_heads = 30, .kv_heads = 4}) == "query_heads");
  CHECK(field({.query_heads = 0, .kv_heads = 4}) == "query_heads");
  CHECK(field({.query_heads = 8, .kv_heads = 0}) == "kv_heads");
  CHECK(field({.query_heads = 8, .kv_heads = -1}) == "kv_heads");
  CHECK(field({.query_heads = 8, .kv_heads = 4, .scale = -1.0F}) == "scale");
  CHECK(
    field({.query_heads = 8, .kv_heads = 4, .scale = std::numeric_limits<float>::quiet_NaN()}) ==
    "scale");
  CHECK(field(good, {.workers = 0}) == "workers");
  CHECK(field(good, {.workers = 1, .split_rows = 16}) == "split_rows");
  CHECK(field(good, {.workers = 1, .split_rows = -32}) == "split_rows");
  if (!kvcache::supported(InstructionSet::avx512)) {
    CHECK(field(good, {.workers = 1, .split_rows = 0, .instructions = InstructionSet::avx512}) ==
          "instructions");
  }
}

TEST_CASE("AttentionPlan: names the instruction set it runs with", "[attention][plan]")
{
  Geometry const geometry{.layers = 1, .kv_heads = 4, .head_dim = 64, .page_tokens = 16};
  Pool pool(geometry, {20}, {{0, 1}}, Poison::zeros, seed);
  AttentionPlan plan;
  REQUIRE(plan.make(pool.view(), {.query_heads = 4, .kv_heads = 4}).has_value());
  CHECK(plan.instructions() == kvcache::best_instruction_set());
  CHECK(plan.instructions() != InstructionSet::best);
  CHECK(kvcache::supported(plan.instructions()));
  CHECK(kvcache::supported(InstructionSet::portable));
  CHECK(std::string(name(InstructionSet::avx2)) == "avx2");
}
