// SPDX-License-Identifier: Apache-2.0
#include <kvcache/replace/concept.hpp>
#include <kvcache/replace/lru.hpp>
#include <kvcache/replace/sieve.hpp>

#include <cstdint>
#include <optional>

#include "support/catch.hpp"

using namespace kvcache;

namespace {

struct WrongRole : Lru {
  using role = kvcache::role::allocator;
};

struct ThrowingVictim : Lru {
  std::optional<SpanId> victim() { return std::nullopt; }
};

struct NoSplit : Lru {
  void on_split(SpanId) noexcept {}
};

}  // namespace

TEST_CASE("Replacement: the shipped policies play the part", "[replace][concept]")
{
  STATIC_REQUIRE(Replacement<Lru>);
  STATIC_REQUIRE(Replacement<Sieve>);
  STATIC_REQUIRE(explain_replacement<Lru>());
  STATIC_REQUIRE(explain_replacement<Sieve>());
}

TEST_CASE("Replacement: each kind of lack is named by one requirement", "[replace][concept]")
{
  STATIC_REQUIRE_FALSE(PlaysReplacement<WrongRole>);
  STATIC_REQUIRE_FALSE(NamesVictim<ThrowingVictim>);
  STATIC_REQUIRE(HearsIdle<ThrowingVictim>);
  STATIC_REQUIRE_FALSE(HearsSplit<NoSplit>);
  STATIC_REQUIRE_FALSE(Replacement<NoSplit>);
  STATIC_REQUIRE_FALSE(Replacement<int>);
}
