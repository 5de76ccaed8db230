// SPDX-License-Identifier: Apache-2.0
#include "llama/demo.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "capture.hpp"
#include "llama/error.hpp"
#include "support/catch.hpp"

using kvcache_test::Contains;

TEST_CASE("demo: its figures say what the cache is for", "[llama][demo]")
{
  llama::Args args;
  args.threads = 2;
  args.progress = false;
  std::string const text = llama_test::captured([&] { CHECK(llama::demo(args) == 0); });
  INFO(text);
  std::istringstream lines(text);
  std::size_t widest = 0;
  long without = 0;
  long with = 0;
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, line.size());
    if (line.find("   prefill tokens") == 0) {
      std::erase(line, ',');
      std::istringstream(line.substr(17)) >> without >> with;
    }
  }
  CHECK(widest <= 80);
  CHECK(without > 16 * 1800);
  CHECK(with < 2048);
  CHECK(with > 1800);
  CHECK_THAT(text, Contains("16 of 16           16 of 16"));
  CHECK_THAT(text, Contains("the plan copied 8 rows"));
  CHECK_THAT(text, Contains("cached; counts agree"));
  CHECK(text.find('\x1b') == std::string::npos);  // no colour where stdout is no terminal
}

TEST_CASE("demo: other models do not speak its language", "[llama][demo][bad_input]")
{
  llama::Args args;
  args.model = "other.gguf";
  CHECK_THROWS_AS(llama::demo(args), llama::UsageError);
}
