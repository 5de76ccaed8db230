// SPDX-License-Identifier: Apache-2.0

#include <kvcache/view/hidden_rows.hpp>

#include <cstdint>
#include <random>

#include "support/catch.hpp"

using kvcache::HiddenRows;
using kvcache::Index;

TEST_CASE("HiddenRows: a mask says which rows before the token's own are hidden",
          "[view][hidden_rows]")
{
  CHECK_FALSE(HiddenRows{}.any());
  CHECK_FALSE(HiddenRows{}.at(0));
  HiddenRows const e = HiddenRows::of(9, 0b11001);
  CHECK(e.first == 5);
  CHECK(e.any());
  for (Index row = 0; row < 100; ++row) {
    CAPTURE(row);
    CHECK(e.at(row) == (row == 6 || row == 7));
  }
  CHECK_FALSE(HiddenRows::of(70, 0b111).any());  // a chain
  CHECK_FALSE(HiddenRows::of(163, ~0ULL).any());
  CHECK(HiddenRows::of(163, ~0ULL).first == 100);
  CHECK(HiddenRows::of(163, 1ULL << 63).bits == ~0ULL >> 1);
  CHECK(HiddenRows::of(100, 1).first == 100);
}

TEST_CASE("HiddenRows: from() is at() of the 64 rows that follow", "[view][hidden_rows]")
{
  constexpr std::uint64_t seed = 3;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::uint64_t const mask = (random() >> random() % 64) | 1;
    auto const index = static_cast<Index>(64 + random() % 100);
    HiddenRows const hidden = HiddenRows::of(index, mask);
    CAPTURE(mask, index);
    for (Index row = 0; row < index + 70; ++row) {
      std::uint64_t want = 0;
      for (Index r = 0; r < 64; ++r) {
        want |= std::uint64_t{hidden.at(row + r)} << r;
      }
      REQUIRE(hidden.from(row) == want);
    }
    REQUIRE_FALSE(hidden.at(index));
  }
  CHECK(HiddenRows{}.from(0) == 0);
  CHECK(HiddenRows{}.from(2147483647) == 0);
}
