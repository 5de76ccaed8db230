// SPDX-License-Identifier: Apache-2.0
// docs/faults.md says which file tests which scenario: the file must be there and name it.

#include <sstream>
#include <string>

#include "support/catch.hpp"
#include "support/read_file.hpp"

using kvcache_test::read_file;

namespace {

/// How many files the document names for its done scenarios, and how many of these do not name the scenario.
struct Audit {
  int named = 0;
  int wrong = 0;
};

Audit audit(std::string const& document, std::string const& root)
{
  Audit result;
  std::istringstream lines(document);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| B-", 0) != 0 || line.find("| done: ") == std::string::npos) {
      continue;
    }
    std::string const scenario = line.substr(2, 5);
    for (std::size_t at = 0; (at = line.find("`tests/", at)) != std::string::npos; ++at) {
      std::size_t const end = line.find('`', at + 1);
      std::string const path = root + "/" + line.substr(at + 1, end - at - 1);
      bool const right = read_file(path).find(scenario) != std::string::npos;
      if (!right) {
        UNSCOPED_INFO(path << " does not name " << scenario);
      }
      ++result.named;
      result.wrong += right ? 0 : 1;
    }
  }
  return result;
}

}  // namespace

TEST_CASE("docs/faults.md: each done scenario has a test that names it", "[faults][docs]")
{
  std::string const root = KVCACHE_SOURCE_DIR;
  std::string const document = read_file(root + "/docs/faults.md");
  Audit const own = audit(document, root);
  CHECK(own.wrong == 0);
  CHECK(own.named > 50);
  Audit const twin = audit("| B-999 nothing | done: `tests/faults/tree_test.cpp` | |\n", root);
  CHECK(twin.wrong == 1);
}
