// SPDX-License-Identifier: Apache-2.0
// The user's tests, with a Catch2 that the user found.

#if defined(CONSUMER_CATCH2_V3)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "consumer.hpp"

TEST_CASE("a step adds rows")
{
  auto cache = make_cache();
  REQUIRE(cache);
  CHECK(rows_after_one_step(*cache) == 3);
}
