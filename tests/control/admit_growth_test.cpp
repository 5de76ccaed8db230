// SPDX-License-Identifier: Apache-2.0
#include <kvcache/control/growth.hpp>

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// What those that run may yet take, beside a request that hits nothing.
std::uint64_t growth_beside(Plane const& plane, std::uint32_t stream = 0)
{
  return plane.admit({.tokens = numbers(50, 50), .stream = {stream}, .max_tokens = 4})->growth;
}

}  // namespace

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
  REQUIRE(plane.close(r));
  // Now the page may leave the index instead, but where a copy is made it stays until the step is over.
  CHECK_FALSE(plane.admit({.tokens = numbers(50, 57), .max_tokens = 8})->fits_beside_growth);
  CHECK(plane.admit({.tokens = numbers(50, 53), .max_tokens = 4})->fits_beside_growth);
  SequenceId const c = *plane.open({.tokens = numbers(50, 57), .max_tokens = 8});
  StepId const step = begin(plane);
  add(plane, step, a, {9});
  CHECK_FALSE(plane.add(step, c, {numbers(50, 57)}));
  add(plane, step, c, numbers(50, 53));
  check_sound(plane);
}

TEST_CASE("admit: a request that copies a cached part page keeps it while the others grow",
          "[control][admission]")
{
  Plane plane = make_plane(4);
  cache_only(plane, numbers(1, 8));
  Tokens const near{1, 2, 3, 4, 5, 6, 9};
  CHECK(plane.admit({.tokens = near, .max_tokens = 16})->fits_beside_growth);  // it is alone
  SequenceId const a = *plane.open({.tokens = {}, .max_tokens = 4});
  auto const beside = *plane.admit({.tokens = near, .max_tokens = 12});
  CHECK(beside.full == 3);  // the cached whole page, the copy, and one more
  CHECK(beside.growth == 2);
  CHECK_FALSE(beside.fits_beside_growth);
  SequenceId const b = *plane.open({.tokens = near, .max_tokens = 12});
  StepId const step = begin(plane);
  add(plane, step, b, {9, 10, 11});
  CHECK_FALSE(plane.add(step, a, {numbers(50, 53)}));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
  append(plane, a, numbers(50, 53));
  check_sound(plane);
}

TEST_CASE("admit: who was cut below the rows that a copy in flight reads copies as well",
          "[control][admission]")
{
  Plane plane = make_plane(4);
  SequenceId const a = *plane.open({.tokens = numbers(1, 6), .max_tokens = 8});
  append(plane, a, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  StepId const step = begin(plane);
  add(plane, step, f, {7});
  REQUIRE(plane.submit(step));
  CHECK(growth_beside(plane) == 0);
  REQUIRE(*plane.truncate(a, 5) == 5);
  CHECK(growth_beside(plane) == 1);
  REQUIRE(plane.commit(step));
  CHECK(growth_beside(plane) == 0);
  append(plane, a, {60});
  check_sound(plane);
}

TEST_CASE("admit: two that go on at different rows of a page copy it both", "[control][admission]")
{
  Plane plane = make_plane(5);
  SequenceId const a = *plane.open({.tokens = numbers(1, 6), .max_tokens = 8});
  append(plane, a, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  REQUIRE(*plane.truncate(f, 5) == 5);
  CHECK(growth_beside(plane) == 2);
  StepId const step = begin(plane);
  add(plane, step, a, {7});
  add(plane, step, f, {60});
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).copies.size() == 2);
}

TEST_CASE("admit: refused drafts at the end of a sequence make no other rows than were there",
          "[control][admission]")
{
  for (Index const most : {7, 8}) {
    Plane plane = make_plane(6);
    SequenceId const a = *plane.open({.tokens = numbers(1, 6), .max_tokens = most});
    append(plane, a, numbers(1, 6));
    StepId const step = begin(plane);
    add_draft(plane, step, a, most == 7 ? Tokens{7} : Tokens{7, 8});
    REQUIRE(plane.submit(step));
    (void)fork(plane, a);
    // Where one of two is accepted, the two go on at different rows.
    CHECK(growth_beside(plane) == (most == 7 ? 1U : 2U));
  }
}

TEST_CASE("admit: a page that steps of another stream read is copied", "[control][admission]")
{
  Plane plane = make_plane(8);
  SequenceId const b = *plane.open({.tokens = numbers(1, 8), .max_tokens = 12});
  append(plane, b, numbers(1, 8));
  SequenceId const a = fork(plane, b);
  REQUIRE(*plane.truncate(a, 6) == 6);
  plane.forget(Domain{});
  StepId const step = begin(plane);
  add(plane, step, b, {9});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.close(b));
  CHECK(growth_beside(plane, 0) == 1);
  CHECK(growth_beside(plane, 1) == 2);
  StepId const there = *plane.begin({1});
  add(plane, there, a, {60});
  REQUIRE(plane.submit(there));
  CHECK(plane.plan(there).copies.size() == 1);
}

TEST_CASE("admit: cached pages that nobody could evict now cost a request nothing",
          "[control][admission]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(9, 16));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.close(a));  // its first two pages are cached, and stay: the step writes behind them
  Tokens const prompt{1, 2, 3, 4, 5, 6, 7, 8, 90};
  for (std::uint32_t const stream : {0U, 1U}) {
    auto const now = *plane.admit({.tokens = prompt, .stream = {stream}});
    CHECK(now.full == 1);
    CHECK(now.available == 4);
  }
  REQUIRE(plane.commit(step));
  auto const then = *plane.admit({.tokens = prompt});
  CHECK(then.full == 3);
  CHECK(then.available == 8);
}

TEST_CASE("admit: who comes back with all its rows takes no page until it grows",
          "[control][admission]")
{
  Plane plane = make_plane(4);
  SequenceId const b = prefilled(plane, numbers(1, 8));
  SequenceId const a = fork(plane, b);
  REQUIRE(*plane.truncate(a, 6) == 6);
  REQUIRE(plane.suspend(a));
  CHECK(plane.admit(a)->full == 0);
  REQUIRE(plane.close(b));
  CHECK(plane.admit(a)->full == 2);  // the two that are cached
  REQUIRE(plane.resume(a));
  CHECK(plane.stats().free == 2);
  CHECK(plane.stats().cached == 0);
}
