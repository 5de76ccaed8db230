// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/config.hpp>

#include "support/catch.hpp"

TEST_CASE("KVCACHE_CHECK_CALLS: on where assert is on, unless somebody chose", "[core][config]")
{
#if defined(NDEBUG)
  CHECK(KVCACHE_CHECK_CALLS == 0);
#else
  CHECK(KVCACHE_CHECK_CALLS == 1);
#endif
}
