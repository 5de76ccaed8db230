// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/domain_table.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "support/catch.hpp"

using namespace kvcache;

namespace {

Domain salted(std::string const& salt)
{
  return Domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}});
}

}  // namespace

TEST_CASE("DomainTable: numbers domains in order and finds them again", "[prefix][domain_table]")
{
  detail::DomainTable table;
  CHECK(table.find(Domain()) == std::nullopt);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    CHECK(table.intern(salted(std::to_string(i))) == DomainId{i});
  }
  for (std::uint32_t i = 0; i < 1000; ++i) {
    CHECK(table.intern(salted(std::to_string(i))) == DomainId{i});
    CHECK(table.find(salted(std::to_string(i))) == DomainId{i});
  }
  CHECK(table.size() == 1000);
  CHECK(table.find(salted("1000")) == std::nullopt);
  CHECK(table.bytes() > 1000 * 10);
}

TEST_CASE("DomainTable: domains whose hashes meet stay apart", "[prefix][domain_table]")
{
  // Among 200,000 hashes of 32 bits about five pairs are equal: only the bytes tell them apart.
  detail::DomainTable table;
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    wrong += table.intern(salted(std::to_string(i))) == DomainId{i} ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

TEST_CASE("DomainTable: a generation is one domain's own", "[prefix][domain_table]")
{
  detail::DomainTable table;
  DomainId const a = table.intern(salted("a"));
  DomainId const b = table.intern(salted("b"));
  CHECK(table.digest(a) != table.digest(b));
  auto const before = table.digest(a);
  table.raise_generation(a);
  CHECK(table.generation(a) == 1);
  CHECK(table.generation(b) == 0);
  CHECK(table.digest(a) != before);
}
