// SPDX-License-Identifier: Apache-2.0
// Angles less whole turns, as a GPU takes them.

#include <kvcache/core/isa/turn.hpp>

#include <cmath>

#include "support/catch.hpp"

TEST_CASE("Rope: an angle less its whole turns has the same sine and cosine, for far positions too",
          "[view][rope][numbers]")
{
  double worst = 0;
  double farthest = 0;
  double without_parts = 0;  // the broken twin: 2 pi as one float
  for (float angle = 0.0F; angle < 16777216.0F; angle = angle * 1.0003F + 0.01F) {
    auto const got = static_cast<double>(kvcache::isa::within_a_turn(angle));
    auto const all = static_cast<double>(angle);
    double const error =
      std::fmax(std::fabs(std::cos(got) - std::cos(all)), std::fabs(std::sin(got) - std::sin(all)));
    worst = error <= worst ? worst : error;
    farthest = std::fmax(farthest, std::fabs(got));
    float const twin = std::fma(-std::rint(angle * 0.159154943F), 6.28318548F, angle);
    without_parts =
      std::fmax(without_parts, std::fabs(std::cos(static_cast<double>(twin)) - std::cos(all)));
  }
  CHECK(worst <= 4e-7);
  CHECK(farthest <= 5.0);  // near 2^24 the next whole number may be missed; a sine does not mind
  CHECK(without_parts > 0.1);
}
