// SPDX-License-Identifier: Apache-2.0
// A refusal's figure is optional: 0 is printed where it is the figure, and nothing where there is none.

#include <kvcache/core/error.hpp>

#include <string>
#include <type_traits>

#include "support/catch.hpp"

using namespace kvcache;

static_assert(std::is_aggregate_v<Error> && std::is_trivially_copyable_v<Error>);

TEST_CASE("Error: a figure of 0 is printed, none is not", "[core][error]")
{
  auto const text = [](Error const& error) { return std::string(error.message().text); };
  CHECK(text({Why::bad_config, "rows", 3, "must be at most", 0}) ==
        "rows = 3 (bad configuration): must be at most 0");
  CHECK(text({Why::bad_config, "rows", 3, "must be at most", 7U}) ==
        "rows = 3 (bad configuration): must be at most 7");
  CHECK(text({Why::bad_config, "rows", 3, "must be even"}) ==
        "rows = 3 (bad configuration): must be even");
  CHECK(text({Why::bad_config, "rows", 3, "must be at most", -1}) ==
        "rows = 3 (bad configuration): must be at most -1");
  Error const none{Why::bad_config, "rows", 3, "must be even"};
  Error const zero{Why::bad_config, "rows", 3, "must be at most", 0};
  CHECK(none.limit == 0);
  CHECK(zero.limit == 0);
  CHECK_FALSE(none.limit.given);
  CHECK(zero.limit.given);
}
