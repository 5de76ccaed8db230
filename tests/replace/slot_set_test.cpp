// SPDX-License-Identifier: Apache-2.0
#include <kvcache/replace/slot_set.hpp>

#include <cstdint>
#include <set>

#include "support/catch.hpp"
#include "support/random.hpp"

using kvcache::detail::SlotSet;

TEST_CASE("SlotSet: finds what a sorted set finds, at any size", "[replace][slot_set]")
{
  kvcache_test::Random random(3);
  for (std::uint32_t const size : {1U, 63U, 64U, 65U, 4096U, 4097U, 300'000U}) {
    CAPTURE(size);
    SlotSet slots;
    REQUIRE(slots.reserve(size));
    CHECK(slots.next(0) == SlotSet::none);
    std::set<std::uint32_t> expected;
    bool equal = true;
    for (int step = 0; step < 20'000 && equal; ++step) {
      std::uint32_t const number = random.below(size);
      if (random.below(2) == 0) {
        slots.insert(number);
        expected.insert(number);
      } else {  // mostly numbers that are in it, so that words fall empty
        auto const at = expected.lower_bound(number);
        std::uint32_t const gone = at == expected.end() ? number : *at;
        slots.erase(gone);
        expected.erase(gone);
      }
      std::uint32_t const from = random.below(size + 2);
      auto const at = expected.lower_bound(from);
      equal = slots.next(from) == (at == expected.end() ? SlotSet::none : *at) &&
              slots.contains(number) == (expected.count(number) != 0);
    }
    CHECK(equal);
    slots.clear();
    CHECK(slots.next(0) == SlotSet::none);
  }
}
