// SPDX-License-Identifier: Apache-2.0
// The kernels that share memory between threads, small enough for a thread each: ThreadSanitizer reads them here. What
// they write is tested in tests/interop and tests/view.

#include <kvcache/interop/table_kernels.hpp>
#include <kvcache/view/append_kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interop/ragged_batch.hpp"
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
