// SPDX-License-Identifier: Apache-2.0
#include <kvcache/control/growth.hpp>

#include "support/plane.hpp"

using namespace kvcache;
using namespace kvcache_test;

TEST_CASE("admit: growth counts the copies of part pages that forks share", "[control][admission]")
{
  Plane plane = make_plane(4);
  SequenceId const a = *plane.open({.tokens = numbers(1, 6), .max_tokens = 8});
  append(plane, a, numbers(1, 6));
  CHECK(plane.admit({.tokens = numbers(50, 57), .max_tokens = 8})->growth == 0);
  SequenceId const f = fork(plane, a);
  auto const beside = *plane.admit({.tokens = numbers(50, 57), .max_tokens = 8});
  CHECK(beside.growth == 1);  // the one that writes last writes in place
  CHECK_FALSE(beside.fits_beside_growth);
  CHECK(plane.admit({.tokens = numbers(50, 53), .max_tokens = 4})->fits_beside_growth);
  append(plane, f, {7, 8});
  append(plane, a, {9, 10});
  check_sound(plane);
}

TEST_CASE("admit: growth counts the copy of a partial hit while somebody has the page whole",
          "[control][admission]")
{
  Plane plane = make_plane(4);
  SequenceId const r = *plane.open({.tokens = numbers(1, 8), .max_tokens = 8});
  append(plane, r, numbers(1, 8));
  Tokens const near{1, 2, 3, 4, 5, 6, 9};
  CHECK(plane.admit({.tokens = near, .max_tokens = 8})->fits_beside_growth);
  SequenceId const a = *plane.open({.tokens = near, .max_tokens = 8});
  auto const beside = *plane.admit({.tokens = numbers(50, 57), .max_tokens = 8});
  CHECK(beside.growth == 1);
  CHECK_FALSE(beside.fits_beside_growth);
  REQUIRE(plane.close(r));  // now the page may leave the index instead
  CHECK(plane.admit({.tokens = numbers(50, 57), .max_tokens = 8})->fits_beside_growth);
  append(plane, *plane.open({.tokens = numbers(50, 57), .max_tokens = 8}), numbers(50, 57));
  append(plane, a, {9});
  check_sound(plane);
}
