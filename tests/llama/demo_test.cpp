// SPDX-License-Identifier: Apache-2.0
#include "llama/demo.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "capture.hpp"
#include "llama/error.hpp"
#include "support/catch.hpp"

using kvcache_test::Contains;

namespace {

/// The two figures of a line of a table.
struct Row {
  long left = 0;
  long right = 0;
};

}  // namespace

TEST_CASE("demo: its figures say what the cache is for", "[llama][demo]")
{
  llama::Args args;
  args.threads = 2;
  args.progress = false;
  std::string const text = llama_test::captured([&] { CHECK(llama::demo(args) == 0); });
  INFO(text);
  std::istringstream lines(text);
  std::size_t widest = 0;
  std::map<std::string, Row> rows;
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, line.size());
    if (line.size() == 3 + 34 + 2 * 19) {  // a row of a table
      std::string figures = line.substr(3 + 34);
      std::erase(figures, ',');
      Row row;
      std::istringstream(figures) >> row.left >> row.right;
      rows.try_emplace(line.substr(3, line.find_last_not_of(' ', 3 + 33) - 2), row);
    }
  }
  auto const row = [&](char const* label) { return rows[label]; };
  CHECK(widest <= 80);
  CHECK(row("prefill tokens").left > 16 * 1800);
  CHECK(row("prefill tokens").right < 2048);
  CHECK(row("prefill tokens").right > 1800);
  CHECK_THAT(text, Contains("16 of 16           16 of 16"));
  CHECK_THAT(text, Contains("the plan copied 8 rows"));
  CHECK_THAT(text, Contains("cached; counts agree"));

  for (long Row::* side : {&Row::left, &Row::right}) {  // greedy, and sampled
    long const accepted = row("tokens accepted").*side;
    CHECK(accepted > 0);
    CHECK(row("tokens drafted").*side - accepted == row("rows rolled back").*side);
    CHECK(row("rows rolled back").*side > 0);
    CHECK(row("steps, one token each").*side - row("steps with drafts").*side == accepted);
  }
  CHECK_THAT(text,
             Contains("text with drafts                             the same           the same"));

  CHECK(row("pages of the pool").right < row("pages of the pool").left);
  CHECK(row("most requests at a time").right < row("most requests at a time").left);
  CHECK(row("suspensions").left == 0);
  CHECK(row("suspensions").right > 0);
  CHECK(row("rows computed").right - row("rows computed").left ==
        row("of these again, after a resume").right);
  CHECK(text.rfind("the same") > text.find("suspensions"));
  CHECK(text.find("DIFFERENT") == std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);  // no colour where stdout is no terminal
}

TEST_CASE("demo: other models do not speak its language", "[llama][demo][bad_input]")
{
  llama::Args args;
  args.model = "other.gguf";
  CHECK_THROWS_AS(llama::demo(args), llama::UsageError);
}
