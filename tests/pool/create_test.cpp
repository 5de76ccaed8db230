// SPDX-License-Identifier: Apache-2.0

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/hand_plan.hpp"

namespace {

using namespace kvcache;
using kvcache_test::pool_sizes;

using Layout = PagedHeads<half>;
constexpr Geometry geometry{.layers = 2, .kv_heads = 2, .head_dim = 32, .page_tokens = 4};
constexpr PageCount pages = 3;
constexpr std::size_t needed = (pages + 1) * 4 * 512;

struct alignas(128) Line {
  std::byte bytes[128];
};

}  // namespace

TEST_CASE("Pool: the caller's memory is attached, used, and never freed", "[pool][create]")
{
  kvcache_test::CountingDevice device;
  std::vector<Line> memory(needed / sizeof(Line) + 1);
  std::memset(memory.data(), 0x77, memory.size() * sizeof(Line));
  Storage const storage{memory.front().bytes, needed};
  {
    auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, pages), storage, &device);
    REQUIRE(pool);
    CHECK(pool->arena_bytes() == needed);
    CHECK(pool->page(zero_page) == storage.data);
    CHECK(pool->page(PageId{3}) == storage.data + 3 * 4 * 512);
    CHECK(pool->view().segment.base == storage.data);
    CHECK(device.live_blocks() == 1);  // the tables
  }
  CHECK(device.live_blocks() == 0);
  CHECK(device.wrong_frees == 0);
  CHECK(std::all_of(
    storage.data, storage.data + 4 * 512, [](std::byte b) { return b == std::byte{0}; }));
  CHECK(storage.data[4 * 512] == std::byte{0x77});
  CHECK(storage.data[needed] == std::byte{0x77});
}

TEST_CASE("Pool: memory that is too small or misaligned is refused with the figures",
          "[pool][create]")
{
  kvcache_test::CountingDevice device;
  std::vector<Line> memory(needed / sizeof(Line) + 1);
  std::memset(memory.data(), 0x77, memory.size() * sizeof(Line));
  auto refused = [&](Storage storage) {
    auto const pool = Pool<Layout>::create(geometry, pool_sizes(geometry, pages), storage, &device);
    REQUIRE_FALSE(pool);
    CHECK(pool.error().why == Why::bad_config);
    return std::string(pool.error().message().text);
  };
  CHECK(refused({memory.front().bytes, needed - 1}) ==
        "storage.bytes = 8191 (bad configuration): must be at least 8192");
  CHECK(refused({memory.front().bytes + 64, needed}) ==
        "storage.data = 64 (bad configuration): is the address modulo 128, and must be 0");
  CHECK(device.allocations == 0);
  CHECK(memory.front().bytes[0] == std::byte{0x77});
}

TEST_CASE("Pool: a device without memory is an error with the bytes, and nothing leaks",
          "[pool][create]")
{
  for (int const succeed : {0, 1}) {
    CAPTURE(succeed);
    kvcache_test::CountingDevice device;
    device.fail_after = succeed;
    {
      auto const pool = Pool<Layout>::create(geometry, pool_sizes(geometry, pages), {}, &device);
      REQUIRE_FALSE(pool);
      CHECK(pool.error().why == Why::no_memory);
      CHECK(std::string(pool.error().field) == "pool bytes");
      CHECK(pool.error().value > static_cast<std::int64_t>(needed));
    }
    CHECK(device.live_blocks() == 0);
    CHECK(device.staging_blocks() == 0);
    CHECK(device.wrong_frees == 0);
  }
  kvcache_test::CountingDevice device;
  auto const pool = Pool<Layout>::create(geometry, pool_sizes(geometry, pages), {}, &device);
  REQUIRE(pool);
  CHECK(device.allocations == 2);
  CHECK(device.live_bytes == pool->bytes());
}

TEST_CASE("Pool: more pages than 32-bit units can name are refused before any memory is asked for",
          "[pool][create]")
{
  kvcache_test::CountingDevice device;
  constexpr Geometry wide{.layers = 1000, .kv_heads = 1000, .head_dim = 8, .page_tokens = 1};
  ControlOptions options = pool_sizes(wide, 4294);
  auto const pool = Pool<Layout>::create(wide, options, {}, &device);
  REQUIRE_FALSE(pool);
  CHECK(std::string(pool.error().field) == "pages");
  CHECK(pool.error().value == 4294);
  CHECK(pool.error().limit == 4293);
  CHECK(device.allocations == 0);
}
