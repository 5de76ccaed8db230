// SPDX-License-Identifier: Apache-2.0
// Tables and lengths full of any numbers: no kernel touches a byte outside the pool, and the page of zeros stays so. The
// pool lies between pages without access; under AddressSanitizer its slack is watched too.
//
// The rule, of `SegmentView` and `BatchView`: what reads takes an entry that is no page of the pool for the page of zeros;
// what writes skips it, and page 0 as well.

#include <kvcache/interop/gather_kernel.hpp>
#include <kvcache/interop/table_kernels.hpp>
#include <kvcache/view/append_kernel.hpp>
#include <kvcache/view/reserved_rows.hpp>
#include <kvcache/view/zero_pages_kernel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "interop/ragged_batch.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache_test;
using kvcache::Index;
using kvcache::TableSource;

namespace {

constexpr std::uint64_t first_seed = 20261130;
using Batch = RaggedBatch<kvcache::RowOrder::hnd, kvcache::half, 8>;
using Layout = Batch::Layout;

/// Pages of the pool, and numbers of every other kind.
std::int32_t any_entry(Random& random, std::uint32_t pages)
{
  switch (random.below(6)) {
    case 0:
      return static_cast<std::int32_t>(random.next());
    case 1:
      return static_cast<std::int32_t>(pages + random.below(3));
    case 2:
      return -static_cast<std::int32_t>(random.below(3));
    default:
      return static_cast<std::int32_t>(random.below(pages));
  }
}

/// Reads every tile that a token may see, as an attention kernel does.
struct ReadAll {
  kvcache::BatchView<Layout> kv;
  float* sums;

  template <kvcache::ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    for (Index token = block.index() * block.threads() + block.thread(); token < kv.num_tokens();
         token += block.blocks() * block.threads()) {
      float sum = 0.0F;
      for (auto const tile : kv.tiles(1, 2, token)) {
        for (Index r = 0; r < tile.rows(); ++r) {
          sum += tile.key(r, 7) + tile.value(r, 0);
        }
      }
      sums[token] = sum;
    }
  }
};

/// Takes rows from wherever `lengths` says, and stores them.
struct TakeRows {
  kvcache::BatchView<Layout> kv;

  template <kvcache::ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    kvcache::Lanes const team{block.thread(), block.threads()};
    constexpr float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (Index c = block.index(); c < kv.num_chunks(); c += block.blocks()) {
      auto rows = kvcache::ReservedRows<Layout>::as_left(kv, c);
      rows.roll_back(3);
      for (Index token = rows.take(); token >= 0; token = rows.take()) {
        kv.append(team, 0, 1, token, ones, ones);
      }
    }
  }
};

}  // namespace

TEST_CASE("Hostile tables: nothing outside the pool is touched", "[view][simt][fuzz]")
{
  std::uint64_t seed = first_seed;
  for (simt::Options const& schedule : simt::schedules(first_seed, 6)) {
    CAPTURE(++seed, simt::to_string(schedule));
    Random random(seed);
    std::int32_t const page_tokens = random.below(2) == 0 ? 1 : 16;
    Batch const batch(page_tokens, seed);
    auto kv = batch.view();
    std::uint32_t const pages = kv.segment.num_pages;
    auto const side = seed % 2 == 0 ? simt::Guard::before : simt::Guard::behind;
    simt::GuardedMemory pool(batch.arena_bytes(), side);
    std::size_t const zeros = batch.footprint().page_bytes();
    std::memset(pool.data(), 0, zeros);
    for (std::size_t i = zeros; i < pool.size(); ++i) {
      pool.data()[i] = std::byte{0x3c};
    }
    std::size_t const entries = std::size_t{Batch::table_rows} * kv.segment.row_stride;
    simt::GuardedMemory table(entries * sizeof(std::int32_t), side);
    simt::GuardedMemory lengths(Batch::table_rows * sizeof(Index), side);
    auto* const entry = reinterpret_cast<std::int32_t*>(table.data());
    std::generate_n(entry, entries, [&] { return any_entry(random, pages); });
    kv.segment.base = pool.data();
    kv.segment.table = entry;
    kv.lengths = reinterpret_cast<Index*>(lengths.data());
    std::generate_n(kv.lengths, Batch::table_rows, [&] { return any_entry(random, 6000); });

    auto const run = [&](auto const& kernel, std::size_t shared_bytes = 0) {
      simt::launch(3, 64, shared_bytes, kernel, schedule);
    };
    Index const tokens = kv.num_tokens();
    std::vector<kvcache::half> k(static_cast<std::size_t>(tokens) * 24 + 8), v(k);
    run(kvcache::AppendKernel<Layout, kvcache::half>{
      .kv = kv, .layer = 1, .k = {k.data(), 24, 3}, .v = {v.data(), 24, 3}});
    run(TakeRows{kv});
    std::vector<float> sums(static_cast<std::size_t>(tokens));
    run(ReadAll{kv, sums.data()});

    std::vector<std::uint32_t> rows(Batch::table_rows);
    for (std::uint32_t i = 0; i < Batch::table_rows; ++i) {
      rows[i] = i % 9 == 0 ? kvcache::nil : Batch::table_rows - 1 - i;
    }
    for (bool const by_name : {false, true}) {
      auto const source = by_name
                            ? TableSource::of(kv, rows.data(), static_cast<Index>(rows.size()))
                            : TableSource::of(kv);
      std::size_t const lines = 20;  // fewer than there are, often
      auto const width = static_cast<std::size_t>(source.most_pages());
      std::vector<std::int32_t> indptr(lines + 1), indices(lines * width), last(lines), lens(lines),
        blocks(lines * width), offsets(2 * lines * width);
      std::vector<std::int64_t> slots(static_cast<std::size_t>(tokens));
      auto const lists = kvcache::table_kernel(
        {.indptr = indptr, .indices = indices, .last_page_len = last}, source);
      auto const rectangle =
        kvcache::table_kernel({.pages = blocks, .seq_lens = lens, .width = width}, source);
      auto const planes = kvcache::table_kernel(
        {.offsets = offsets, .seq_lens = lens, .width = width, .planes = {1, 64}}, source);
      auto const mapping = kvcache::slots_kernel(std::span(slots), source);
      REQUIRE((lists && rectangle && planes && mapping));
      run(*lists, lists->shared_bytes(64));
      run(*rectangle);
      run(*planes);
      run(*mapping);
      auto const is_page = [&](std::int32_t id) {
        return id >= 0 && static_cast<std::uint32_t>(id) < pages;
      };
      CHECK(std::all_of(indices.begin(), indices.end(), is_page));
      CHECK(std::all_of(blocks.begin(), blocks.end(), is_page));
      CHECK(std::all_of(slots.begin(), slots.end(), [&](std::int64_t slot) {
        return slot == -1 || (slot >= page_tokens && slot < std::int64_t{pages} * page_tokens);
      }));

      std::size_t const room = 1000;
      std::vector<kvcache::half> out_k(room * 24), out_v(room * 24);
      run(kvcache::GatherKernel<Layout>{
        source, kv, 0, 3, 20, static_cast<std::int64_t>(room), out_k.data(), out_v.data(), 24, 8});
    }
    auto const count = static_cast<Index>(entries < 500 ? entries : 500);
    run(kvcache::ZeroPagesKernel{
      kv.segment, 2, batch.footprint().layer_bytes(), entry, &count, count});

    CHECK(pool.intact());
    CHECK(table.intact());
    CHECK(lengths.intact());
    CHECK(
      std::all_of(pool.data(), pool.data() + zeros, [](std::byte x) { return x == std::byte{0}; }));
  }
}
