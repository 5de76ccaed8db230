// SPDX-License-Identifier: Apache-2.0

#include <kvcache/layout/footprint.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstdint>
#include <string>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;

}  // namespace

TEST_CASE("Footprint: known figures", "[layout][footprint]")
{
  // SmolLM2-135M: 30 layers, 3 KV heads of 64, f16, 16 tokens a page.
  using Layout = PagedHeads<half, 64, 16>;
  Error error{};
  Geometry const g = Layout::complete({.layers = 30, .kv_heads = 3}, error);
  Footprint const f = Layout::footprint(g);
  CHECK(f.row_bytes == 256);
  CHECK(f.tile_bytes == 4096);
  CHECK(f.tiles_per_page == 90);
  CHECK(f.page_bytes() == 368640);
  CHECK(f.pool_bytes(100) == 101 * 368640);
  CHECK(f.pages_in(101 * 368640) == 100);
  CHECK(f.pages_in(101 * 368640 - 1) == 99);
  CHECK(f.pages_in(0) == 0);
}

TEST_CASE("Footprint: equals what the pool allocates", "[layout][footprint]")
{
  constexpr std::uint64_t seed = 11;
  kvcache_test::Random random(seed);
  CAPTURE(seed);
  for (int i = 0; i < 300; ++i) {
    Geometry const g{.layers = static_cast<std::int32_t>(random.between(1, 5)),
                     .kv_heads = static_cast<std::int32_t>(random.between(1, 6)),
                     .head_dim = static_cast<std::int32_t>(8 * random.between(1, 32)),
                     .page_tokens = static_cast<std::int32_t>(random.between(1, 40))};
    PageCount const pages = random.between(1, 9);
    CAPTURE(i, g.layers, g.kv_heads, g.head_dim, g.page_tokens, pages);
    auto const check = [&]<class T>(T) {
      using Layout = PagedHeads<T>;
      ControlOptions options{.pages = pages, .page_tokens = g.page_tokens, .max_sequences = 2};
      REQUIRE(options.complete().why == Why::ok);
      kvcache_test::CountingDevice device;
      {
        auto const pool = Pool<Layout>::create(g, options, {}, &device);
        REQUIRE(pool);
        Footprint const f = Layout::footprint(g);
        CHECK(f.tile_bytes % 128 == 0);
        CHECK(f.pool_bytes(pages) == pool->arena_bytes());
        CHECK(device.live_bytes == pool->bytes());
        CHECK(device.live_blocks() == 2);  // the pages, and the tables
        CHECK(f.pages_in(pool->arena_bytes()) == pages);
        CHECK(f.tile_bytes >= f.row_bytes * static_cast<std::uint32_t>(g.page_tokens));
        CHECK(f.tile_bytes - f.row_bytes * static_cast<std::uint32_t>(g.page_tokens) < 128);
      }
      CHECK(device.live_blocks() == 0);
      CHECK(device.wrong_frees == 0);
    };
    check(float{});
    check(half{});
    check(bfloat16{});
  }
}

TEST_CASE("Footprint: pages x layers x heads beyond 32 bits are refused with the figure",
          "[layout][footprint]")
{
  Geometry const g{.layers = 80, .kv_heads = 8, .head_dim = 128, .page_tokens = 16};
  Footprint const f = PagedHeads<half>::footprint(g);
  PageCount const most = f.max_pages();
  CHECK((std::uint64_t{most} + 1) * 640 <= std::uint64_t{1} << 32);
  CHECK((std::uint64_t{most} + 3) * 640 > std::uint64_t{1} << 32);
  CHECK(f.validate(most).why == Why::ok);
  CHECK(f.validate(1).why == Why::ok);

  Error error = f.validate(most + 1);
  CHECK(error.why == Why::bad_config);
  CHECK(error.value == std::int64_t{most} + 1);
  CHECK(error.limit == most);
  CHECK(
    std::string(error.message().text) ==
    "pages = 6710886 (bad configuration): pages x layers x kv_heads must fit 32 bits, so at most "
    "6710885");
  error = f.validate(0);
  CHECK(std::string(error.message().text) == "pages = 0 (bad configuration): must be at least 1");

  Footprint const widest = PagedHeads<half>::footprint({4096, 4096, 8, 1});
  CHECK(widest.tiles_per_page == 1U << 24);
  CHECK(widest.validate(widest.max_pages()).why == Why::ok);
  CHECK(widest.validate(256).why == Why::bad_config);
}
