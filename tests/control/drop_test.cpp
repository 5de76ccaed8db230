// SPDX-License-Identifier: Apache-2.0

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// The order in which cached prompts leave, found by filling the pool a page at a time.
std::vector<int> leaving_order(Plane& plane, std::vector<Tokens> const& prompts)
{
  std::vector<int> order;
  SequenceId const eater = open(plane, {900});
  std::vector<bool> gone(prompts.size(), false);
  for (Token token = 1000; plane.stats().free + plane.stats().cached > 0; token += 4) {
    append(plane, eater, numbers(token, token + 3));
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (!gone[i] && cached_rows(plane, prompts[i]) < 4) {
        gone[i] = true;
        order.push_back(static_cast<int>(i));
      }
    }
  }
  return order;
}

}  // namespace

TEST_CASE("drop: nothing happened, whatever the adds were", "[control][drop]")
{
  Plane plane = make_plane(12);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  SequenceId const b = open(plane, numbers(1, 8));
  auto const before = plane.digest();
  auto const tables = std::vector{pages(plane, a), pages(plane, f), pages(plane, b)};
  std::vector<std::vector<SequenceId>> const orders{{a, f, b}, {f, a, b}, {b, f, a}, {f}, {b}};
  for (auto const& order : orders) {
    StepId const step = begin(plane);
    for (SequenceId const id : order) {
      add(plane, step, id, numbers(30, 40));
    }
    check_sound(plane);
    REQUIRE(plane.drop(step));
    CHECK(plane.digest() == before);
    CHECK(std::vector{pages(plane, a), pages(plane, f), pages(plane, b)} == tables);
    check_sound(plane);
  }
}

TEST_CASE("drop: pages that the adds evicted are cached again, in their old order",
          "[control][drop]")
{
  std::vector<Tokens> const prompts{
    numbers(1, 5), numbers(101, 105), numbers(201, 205), numbers(301, 305)};
  auto const prepare = [&] {
    Plane plane = make_plane(6);
    for (Tokens const& prompt : prompts) {
      cache_only(plane, prompt);
    }
    cache_only(plane, prompts[1]);  // used again: now the youngest
    return plane;
  };
  for (Index tokens : {4, 8, 12, 16, 20, 24}) {
    CAPTURE(tokens);
    Plane plane = prepare();
    Plane twin = prepare();
    SequenceId const a = open(plane, {800});
    (void)open(twin, {800});
    auto const before = plane.digest();
    REQUIRE(before == twin.digest());
    StepId const step = begin(plane);
    add(plane, step, a, numbers(700, 700 + tokens - 1));
    bool const evicts = tokens > 8;
    CHECK((plane.stats().evicted_pages > 0) == evicts);
    REQUIRE(plane.drop(step));
    CHECK(plane.digest() == before);
    CHECK(plane.stats().evicted_pages == 0);
    CHECK(plane.stats().cached == twin.stats().cached);
    check_sound(plane);
    auto const order = leaving_order(plane, prompts);
    CHECK(order == leaving_order(twin, prompts));
    CHECK(order == std::vector<int>{0, 2, 3, 1});
  }
}

TEST_CASE("drop: a span that was evicted in part, or over several adds, is whole again",
          "[control][drop]")
{
  Plane plane = make_plane(6);
  cache_only(plane, numbers(1, 21));  // five pages in one span
  SequenceId const a = open(plane, {100});
  SequenceId const b = open(plane, {200});
  auto const before = plane.digest();
  StepId const step = begin(plane);
  add(plane, step, a, numbers(100, 107));
  CHECK(cached_rows(plane, numbers(1, 21)) == 16);
  add(plane, step, b, numbers(200, 211));
  CHECK(cached_rows(plane, numbers(1, 21)) == 4);
  REQUIRE(plane.drop(step));
  CHECK(plane.digest() == before);
  CHECK(cached_rows(plane, numbers(1, 21)) == 20);
  check_sound(plane);
}

TEST_CASE("drop: a page that left the index to be written in place is in it again",
          "[control][drop]")
{
  Plane plane = make_plane(2);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  REQUIRE(*plane.truncate(a, 6) == 6);
  auto const before = plane.digest();
  StepId const step = begin(plane);
  add(plane, step, a, {70});
  CHECK(cached_rows(plane, numbers(1, 8)) == 4);
  REQUIRE(plane.drop(step));
  CHECK(cached_rows(plane, numbers(1, 8)) == 7);
  CHECK(plane.digest() == before);
  check_sound(plane);
}

TEST_CASE("drop: with calls in between it keeps their effect and undoes the step's",
          "[control][drop]")
{
  SECTION("another sequence closes")
  {
    Plane plane = make_plane(8);
    SequenceId const a = prefilled(plane, numbers(1, 6));
    SequenceId const b = prefilled(plane, numbers(101, 107));
    StepId const step = begin(plane);
    add(plane, step, a, numbers(7, 12));
    REQUIRE(plane.close(b));
    REQUIRE(plane.drop(step));
    CHECK(plane.info(a)->length == 6);
    CHECK(plane.info(a)->pages == 2);
    CHECK(plane.stats().free == 5);
    CHECK(plane.stats().cached == 1);
    check_sound(plane);
  }
  SECTION("the sequence itself closes")
  {
    Plane plane = make_plane(8);
    SequenceId const a = prefilled(plane, numbers(1, 6));
    SequenceId const b = prefilled(plane, numbers(101, 107));
    StepId const step = begin(plane);
    add(plane, step, b, numbers(1, 9));
    add(plane, step, a, numbers(7, 12));
    REQUIRE(plane.close(b));
    REQUIRE(plane.drop(step));
    CHECK(plane.info(a)->pages == 2);
    CHECK(plane.stats().cached == 1);
    CHECK(plane.stats().free == 5);
    check_sound(plane);
  }
  SECTION("the domain is forgotten: what was evicted stays away")
  {
    Plane plane = make_plane(3);
    cache_only(plane, numbers(1, 9));
    SequenceId const a = open(plane, {100});
    StepId const step = begin(plane);
    add(plane, step, a, numbers(100, 107));
    plane.forget({});
    REQUIRE(plane.drop(step));
    CHECK(cached_rows(plane, numbers(1, 9)) == 0);
    CHECK(plane.stats().free == 3);
    check_sound(plane);
  }
  SECTION("somebody opens what is left of an evicted prompt")
  {
    Plane plane = make_plane(4);
    cache_only(plane, numbers(1, 13));
    SequenceId const a = open(plane, {100});
    StepId const step = begin(plane);
    add(plane, step, a, numbers(100, 107));
    SequenceId const b = open(plane, numbers(1, 13));
    CHECK(plane.info(b)->cached == 8);
    REQUIRE(plane.drop(step));
    CHECK(cached_rows(plane, numbers(1, 13)) == 12);
    check_sound(plane);
    REQUIRE(plane.close(b));
    check_sound(plane);
  }
}
