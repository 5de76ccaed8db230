// SPDX-License-Identifier: Apache-2.0
#include <kvcache/core/first_room.hpp>

#include "support/catch.hpp"

TEST_CASE("first_room: for all there can be, a thousand at most", "[core][first_room]")
{
  using kvcache::detail::first_room;
  CHECK(first_room(0) == 0);
  CHECK(first_room(24) == 24);
  CHECK(first_room(1024) == 1024);
  CHECK(first_room(16'000'000) == 1024);
}
