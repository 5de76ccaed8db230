// SPDX-License-Identifier: Apache-2.0
// What must never reach a result of the device's attention, and what it must never read: rows past the end, rows before a
// window, table entries that are no pages. Under AddressSanitizer a read outside the pool or the table ends the test.

#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention/attention_checks.hpp"
#include "attention/device_checks.hpp"
#include "attention/tree_checks.hpp"
#include "support/catch.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using Layout = kvcache::PagedHeads<kvcache::half>;

namespace {

constexpr std::uint64_t seed = 20261130;

Attended run_half(PagedPool<Layout>& pool, AttentionShape shape, std::int32_t blocks)
{
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  return run_on_device<64, float, float>(pool, shape, 0, q, limits_of(pool, blocks));
}

/// Writes `k` and `v` over every row of the sequence that `token` does not see.
template <class Any>
int spoil_unseen(Any& pool, AttentionShape const& shape, Index token, float k, float v)
{
  int rows = 0;
  for (Index i = 0; i < pool.length_of(token); ++i) {
    for (std::int32_t h = 0; h < shape.kv_heads; ++h) {
      if (!model_sees(pool, shape.window, {}, token, i)) {
        pool.put(token, 0, h, i, k, v);
        ++rows;
      }
    }
  }
  return rows;
}

/// Rows that a token does not see, in a chunk, in a window and in a tree of drafts, hold what is no number; others of its tile
/// see them.
template <class Type>
struct UnseenRows {
  static void check(Index tokens, Index window, bool tree, std::int32_t blocks)
  {
    using L = typename Type::Layout;
    constexpr std::int32_t dim = Type::dim;
    float const nan = std::numeric_limits<float>::quiet_NaN();
    float const infinity = std::numeric_limits<float>::infinity();
    AttentionShape const shape{.query_heads = 6, .kv_heads = 2, .window = window};
    Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = dim, .page_tokens = 7};
    std::mt19937_64 random(seed);
    Parents const parents = random_tree(random, static_cast<std::size_t>(tokens), false);
    float const pairs[][2] = {{nan, nan}, {infinity, -infinity}};
    for (Index const token : {Index{0}, tokens / 2}) {
      for (auto const& [k, v] : pairs) {
        auto const run_with = [&](float of_k, float of_v) {
          PagedPool<L> pool(geometry, {70 + tokens}, {{0, tokens}}, Poison::nan, seed);
          if (tree) {
            pool.plant(0, parents);
          }
          CHECK(spoil_unseen(pool, shape, token, of_k, of_v) > 0);
          std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
          return run_on_device<dim, float, float>(pool, shape, 0, q, limits_of(pool, blocks));
        };
        Attended const want = run_with(0.25F, 0.5F);
        Attended const got = run_with(k, v);
        INFO("head size " << dim << ", tokens " << tokens << ", window " << window << ", tree "
                          << tree << ", blocks " << blocks << ", token " << token << ", K " << k
                          << ", V " << v);
        CHECK(same_token(got, want, token, shape, dim));
        CHECK(std::none_of(got.out.begin() + token * 6 * dim,
                           got.out.begin() + (token + 1) * 6 * dim,
                           [](float x) { return std::isnan(x); }));
        // Those who see them get no number.
        CHECK(std::any_of(got.out.begin(), got.out.end(), [](float x) { return std::isnan(x); }));
      }
    }
  }
};

template <class L, std::int32_t Dim>
struct Rows {
  using Layout = L;
  static constexpr std::int32_t dim = Dim;
};

}  // namespace

TEMPLATE_TEST_CASE(
  "AttendKernel: nothing of a row that a token does not see reaches it, whatever K and V",
  "[attention][device_poison][numbers]",
  (Rows<kvcache::PagedHeads<kvcache::half>, 64>),
  (Rows<kvcache::PagedHeads<kvcache::bfloat16>, 64>),
  (Rows<kvcache::PagedHeads<kvcache::bfloat16, 128>, 128>),
  (Rows<
    kvcache::PagedHeads<kvcache::half, kvcache::dynamic, kvcache::dynamic, kvcache::RowOrder::nhd>,
    192>))
{
  for (std::int32_t const blocks : {1, 4}) {
    UnseenRows<TestType>::check(3, 0, false, blocks);  // a narrow item
    UnseenRows<TestType>::check(5, 20, true, blocks);
    UnseenRows<TestType>::check(11, 0, true, blocks);  // a wide one
    UnseenRows<TestType>::check(11, 20, false, blocks);
  }
}

TEST_CASE("AttendKernel: what lies in rows past the end has no say in the result",
          "[attention][device_poison]")
{
  AttentionShape const shape{.query_heads = 8, .kv_heads = 2};
  for (std::int32_t const page_tokens : {1, 7, 16, 256}) {
    Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = page_tokens};
    std::vector<Attended> got;
    for (Poison const poison : {Poison::zeros, Poison::nan, Poison::infinity, Poison::ones}) {
      PagedPool<Layout> pool(geometry,
                             {1, 63, 65, 130, 20},
                             {{0, 1}, {1, 1}, {2, 1}, {3, 9}, {4, 20}, {-1, 2}},
                             poison,
                             seed);
      got.push_back(run_half(pool, shape, 5));
      INFO("page_tokens " << page_tokens << ", " << name(poison));
      CHECK(same_bits(got.back(), got.front()));
    }
  }
}

