// SPDX-License-Identifier: Apache-2.0
// Kernels of tables, rows and pages, small enough for a thread each: ThreadSanitizer reads them here. What they write is tested
// in tests/interop and tests/view.

#include <kvcache/interop/gather_kernel.hpp>
#include <kvcache/interop/table_kernels.hpp>
#include <kvcache/view/append_kernel.hpp>
#include <kvcache/view/zero_pages_kernel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "interop/ragged_batch.hpp"
#include "interop/table_memory.hpp"
#include "support/catch.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache_test;
using kvcache::Index;

namespace {

constexpr std::uint64_t first_seed = 20261130;
using Batch = RaggedBatch<kvcache::RowOrder::hnd, kvcache::half, 16>;

}  // namespace

TEST_CASE("Shipped kernels: page lists of many lines race for nothing", "[simt][tables]")
{
  Batch const batch(64, first_seed);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < 150; ++i) {
    rows.push_back(i * 37 % Batch::table_rows);
  }
  auto const source =
    kvcache::TableSource::of(batch.view(), rows.data(), static_cast<Index>(rows.size()));
  std::size_t const room = rows.size() * static_cast<std::size_t>(source.most_pages());
  std::vector<std::int32_t> indptr(151), indices(room), last(150);
  std::vector<std::int32_t> want_indptr(151), want_indices(room), want_last(150);
  auto const kernel =
    kvcache::table_kernel({.indptr = indptr, .indices = indices, .last_page_len = last}, source);
  REQUIRE(kernel);
  REQUIRE(kvcache::fill(
    {.indptr = want_indptr, .indices = want_indices, .last_page_len = want_last}, source));
  for (simt::Options const& schedule : simt::schedules()) {
    CAPTURE(simt::to_string(schedule));
    simt::launch(2, 64, kernel->shared_bytes(64), *kernel, schedule);
    CHECK(indptr == want_indptr);
    CHECK(indices == want_indices);
    CHECK(last == want_last);
  }
}

TEST_CASE("Shipped kernels: heads wait for the token's angles", "[simt][append]")
{
  Batch const batch(16, first_seed + 4);
  auto const kv = batch.view();
  Index const tokens = kv.num_tokens();
  REQUIRE(tokens > 2);
  std::vector<float> const ones(static_cast<std::size_t>(tokens) * 48, 1.0F);
  kvcache::AppendKernel<Batch::Layout, float> const kernel{
    .kv = kv,
    .layer = 0,
    .k = {ones.data(), 48, 3},
    .v = {ones.data(), 48, 3},
    .rope = kvcache::Rope::of(kvcache::RopeStyle::halves, 16, 10000.0F)};
  for (simt::Options const& schedule : simt::schedules()) {
    CAPTURE(simt::to_string(schedule));
    simt::launch(2, 64, kernel.shared_bytes(64), kernel, schedule);
    std::size_t wrong = 0;
    for (Index token = 0; token < tokens; ++token) {
      for (std::int32_t head = 0; head < 3; ++head) {
        kvcache::half const* const k = kv.row_of(0, head, token);
        REQUIRE(k != nullptr);
        for (std::int32_t pair = 0; pair < 8; ++pair) {
          auto const turn = kernel.rope.turn(kv.position(token), pair);
          auto const want = kvcache::ElementTraits<kvcache::half>::from_float(turn.cos - turn.sin);
          wrong += k[pair].bits == want.bits ? 0U : 1U;
        }
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("Shipped kernels: tables, slots, rows and zeros are each written by one thread",
          "[simt][tables]")
{
  Batch const batch(16, first_seed + 9);
  auto const kv = batch.view();
  auto const source = kvcache::TableSource::of(kv);
  auto const lines = static_cast<std::size_t>(source.num_lines());
  auto const tokens = static_cast<std::size_t>(kv.num_tokens());
  REQUIRE(lines > 1);
  std::int64_t rows = 0;
  for (Index i = 0; i < source.num_lines(); ++i) {
    rows += source.line(i).length;
  }
  for (simt::Options const& schedule : simt::schedules()) {
    CAPTURE(simt::to_string(schedule));
    auto const run = [&](auto const& kernel) {
      simt::launch(2, 64, kernel.shared_bytes(64), kernel, schedule);
    };
    CHECK(by_kernels(source, lines, tokens, 2, 64, schedule) == by_host(source, lines, tokens));

    std::vector<kvcache::half> k(static_cast<std::size_t>(rows) * 16, kvcache::half{1});
    std::vector<kvcache::half> v = k;
    run(kvcache::GatherKernel<Batch::Layout>{
      source, kv, 0, 1, source.num_lines(), rows, k.data(), v.data(), 16, 16});
    std::size_t at = 0;
    std::size_t wrong = 0;
    for (Index i = 0; i < source.num_lines(); ++i) {
      auto const line = source.line(i);
      for (Index row = 0; row < line.length; ++row) {
        auto const tile = kv.tile(0, 0, line.row, row / 16, line.length).raw();
        for (std::size_t d = 0; d < 16; ++d, ++at) {
          std::size_t const from = static_cast<std::size_t>(row % 16) * tile.row_elements + d;
          wrong += k[at].bits == tile.k[from].bits && v[at].bits == tile.v[from].bits ? 0U : 1U;
        }
      }
    }
    CHECK(at == k.size());
    CHECK(wrong == 0);

    std::uint32_t const page = kv.segment.num_pages - 1;
    std::size_t const bytes = batch.footprint().layer_bytes();
    std::int32_t const list[] = {static_cast<std::int32_t>(page)};
    Index const count = 1;
    std::fill_n(kv.segment.tile(1, 0, page), bytes, std::byte{9});
    run(kvcache::ZeroPagesKernel{kv.segment, 2, bytes, list, &count, 1});
    CHECK(std::all_of(kv.segment.tile(1, 0, page),
                      kv.segment.tile(1, 0, page) + bytes,
                      [](std::byte b) { return b == std::byte{0}; }));
  }
}
