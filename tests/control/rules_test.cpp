// SPDX-License-Identifier: Apache-2.0

// The rules of a row's life, docs/life-of-a-token.md: each with the calls that go wrong where it is broken.
// Rules 9 to 17 stand in rules_publish_test.cpp, the others in rules_retire_test.cpp.

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

constexpr StreamId other{1};

}  // namespace

TEST_CASE(
  "Rule 1: pages of a step that is being built are pending for its later adds only, if it attaches",
  "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  Tokens const prompt = numbers(1, 9);
  SequenceId const a = open(plane, prompt);
  SequenceId const c = open(plane, prompt);
  StepId step = begin_attaching(plane);
  add(plane, step, a, numbers(1, 8));
  SequenceId const b = open(plane, prompt);
  CHECK(length_of(plane, b) == 0);  // the step may never run
  CHECK(plane.begin().error().why == Why::busy);
  CHECK(*plane.add(step, c, {prompt}) == 1);
  check_sound(plane);
  REQUIRE(plane.close(b));
  REQUIRE(plane.drop(step));
  step = begin(plane);
  e.check(a, 0);
  e.check(c, 0);

  add(plane, step, a, numbers(1, 8));
  REQUIRE(plane.submit(step));
  SequenceId const late = open(plane, prompt);
  CHECK(length_of(plane, late) == 8);
  e.finish(step, {numbers(1, 8)});
  e.check(late, 8);
}

TEST_CASE("Rule 1: a dropped step leaves nothing, whoever attached in it", "[control][rules]")
{
  Plane plane = make_plane(12);
  Tokens const prompt = numbers(1, 9);
  SequenceId const a = open(plane, prompt);
  SequenceId const b = open(plane, prompt);
  std::uint64_t const before = plane.digest();
  StepId const step = begin_attaching(plane);
  add(plane, step, a, prompt);
  CHECK(*plane.add(step, b, {prompt}) == 1);
  REQUIRE(plane.drop(step));
  CHECK(plane.digest() == before);
  CHECK(plane.stats().free == 12);
}

TEST_CASE("Rule 2: pending pages commit though their writer closed, was cut or suspended",
          "[control][rules]")
{
  for (int const how : {0, 1, 2}) {
    CAPTURE(how);
    Engine e(8);
    Plane& plane = e.plane;
    SequenceId const a = open(plane, numbers(1, 9));
    StepId const step = begin(plane);
    add(plane, step, a, numbers(1, 8));
    REQUIRE(plane.submit(step));
    SequenceId const b = open(plane, numbers(1, 9));
    CHECK(length_of(plane, b) == 8);
    switch (how) {
      case 0:
        REQUIRE(plane.close(a));
        break;
      case 1:
        REQUIRE(*plane.truncate(a, 0) == 0);
        break;
      default:
        REQUIRE(plane.suspend(a));
        break;
    }
    check_sound(plane);
    e.finish(step, {numbers(1, 8)});
    e.check(b, 8);
    CHECK(plane.probe({.tokens = numbers(1, 9), .stream = other}).rows == 8);  // for everybody
    if (how != 0) {
      CHECK(plane.info(a)->length == 0);  // the sequence's own result ended
    }
  }
}

TEST_CASE("Rule 3: a page that a step touches while it is built is for later steps",
          "[control][rules]")
{
  Engine e(2);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, {1});
  SequenceId const b = open(plane, {50});
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 6));
  REQUIRE(plane.close(a));
  auto const refused = plane.add(step, b, {numbers(50, 53)});
  REQUIRE_FALSE(refused);  // or one slot is written twice
  CHECK(refused.error().why == Why::no_pages);
  CHECK(refused.error().fenced == 2);
  REQUIRE(plane.submit(step));
  StepId const next = begin(plane);
  add(plane, next, b, numbers(50, 53));  // runs after it
  REQUIRE(plane.submit(next));
  e.finish(step, {});
  e.finish(next, {numbers(50, 53)});
  e.check(b, 4);
}

