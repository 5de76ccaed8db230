// SPDX-License-Identifier: Apache-2.0

#include <kvcache/interop/dense.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "interop/hand_batch.hpp"
#include "support/catch.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"

using namespace kvcache_test;
using kvcache::Index;

namespace {

constexpr std::uint64_t seed = 20261130;

/// A sequence of `rows` rows in table row 1, in random pages full of random bytes.
template <class Layout>
kvcache::Pool<Layout> random_pool(kvcache::Geometry const& geometry, Index rows)
{
  auto const count =
    static_cast<kvcache::PageCount>((rows + geometry.page_tokens - 1) / geometry.page_tokens);
  kvcache::PageCount const pages = count + 2;
  auto pool = kvcache::Pool<Layout>::create(geometry, pool_sizes(geometry, pages, 2, 8));
  REQUIRE(pool);
  fill(*pool, seed, pages);
  Random random(seed);
  kvcache::Plan plan;
  plan.tables.push_back({kvcache::RowId{1}, 0, count, 0});
  for (kvcache::PageCount i = 0; i < pages; ++i) {
    plan.ids.push_back(kvcache::PageId{i + 1});
    std::swap(plan.ids[i], plan.ids[random.below(i + 1)]);
  }
  plan.ids.resize(count);
  REQUIRE(pool->apply(kvcache_test::in_order(plan)));
  return std::move(*pool);
}

/// Elements in front of the first that lies `offset` bytes behind a multiple of 64.
template <class T>
std::size_t in_front(std::vector<T> const& of, std::size_t offset)
{
  auto const at = reinterpret_cast<std::uintptr_t>(of.data());
  return (64 + offset - at % 64) % 64 / sizeof(T);
}

/// Elements that are not `value`.
template <class T>
std::size_t count_others(std::span<T const> of, T value)
{
  return static_cast<std::size_t>(std::count_if(of.begin(), of.end(), [&](T const& element) {
    return std::memcmp(&element, &value, sizeof(T)) != 0;
  }));
}

/// Elements that differ from what the view's tiles say, where the rest of the memory must be as it was. K and V lie
/// `offset` bytes behind the begin of a cache line.
template <class Layout>
std::size_t count_wrong(kvcache::Pool<Layout> const& pool,
                        kvcache::Geometry const& g,
                        std::int32_t layer,
                        Index first,
                        Index rows,
                        std::size_t offset = 16)
{
  using T = typename Layout::element;
  std::size_t const each = static_cast<std::size_t>(g.kv_heads * rows * g.head_dim);
  T const untouched = kvcache::ElementTraits<T>::from_float(-77.0F);
  std::vector<T> all_k(each + 64, untouched);
  std::vector<T> all_v(each + 64, untouched);
  std::size_t const front_k = in_front(all_k, offset);
  std::size_t const front_v = in_front(all_v, offset);
  std::span<T> const k = std::span(all_k).subspan(front_k, each);
  std::span<T> const v = std::span(all_v).subspan(front_v, each);
  auto const kv = pool.view();
  REQUIRE(kvcache::fill<Layout>(
    {.k = k, .v = v, .first = first, .rows = rows}, kv, layer, g.kv_heads, 1));
  std::size_t wrong = 0;
  std::size_t at = 0;
  for (std::int32_t head = 0; head < g.kv_heads; ++head) {
    for (Index i = first; i < first + rows; ++i) {
      auto const tile = kv.tile(layer, head, 1, i / g.page_tokens, first + rows).raw();
      std::size_t const inside = static_cast<std::size_t>(i % g.page_tokens) * tile.row_elements;
      auto const bytes = static_cast<std::size_t>(g.head_dim) * sizeof(T);
      bool const same = std::memcmp(&k[at], tile.k + inside, bytes) == 0 &&
                        std::memcmp(&v[at], tile.v + inside, bytes) == 0;
      wrong += same ? 0U : 1U;
      at += static_cast<std::size_t>(g.head_dim);
    }
  }
  for (auto const& [all, front] : {std::pair(&all_k, front_k), std::pair(&all_v, front_v)}) {
    std::span<T const> const of(*all);
    wrong += count_others(of.first(front), untouched);
    wrong += count_others(of.subspan(front + each), untouched);
  }
  return wrong;
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("DenseRows: any rows of a layer lie one after the other",
                       "[interop][dense]",
                       ((kvcache::RowOrder Order), Order),
                       kvcache::RowOrder::hnd,
                       kvcache::RowOrder::planes,
                       kvcache::RowOrder::nhd)
{
  CAPTURE(seed);
  for (std::int32_t const page_tokens : {1, 5, 16}) {
    kvcache::Geometry const g{
      .layers = 3, .kv_heads = 2, .head_dim = 24, .page_tokens = page_tokens};
    auto const pool =
      random_pool<kvcache::PagedHeads<kvcache::half, kvcache::dynamic, kvcache::dynamic, Order>>(
        g, 70);
    for (auto const& [first, rows] : std::vector<std::pair<Index, Index>>{
           {0, 70}, {0, 0}, {3, 1}, {15, 2}, {16, 16}, {4, 33}, {69, 1}}) {
      CAPTURE(page_tokens, first, rows);
      for (std::int32_t layer = 0; layer < g.layers; ++layer) {
        CHECK(count_wrong(pool, g, layer, first, rows) == 0);
      }
    }
  }
}

TEST_CASE("DenseRows: more than a cache keeps", "[interop][dense]")
{
  // Tiles go eight at a time where their targets begin cache lines: with 3 heads, 6 a page, some wait for the next.
  for (std::int32_t const kv_heads : {1, 3, 4}) {
    kvcache::Geometry const g{
      .layers = 1, .kv_heads = kv_heads, .head_dim = 128, .page_tokens = 16};
    Index const rows = 12000 / kv_heads;
    auto const pool = random_pool<kvcache::PagedHeads<float, 128, 16>>(g, rows);
    auto const by_token =
      random_pool<kvcache::PagedHeads<float, 128, 16, kvcache::RowOrder::nhd>>(g, rows);
    for (std::size_t const offset : {std::size_t{0}, std::size_t{4}}) {
      CAPTURE(kv_heads, offset);
      CHECK(count_wrong(pool, g, 0, 0, rows, offset) == 0);
      CHECK(count_wrong(pool, g, 0, 7, rows - 100, offset) == 0);
      CHECK(count_wrong(by_token, g, 0, 7, rows - 100, offset) == 0);
    }
  }
}

TEST_CASE("DenseRows: refused are spans that are too small and rows that are not there",
          "[interop][dense]")
{
  HandBatch const batch;
  std::vector<float> k(3 * 11 * 8, -7.0F);
  std::vector<float> v(3 * 11 * 8, -7.0F);
  auto const filled =
    [&](std::size_t keys, std::size_t values, Index first, Index rows, std::int32_t heads = 3) {
      return refusal(kvcache::fill<HandBatch::Layout>({.k = std::span(k).first(keys),
                                                       .v = std::span(v).first(values),
                                                       .first = first,
                                                       .rows = rows},
                                                      batch.pool.view(),
                                                      1,
                                                      heads,
                                                      2));
    };
  CHECK(filled(263, 264, 0, 11) == "k = 263 (bad configuration): must have at least 264");
  CHECK(filled(264, 0, 0, 11) == "v = 0 (bad configuration): must have at least 264");
  CHECK(filled(264, 264, -1, 3) ==
        "first = -1 (bad configuration): must lie in a table row, which has rows 0 to 36");
  CHECK(filled(264, 264, 0x7fffffff, 2) ==
        "rows = 2 (bad configuration): must lie in a table row, which has rows 0 to 36");
  CHECK(filled(264, 264, 0, -1).substr(0, 9) == "rows = -1");
  CHECK(filled(264, 264, 0, 11, 0) == "heads = 0 (bad configuration): must be at least 1");
  CHECK(k == std::vector<float>(264, -7.0F));
  CHECK(v == std::vector<float>(264, -7.0F));
  CHECK(filled(264, 264, 0, 11).empty());
}
