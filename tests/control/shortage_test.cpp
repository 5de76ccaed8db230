// SPDX-License-Identifier: Apache-2.0

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

void check_shortage(
  Plane& plane, StepId step, SequenceId id, Tokens const& tokens, Shortage const& want)
{
  auto const before = plane.digest();
  auto const shortages = plane.stats().shortages;
  auto const added = plane.add(step, id, {tokens});
  REQUIRE_FALSE(added);
  CHECK(added.error().why == Why::no_pages);
  CHECK(added.error().need == want.need);
  CHECK(added.error().free == want.free);
  CHECK(added.error().evictable == want.evictable);
  CHECK(added.error().fenced == want.fenced);
  CHECK(plane.digest() == before);
  CHECK(plane.stats().shortages == shortages + 1);
  check_sound(plane);
}

}  // namespace

TEST_CASE("Shortage: says what is needed, free, evictable and fenced", "[control][shortage]")
{
  Plane plane = make_plane(10);
  cache_only(plane, numbers(101, 108));
  SequenceId const holder = prefilled(plane, numbers(1, 9));
  SequenceId const a = open(plane, {50});
  StepId step = begin(plane);
  check_shortage(plane, step, a, numbers(1, 29), {.need = 8, .free = 5, .evictable = 2});
  add(plane, step, a, numbers(1, 28));  // exactly what there is
  CHECK(plane.stats().free == 0);
  CHECK(plane.stats().cached == 0);
  CHECK(plane.stats().evicted_pages == 2);
  check_shortage(plane, step, holder, numbers(10, 13), {.need = 1});
  add(plane, step, holder, numbers(10, 12));  // the rest of its part page needs none
  REQUIRE(plane.submit(step));
  REQUIRE(plane.close(a));
  CHECK(plane.stats().fenced == 7);
  REQUIRE(plane.commit(step));
  CHECK(plane.stats().fenced == 0);
  CHECK(plane.stats().free == 7);

  SequenceId const b = open(plane, {60});
  step = begin(plane);
  add(plane, step, b, numbers(200, 207));
  REQUIRE(plane.close(b));
  check_shortage(plane, step, holder, numbers(13, 36), {.need = 6, .free = 5, .fenced = 2});
  REQUIRE(plane.drop(step));
  CHECK(plane.stats().free == 7);
}

TEST_CASE("Shortage: the copy of a shared part page counts", "[control][shortage]")
{
  Plane plane = make_plane(2);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  StepId const step = begin(plane);
  check_shortage(plane, step, f, {70}, {.need = 1});
  REQUIRE(plane.close(a));
  add(plane, step, f, {70});
  check_sound(plane);
}

TEST_CASE("Shortage: what a sequence itself holds is never evicted for it", "[control][shortage]")
{
  Plane plane = make_plane(4);
  SequenceId const a = prefilled(plane, numbers(1, 13));
  CHECK(plane.stats().free == 0);
  StepId const step = begin(plane);
  add(plane, step, a, {14, 15, 16});
  SequenceId const b = open(plane, numbers(1, 13));
  CHECK(plane.info(b)->cached == 12);
  check_shortage(plane, step, b, {13}, {.need = 1});
}

TEST_CASE("fenced: pages that several closed sequences of the step share count once",
          "[control][shortage]")
{
  Plane plane = make_plane(12);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  SequenceId const g = fork(plane, a);
  StepId const step = begin(plane);
  add(plane, step, f, {70});  // copies the part page
  add(plane, step, g, {80});  // so does it
  REQUIRE(plane.submit(step));
  REQUIRE(plane.close(f));
  CHECK(plane.stats().fenced == 1);  // f's copy; the rest is held by a and g
  REQUIRE(plane.close(g));
  CHECK(plane.stats().fenced == 2);
  REQUIRE(plane.close(a));
  CHECK(plane.stats().fenced == 3);  // the source, two copies
  CHECK(plane.stats().held == 3);
  CHECK(plane.stats().cached == 1);  // the whole page
  REQUIRE(plane.commit(step));
  CHECK(plane.stats().held == 0);
  CHECK(plane.stats().fenced == 0);
  CHECK(plane.stats().cached == 1);
  check_sound(plane);
}