TEST_CASE("Rule 3: a sequence is in a step at most once, even after it was cut", "[control][rules]")
{
  Engine e(8);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const step = begin(plane);
  add(plane, step, a, {7});
  REQUIRE(*plane.truncate(a, 5) == 5);
  CHECK(plane.add(step, a, {Tokens{70}}).error().why == Why::busy);
  REQUIRE(plane.submit(step));
  e.finish(step, {});
  e.check(a, 5);
}

TEST_CASE("Rule 4: a copy's source is held, and comes back where the step fails",
          "[control][rules]")
{
  for (Token const last : {70, 75}) {  // with six tokens the copy is a pending page too
    for (bool const ran : {false, true}) {
      CAPTURE(last, ran);
      Engine e(8);
      Plane& plane = e.plane;
      SequenceId const a = e.prefilled(numbers(1, 6));
      SequenceId const f = fork(plane, a);
      auto const before = pages(plane, f);
      StepId const step = begin(plane);
      add(plane, step, f, numbers(70, last));
      REQUIRE(plane.close(a));
      REQUIRE(plane.submit(step));
      e.rows.apply(plane.plan(step));
      if (ran) {
        e.rows.run(plane.plan(step), {numbers(70, last)});
      }
      REQUIRE(plane.fail(step));
      e.check(f, 6);
      CHECK(pages(plane, f) == before);
      REQUIRE(plane.cuts().size() == 1);
      CHECK(plane.cuts()[0] == Cut{f, 6});
      e.append(f, numbers(80, 85));
      e.check(f, 12);
    }
  }
}

TEST_CASE("Rule 4: a writer in place keeps its rows too where the step fails", "[control][rules]")
{
  Engine e(8);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(7, 12));
  REQUIRE(plane.submit(step));
  SequenceId const b = open(plane, numbers(1, 13));
  CHECK(length_of(plane, b) == 12);
  SequenceId const c = open(plane, numbers(1, 9));
  CHECK(length_of(plane, c) == 8);
  e.rows.run(plane.plan(step), {numbers(57, 62)});  // garbage
  REQUIRE(plane.fail(step));
  CHECK(plane.cuts().size() == 3);
  e.check(a, 6);
  e.check(b, 4);
  e.check(c, 4);
  e.append(b, numbers(5, 13));
  e.append(a, numbers(7, 12));
  e.check(a, 12);
  e.check(b, 13);
}

TEST_CASE("Rule 5: what was opened before forget neither publishes nor attaches",
          "[control][rules]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, numbers(1, 9));
  SequenceId const idle = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 8));
  REQUIRE(plane.submit(step));
  plane.forget({});
  e.finish(step, {numbers(1, 8)});
  e.check(a, 8);
  CHECK(cached_rows(plane, numbers(1, 9)) == 0);
  CHECK(plane.stats().tree_spans == 0);
  SequenceId const f = fork(plane, a);
  e.append(f, numbers(9, 12));
  CHECK(plane.stats().tree_spans == 0);

  SequenceId const fresh = e.prefilled(numbers(1, 9));  // of the new weights
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  StepId const next = begin(plane);
  CHECK(*plane.add(next, idle, {numbers(1, 9)}) == 9);  // attaches to none of those
  REQUIRE(plane.drop(next));
  REQUIRE(plane.suspend(idle));
  REQUIRE(plane.resume(idle));
  StepId const last = begin(plane);
  CHECK(*plane.add(last, idle, {numbers(1, 9)}) == 9);  // it had no tokens to come back to
  REQUIRE(plane.drop(last));
  REQUIRE(plane.suspend(a));
  REQUIRE(plane.resume(a)->rows == 8);  // of the new generation
  e.check(a, 8);
  e.check(fresh, 9);
}

TEST_CASE("Rule 6: where no page can be had, a sole holder writes its indexed page in place",
          "[control][rules]")
{
  Engine e(2);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 8));
  REQUIRE(*plane.truncate(a, 6) == 6);
  StepId step = begin(plane);
  std::uint64_t const before = plane.digest();
  add(plane, step, a, {70});
  CHECK(plane.digest() != before);
  REQUIRE(plane.drop(step));
  CHECK(cached_rows(plane, numbers(1, 8)) == 7);  // in the index again
  step = begin(plane);
  add(plane, step, a, {70});
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).copies.empty());
  e.finish(step, {{70}});
  e.check(a, 7);
  CHECK(cached_rows(plane, numbers(1, 8)) == 4);
}

