// SPDX-License-Identifier: Apache-2.0
// Rows of ragged batches without pages, and pages of zeros: one launch each, compared with the host row by row.

#include <kvcache/interop/gather_kernel.hpp>
#include <kvcache/view/zero_pages_kernel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "interop/ragged_batch.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache_test;
using kvcache::half;
using kvcache::Index;
using kvcache::RowOrder;
using kvcache::TableSource;

namespace {

constexpr std::uint64_t first_seed = 20261130;
constexpr std::int32_t layer = 1;

/// Rows of K and V, `[rows][heads][dim]` or `[heads][rows][dim]`, and as much behind them that nobody may write.
struct Dense {
  bool heads_first;
  std::int64_t rows;
  std::int32_t heads;
  std::vector<half> k, v;

  Dense(bool first, std::int64_t n, std::int32_t h)
      : heads_first(first),
        rows(n),
        heads(h),
        k(static_cast<std::size_t>(n * h * 8) + 64, half{0x1234}),
        v(k)
  {
  }
  [[nodiscard]] std::int64_t token_stride() const { return heads_first ? 8 : 8 * heads; }
  [[nodiscard]] std::int64_t head_stride() const { return heads_first ? 8 * rows : 8; }
  [[nodiscard]] bool same(Dense const& other) const
  {
    auto const equal = [](std::vector<half> const& a, std::vector<half> const& b) {
      return std::equal(
        a.begin(), a.end(), b.begin(), b.end(), [](half x, half y) { return x.bits == y.bits; });
    };
    return equal(k, other.k) && equal(v, other.v);
  }
};

/// What each row of the pool must hold: a number of its own.
template <class Batch>
void fill_rows(Batch const& batch, Random& random)
{
  auto* const bytes = batch.view().segment.base;
  std::size_t const page0 = batch.footprint().page_bytes();
  bool const dense = batch.geometry().arrangement == kvcache::Arrangement::layer_first;
  for (std::size_t i = dense ? 0 : page0; i + 8 <= batch.arena_bytes(); i += 8) {
    std::uint64_t const x = random.next();
    std::memcpy(bytes + i, &x, 8);
  }
  for (std::int32_t l = 0; dense && l < batch.geometry().layers; ++l) {
    std::memset(batch.view().segment.tile(static_cast<std::uint32_t>(l), 0, 0),
                0,
                batch.footprint().layer_bytes());
  }
}

template <RowOrder Order>
void check_gather(std::uint64_t seed, std::int32_t page_tokens, simt::Options const& schedule)
{
  auto const arrangement =
    seed % 2 == 0 ? kvcache::Arrangement::page_first : kvcache::Arrangement::layer_first;
  CAPTURE(seed, page_tokens, static_cast<int>(arrangement), simt::to_string(schedule));
  RaggedBatch<Order> const batch(page_tokens, seed, arrangement);
  Random random(seed);
  fill_rows(batch, random);
  auto const kv = batch.view();
  TableSource source = TableSource::of(kv);
  source.empty_rows = static_cast<Index>(seed % 3 == 0);
  Index const lines = source.num_lines() + static_cast<Index>(seed % 2);
  std::int64_t all = 0;
  for (Index i = 0; i < lines; ++i) {
    all += source.line(i).length;
  }
  std::int64_t const room =
    random.below(3) == 0 ? all / 2 : all;  // too little memory: the rest is left out
  auto const heads = static_cast<std::int32_t>(random.between(1, 3));
  Dense want(random.below(2) == 0, room, heads);
  Dense got = want;
  std::int64_t first = 0;
  for (Index i = 0; i < lines; ++i) {
    TableSource::Line const line = source.line(i);
    for (Index row = 0; row < line.length && first + row < room; ++row) {
      for (std::int32_t head = 0; head < heads; ++head) {
        std::int64_t const to = (first + row) * want.token_stride() + head * want.head_stride();
        for (std::int32_t d = 0; d < 8; ++d) {
          half k{0};
          half v{0};
          if (line.row != kvcache::nil) {
            auto const tile = kv.tile(layer, head, line.row, row / page_tokens, line.length).raw();
            std::size_t const at = static_cast<std::size_t>(row % page_tokens) * tile.row_elements +
                                   static_cast<std::size_t>(d);
            k = tile.k[at];
            v = tile.v[at];
          }
          want.k[static_cast<std::size_t>(to + d)] = k;
          want.v[static_cast<std::size_t>(to + d)] = v;
        }
      }
    }
    first += line.length;
  }
  kvcache::GatherKernel<typename RaggedBatch<Order>::Layout> const kernel{source,
                                                                          kv,
                                                                          layer,
                                                                          heads,
                                                                          lines,
                                                                          room,
                                                                          got.k.data(),
                                                                          got.v.data(),
                                                                          got.token_stride(),
                                                                          got.head_stride()};
  simt::launch(static_cast<std::int32_t>(random.between(1, 40)),
               static_cast<std::int32_t>(32 * random.between(1, 3)),
               kernel.shared_bytes(32),
               kernel,
               schedule);
  CHECK(got.same(want));
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("Gather kernel: rows of all sequences one after the other, bit for bit",
                       "[interop][gather][simt]",
                       ((RowOrder Order), Order),
                       RowOrder::hnd,
                       RowOrder::planes,
                       RowOrder::nhd)
{
  std::uint64_t seed = first_seed;
  for (simt::Options const& schedule : simt::schedules(first_seed, 2)) {
    for (std::int32_t const page_tokens : {1, 16, 48}) {
      check_gather<Order>(++seed, page_tokens, schedule);
    }
  }
}

TEMPLATE_TEST_CASE_SIG("Zero pages kernel: the pages of the list and no other byte",
                       "[view][simt]",
                       ((RowOrder Order), Order),
                       RowOrder::hnd,
                       RowOrder::nhd)
{
  std::uint64_t seed = first_seed;
  for (simt::Options const& schedule : simt::schedules(first_seed, 2)) {
    CAPTURE(++seed, simt::to_string(schedule));
    auto const arrangement =
      seed % 2 == 0 ? kvcache::Arrangement::page_first : kvcache::Arrangement::layer_first;
    RaggedBatch<Order> const batch(16, seed, arrangement);
    Random random(seed);
    fill_rows(batch, random);
    auto const kv = batch.view();
    std::uint32_t const n = kv.segment.num_pages;
    std::vector<std::int32_t> pages{
      0, -1, static_cast<std::int32_t>(n), 0x7fffffff};  // none of them a page to fill
    for (std::uint32_t page = 1; page + 1 < n; ++page) {
      if (random.below(8) == 0) {
        pages.push_back(static_cast<std::int32_t>(page));
      }
    }
    Index const listed = static_cast<Index>(pages.size());
    pages.push_back(static_cast<std::int32_t>(n - 1));  // behind the count
    std::vector<std::byte> want(kv.segment.base, kv.segment.base + batch.arena_bytes());
    for (Index i = 4; i < listed; ++i) {
      for (std::uint32_t l = 0; l < 2; ++l) {
        auto const page = static_cast<std::uint32_t>(pages[static_cast<std::size_t>(i)]);
        std::memset(want.data() + (kv.segment.tile(l, 0, page) - kv.segment.base),
                    0,
                    batch.footprint().layer_bytes());
      }
    }
    Index const count =
      random.below(2) == 0 ? listed : 0x7fffffff;  // cut to what there is room for
    kvcache::ZeroPagesKernel const kernel{
      kv.segment, 2, batch.footprint().layer_bytes(), pages.data(), &count, listed};
    simt::launch(static_cast<std::int32_t>(random.between(1, 9)), 64, 0, kernel, schedule);
    CHECK(std::memcmp(kv.segment.base, want.data(), want.size()) == 0);
  }
}
