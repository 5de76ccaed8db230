// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/concept.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include "support/catch.hpp"

using namespace kvcache;

namespace {

struct WrongRole : RadixTree {
  using role = kvcache::role::replacement;
  using RadixTree::RadixTree;
};

struct NoLimit : RadixTree {
  using RadixTree::RadixTree;
  Match match(DomainId, std::span<Token const>) const noexcept { return {}; }
};

struct ThrowingPop : RadixTree {
  using RadixTree::RadixTree;
  Popped pop_tail(SpanId, PageCount, PageId*, Token*) { return {}; }
};

}  // namespace

TEST_CASE("Prefix: the shipped tree plays the part", "[prefix][concept]")
{
  STATIC_REQUIRE(Prefix<RadixTree>);
  STATIC_REQUIRE(explain_prefix<RadixTree>());
}

TEST_CASE("Prefix: each kind of lack is named by one requirement", "[prefix][concept]")
{
  STATIC_REQUIRE_FALSE(PlaysPrefix<WrongRole>);
  STATIC_REQUIRE_FALSE(MatchesTokens<NoLimit>);
  STATIC_REQUIRE(FindsPages<NoLimit>);
  STATIC_REQUIRE_FALSE(PopsTails<ThrowingPop>);
  STATIC_REQUIRE_FALSE(Prefix<ThrowingPop>);
  STATIC_REQUIRE_FALSE(Prefix<int>);
}
