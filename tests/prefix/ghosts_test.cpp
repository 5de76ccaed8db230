// SPDX-License-Identifier: Apache-2.0
#include <kvcache/core/hash.hpp>
#include <kvcache/prefix/ghosts.hpp>

#include <cstdint>

#include "support/catch.hpp"

using kvcache::DomainId;
using kvcache::mix;
using kvcache::detail::Ghosts;

TEST_CASE("Ghosts: remember what was evicted, and say no to what was not", "[prefix][ghosts]")
{
  Ghosts ghosts(1000);
  CHECK_FALSE(ghosts.was_evicted(0));
  CHECK_FALSE(ghosts.was_evicted(mix(1, 1)));
  ghosts.record_evicted(mix(1, 1));
  ghosts.record_evicted(0);
  CHECK(ghosts.was_evicted(mix(1, 1)));
  CHECK(ghosts.was_evicted(0));
  CHECK_FALSE(ghosts.was_evicted(mix(1, 2)));
}

TEST_CASE("Ghosts: a start counts only when another domain made it", "[prefix][ghosts]")
{
  Ghosts ghosts(8);
  std::uint64_t const start = mix(7, 7);
  CHECK_FALSE(ghosts.starts_elsewhere(start, DomainId{0}));
  ghosts.record_start(start, DomainId{0});
  CHECK_FALSE(ghosts.starts_elsewhere(start, DomainId{0}));
  CHECK(ghosts.starts_elsewhere(start, DomainId{1}));
}

TEST_CASE("Ghosts: memory is fixed by the pool", "[prefix][ghosts]")
{
  Ghosts ghosts(100'000);
  auto const before = ghosts.bytes();
  std::uint32_t found = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ghosts.record_evicted(mix(i, 3));
    found += ghosts.was_evicted(mix(i, 3)) ? 1U : 0U;
  }
  CHECK(found == 100'000);
  CHECK(ghosts.bytes() == before);
  CHECK(before < 100'000 * 4);
  CHECK(Ghosts(16'000'000).bytes() < 16'000'000);
}