TEST_CASE("Rule 7: drop restores what was evicted, and its recency", "[control][rules]")
{
  Plane plane = make_plane(4);
  cache_only(plane, numbers(1, 4));
  cache_only(plane, numbers(101, 104));
  SequenceId const a = open(plane, {50});
  std::uint64_t const before = plane.digest();
  StepId const step = begin(plane);
  add(plane, step, a, numbers(50, 65));
  CHECK(plane.stats().cached == 0);
  REQUIRE(plane.drop(step));
  CHECK(plane.digest() == before);
  append(plane, a, numbers(50, 61));  // takes one of the two: the older
  CHECK(cached_rows(plane, numbers(1, 5)) == 0);
  CHECK(cached_rows(plane, numbers(101, 105)) == 4);
  check_sound(plane);
}

TEST_CASE("Rule 7: where the key was taken meanwhile, the restored page stays free",
          "[control][rules]")
{
  Plane plane = make_plane(4);
  cache_only(plane, numbers(1, 4));
  SequenceId const a = open(plane, {50});
  StepId const step = begin(plane);
  add(plane, step, a, numbers(50, 62));
  CHECK(cached_rows(plane, numbers(1, 5)) == 0);
  REQUIRE(plane.close(a));
  CHECK(plane.stats().free == 0);
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
  SequenceId const b = open(plane, {60});
  StepId const built = begin(plane);
  add(plane, built, b, numbers(60, 67));
  auto const twin = plane.open({.tokens = numbers(1, 5), .stream = other});
  REQUIRE(twin);
  auto const foreign = plane.begin(other);
  REQUIRE(foreign);
  add(plane, *foreign, *twin, numbers(1, 5));
  REQUIRE(plane.submit(*foreign));
  REQUIRE(plane.commit(*foreign));
  REQUIRE(plane.drop(built));
  check_sound(plane);
  CHECK(cached_rows(plane, numbers(1, 6)) == 4);
  CHECK(plane.stats().free == 2);
}

TEST_CASE("Rule 8: until they retire, a sequence belongs to the stream of its rows in flight",
          "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 8));
  REQUIRE(plane.submit(step));
  SequenceId const b = open(plane, numbers(1, 9));  // attached to pending pages
  CHECK(length_of(plane, b) == 8);
  auto const stranger = plane.open({.tokens = numbers(1, 9), .stream = other});
  REQUIRE(stranger);
  CHECK(length_of(plane, *stranger) == 0);
  auto const foreign = plane.begin(other);
  REQUIRE(foreign);
  std::uint64_t const before = plane.digest();
  CHECK(plane.add(*foreign, a, {Tokens{9}}).error().why == Why::busy);
  CHECK(plane.add(*foreign, b, {Tokens{9}}).error().why == Why::busy);
  CHECK(plane.digest() == before);
  CHECK(*plane.add(*foreign, *stranger, {numbers(1, 9)}) == 9);
  e.finish(step, {numbers(1, 8)});
  CHECK(*plane.add(*foreign, a, {Tokens{9}}) == 1);
  CHECK(*plane.add(*foreign, b, {Tokens{9}}) == 1);
  REQUIRE(plane.submit(*foreign));
  e.finish(*foreign, {numbers(1, 9), {9}, {9}});
  e.check(a, 9);
  e.check(b, 9);
  e.check(*stranger, 9);
}

TEST_CASE("Rule 8: resume names a stream as open does", "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 8));
  REQUIRE(plane.suspend(a));
  plane.forget({});
  SequenceId const b = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, b, numbers(1, 8));
  REQUIRE(plane.submit(step));
  SECTION("the step's own")
  {
    CHECK(plane.resume(a)->rows == 8);
    auto const foreign = plane.begin(other);
    REQUIRE(foreign);
    CHECK(plane.add(*foreign, a, {Tokens{9}}).error().why == Why::busy);
    e.finish(step, {numbers(1, 8)});
    e.check(a, 8);
  }
  SECTION("another")
  {
    CHECK(plane.resume(a, other)->rows == 0);
    e.finish(step, {numbers(1, 8)});
    e.check(a, 0);
  }
}