TEST_CASE("AttendKernel: rows before a window are not even looked up", "[attention][device_poison]")
{
  AttentionShape const shape{.query_heads = 8, .kv_heads = 2, .window = 20};
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 1};
  for (Index const tokens : {1, 9}) {
    PagedPool<Layout> pool(geometry, {150}, {{0, tokens}}, Poison::nan, seed);
    Attended const want = run_half(pool, shape, 3);
    for (Index i = 0; i < 150 - tokens - 19; ++i) {
      pool.put(0,
               0,
               0,
               i,
               std::numeric_limits<float>::quiet_NaN(),
               std::numeric_limits<float>::infinity());
      pool.put(0,
               0,
               1,
               i,
               std::numeric_limits<float>::infinity(),
               std::numeric_limits<float>::quiet_NaN());
      pool.set_entry(0, static_cast<std::uint32_t>(i), -1);
    }
    std::int32_t const* const table = pool.view().segment.table;
    std::size_t const before = static_cast<std::size_t>(150 - tokens - 19) * sizeof *table;
    simt::forbid(table, before);
    CHECK(same_bits(run_half(pool, shape, 3), want));
    simt::permit(table, before);
  }
}

TEST_CASE("AttendKernel: entries that are no pages of the pool read as zeros",
          "[attention][device_poison]")
{
  AttentionShape const shape{.query_heads = 4, .kv_heads = 1};
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16};
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20; ++i) {
    std::uint64_t const case_seed = random();
    Index const tokens = i % 2 == 0 ? 1 : 7;
    PagedPool<Layout> pool(
      geometry, {150, 33, 150}, {{0, tokens}, {1, 1}, {2, 1}}, Poison::nan, case_seed);
    for (std::uint32_t p = 0; p < 10; ++p) {
      if (random() % 2 == 0) {
        continue;
      }
      std::int32_t const bad[] = {-1,
                                  0,
                                  std::numeric_limits<std::int32_t>::min(),
                                  std::numeric_limits<std::int32_t>::max(),
                                  1000};
      pool.set_entry(0, p, bad[random() % 5]);
      for (Index r = 0; r < 16 && static_cast<Index>(p) * 16 + r < 150; ++r) {
        pool.forget(0, 0, 0, static_cast<Index>(p) * 16 + r);
      }
    }
    pool.share(2, 0, 9);
    std::vector<float> const q = random_queries(query_floats(pool, shape), case_seed);
    for (Index const shared_rows : {0, 64}) {
      INFO("seed " << case_seed << ", shared_rows " << shared_rows);
      Attended const got =
        run_on_device<64, float, float>(pool, shape, 0, q, limits_of(pool, 4, shared_rows));
      CHECK(error_against_double(pool, shape, 0, q, got) <= 1e-3);
    }
  }
}

TEST_CASE("AttendKernel: a step smaller than its limits leaves the rest of the outputs alone",
          "[attention][device_poison]")
{
  AttentionShape const shape{.query_heads = 4, .kv_heads = 1};
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16};
  PagedPool<Layout> pool(geometry, {150, 33, 80}, {{0, 1}, {1, 3}, {2, 1}}, Poison::nan, seed);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  kvcache::DeviceLimits const limits = limits_of(pool, 4);
  Attended const all = run_on_device<64, float, float>(pool, shape, 0, q, limits);
  for (Index const chunks : {2, 0}) {
    pool.set_chunks(chunks);  // as a graph made for three runs a smaller step
    auto const rows = static_cast<std::size_t>(pool.num_tokens() * shape.query_heads);
    REQUIRE(rows == (chunks == 2 ? 16 : 0));
    Attended got = run_on_device<64, float, float>(pool, shape, 0, q, limits);
    CHECK(std::all_of(got.out.begin() + static_cast<std::ptrdiff_t>(rows * 64),
                      got.out.end(),
                      [](float x) { return x == 77.0F; }));
    CHECK(std::all_of(got.lse.begin() + static_cast<std::ptrdiff_t>(rows),
                      got.lse.end(),
                      [](float x) { return x == 77.0F; }));
    got.out.resize(rows * 64);
    Attended want = all;
    want.out.resize(rows * 64);
    CHECK(largest_difference(got.out, want.out) <= 1e-3);  // the shares' borders moved
  }
}

TEST_CASE("AttendKernel: tokens beyond a work's limits write neither outputs nor behind the work",
          "[attention][device_poison]")
{
  AttentionShape const shape{.query_heads = 4, .kv_heads = 1};
  Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16};
  std::vector<Index> const lengths(8, 100);
  std::vector<StepChunk> chunks;
  for (int s = 0; s < 8; ++s) {
    chunks.push_back({s, 1});
  }
  PagedPool<Layout> pool(geometry, lengths, chunks, Poison::nan, seed);
  for (std::size_t s = 1; s < 8; ++s) {
    pool.share(s, 0, 4);
  }
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  for (Index const tokens : {1, 3}) {
    kvcache::DeviceLimits limits = limits_of(pool, 3, 64);
    limits.tokens = tokens;
    WorkMemory const memory(shape, limits);
    plan_on_device(pool, memory.work(), {});
    INFO("tokens " << tokens);
    REQUIRE(memory.work().shared.counts->rows == (tokens == 1 ? 0 : 3 * 4));
    Attended got = run_on_device<64, float, float>(pool, shape, 0, q, limits);
    auto const rows = static_cast<std::ptrdiff_t>(tokens * shape.query_heads);
    auto const unset = [](float x) { return x == 77.0F; };
    CHECK(std::all_of(got.out.begin() + rows * 64, got.out.end(), unset));
    CHECK(std::all_of(got.lse.begin() + rows, got.lse.end(), unset));
    pool.set_chunks(tokens);  // of these the work promises results
    got.out.resize(query_floats(pool, shape));
    got.lse.resize(got.out.size() / 64);
    CHECK(error_against_double(pool, shape, 0, q, got) <= 1e-3);
    pool.set_chunks(8);
  }
}
