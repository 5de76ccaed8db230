// SPDX-License-Identifier: Apache-2.0
#include "llama/threads.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"

TEST_CASE("Threads: every item runs once, loop after loop", "[llama][threads]")
{
  for (unsigned size : {0u, 1u, 2u, 3u, 5u}) {
    llama::Threads threads(size);
    CHECK(threads.size() == std::max(size, 1u));
    for (std::size_t loop = 0; loop < 3000; ++loop) {
      std::size_t const items = loop % 23;
      std::vector<int> seen(items, 0);  // plain ints: a data race here shows under TSan
      threads.run(items, [&](std::size_t item) { ++seen[item]; });
      REQUIRE(std::count(seen.begin(), seen.end(), 1) == static_cast<long>(items));
    }
  }
}

TEST_CASE("Threads: more items than one ticket holds", "[llama][threads]")
{
  llama::Threads threads(2);
  std::atomic<std::uint64_t> sum{0};
  std::uint64_t const items = 3'000'001;
  threads.run(items, [&](std::size_t item) { sum.fetch_add(item, std::memory_order_relaxed); });
  CHECK(sum.load() == items * (items - 1) / 2);
}
