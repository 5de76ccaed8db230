// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/error.hpp>

#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "support/catch.hpp"

namespace {

using kvcache::Error;
using kvcache::Why;

std::string text(Error const& error)
{
  return error.message().text;
}

}  // namespace

TEST_CASE("Error: the message names field, value, reason, and what would be right", "[core][error]")
{
  CHECK(text({Why::bad_config, "page_tokens", 300, "must be 1 to", 256}) ==
        "page_tokens = 300 (bad configuration): must be 1 to 256");
  CHECK(text({Why::bad_token, "token", -1, "must not be negative"}) ==
        "token = -1 (token out of range): must not be negative");
  CHECK(
    text({Why::no_memory, "pool bytes", std::numeric_limits<std::int64_t>::max(), "too many"}) ==
    "pool bytes = 9223372036854775807 (no memory): too many");
}

TEST_CASE("Error: a message that is too long is cut, and ends", "[core][error]")
{
  std::string const right(1000, 'x');
  Error const error{Why::busy, "step", 1, right.c_str(), 3};
  Error::Message const message = error.message();
  CHECK(std::strlen(message.text) == sizeof message.text - 1);
  CHECK_THAT(std::string(message.text), kvcache_test::StartsWith("step = 1 (busy): xxx"));
}

TEST_CASE("Why: each value has a name of its own", "[core][error]")
{
  std::set<std::string> names;
  int count = 0;
  for (int i = 0; i <= static_cast<int>(Why::no_memory); ++i, ++count) {
    names.insert(kvcache::name(static_cast<Why>(i)));
  }
  CHECK(static_cast<int>(names.size()) == count);
  CHECK(names.count("unknown") == 0);
  CHECK(std::string(kvcache::name(static_cast<Why>(200))) == "unknown");
}

TEST_CASE("Error: what says nothing is wrong is the default", "[core][error]")
{
  CHECK(Error{}.why == Why::ok);
  CHECK(kvcache::Shortage{}.why == Why::ok);
  CHECK(kvcache::Shortage{}.detail.why == Why::ok);
}
