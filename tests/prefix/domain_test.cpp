// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/domain.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

using kvcache::Adapter;
using kvcache::Domain;

namespace {

Domain salted(std::string_view salt)
{
  return Domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}});
}

Domain adapted(std::vector<Adapter> const& adapters, std::string_view salt = {})
{
  return Domain({.model = {}, .weights = {}, .salt = salt, .adapters = adapters});
}

/// The twin: the fields written one behind the other, as in fault B-003.
std::string glued(std::string_view adapter, std::string_view salt)
{
  return std::string(adapter) + std::string(salt);
}

}  // namespace

TEST_CASE("Domain: B-003 an adapter and a salt of one name are two domains", "[prefix][domain]")
{
  CHECK(adapted({{"X"}}) != salted("X"));
  CHECK(adapted({{"ab"}}, "c") != adapted({{"a"}}, "bc"));
  CHECK(adapted({{"ab"}}, "c") == adapted({{"ab"}}, "c"));
  CHECK(glued("X", "") == glued("", "X"));  // what the twin confuses
  CHECK(glued("ab", "c") == glued("a", "bc"));
}

TEST_CASE("Domain: B-005 which adapters, and how strongly", "[prefix][domain]")
{
  Domain const one = adapted({{"0", 1.0F}});
  CHECK(one != adapted({{"1", 1.0F}}));
  CHECK(one != adapted({{"0", 0.5F}}));
  CHECK(one != adapted({}));
  CHECK(one != Domain());
  CHECK(one == adapted({{"0", 1.0F}}));
  CHECK(adapted({{"0", 1.0F}, {"1", 1.0F}}) == adapted({{"1", 1.0F}, {"0", 1.0F}}));
  CHECK(adapted({{"0", 1.0F}, {"1", 2.0F}}) != adapted({{"0", 2.0F}, {"1", 1.0F}}));
  CHECK(adapted({{"0", 2.0F}, {"0", 1.0F}}) == adapted({{"0", 1.0F}, {"0", 2.0F}}));
  CHECK(adapted({{"0", 0.0F}}) == adapted({{"0", -0.0F}}));
}

TEST_CASE("Domain: absent differs from empty, and each field from each other", "[prefix][domain]")
{
  std::vector<Adapter> const unnamed = {{""}};
  std::vector<Domain> const all = {
    Domain(),
    salted(""),
    Domain({.model = "", .weights = {}, .salt = {}, .adapters = {}}),
    Domain({.model = {}, .weights = "", .salt = {}, .adapters = {}}),
    adapted(unnamed),
    salted("a"),
    Domain({.model = "a", .weights = {}, .salt = {}, .adapters = {}}),
    Domain({.model = {}, .weights = "a", .salt = {}, .adapters = {}}),
    adapted({{"a"}}),
    Domain({.model = "a", .weights = "a", .salt = {}, .adapters = {}}),
    Domain({.model = "aa", .weights = {}, .salt = {}, .adapters = {}}),
    adapted({{"a"}, {"a"}}),
    salted(std::string_view("\0", 1)),
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      CAPTURE(i, j);
      CHECK((all[i] == all[j]) == (i == j));
      CHECK((all[i].bytes() == all[j].bytes()) == (i == j));
    }
  }
  CHECK(salted(std::string_view{}) == Domain());
}

TEST_CASE("Domain: the bytes are the same in every process", "[prefix][domain]")
{
  std::vector<Adapter> const adapters = {{"b", 0.5F}};
  Domain const domain({.model = "m", .weights = "", .salt = {}, .adapters = adapters});
  std::string const golden =
    std::string("\x01\x01\0\0\0\0\0\0\0m", 10) + std::string("\x02\0\0\0\0\0\0\0\0", 9) +
    std::string("\x04\x01\0\0\0\0\0\0\0b", 10) + std::string("\0\0\0\x3f\0\0\0\0", 8);
  CHECK(domain.bytes() == golden);
  CHECK(Domain().bytes().empty());

  Domain const full({.model = "m", .weights = "w1", .salt = "s", .adapters = adapters});
  std::string const all =
    std::string("\x01\x01\0\0\0\0\0\0\0m", 10) + std::string("\x02\x02\0\0\0\0\0\0\0w1", 11) +
    std::string("\x03\x01\0\0\0\0\0\0\0s", 10) + std::string("\x04\x01\0\0\0\0\0\0\0b", 10) +
    std::string("\0\0\0\x3f\0\0\0\0", 8);
  CHECK(full.bytes() == all);
}
