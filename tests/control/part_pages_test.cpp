// SPDX-License-Identifier: Apache-2.0

// Part pages beside steps in flight: who keeps rows of a page that a step fills, and pages that steps hold one by one.

#include <cstdint>
#include <span>
#include <vector>
#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

}  // namespace

TEST_CASE("publish: a page that a step copies from does not join the span before it",
          "[control][publish][copies]")
{
  Engine e(5);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const first = begin(plane);
  add(plane, first, a, {7, 8});
  REQUIRE(plane.submit(first));
  SequenceId const f = fork(plane, a);
  StepId const second = begin(plane);
  add(plane, second, f, {9});  // copies the part page, which the step holds
  REQUIRE(plane.submit(second));
  REQUIRE(plane.close(f));
  e.finish(first, {{7, 8}});
  check_sound(plane);
  REQUIRE(plane.close(a));
  check_sound(plane);  // the page before it is idle, and a span of its own
  CHECK(plane.stats().cached == 1);
  e.finish(second, {{9}});
  CHECK(plane.stats().cached == 2);
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  check_sound(plane);
}

TEST_CASE("publish: pages held by as many, but not by the same, are spans of their own",
          "[control][publish][copies]")
{
  Engine e({.pages = 8, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 256});
  Plane& plane = e.plane;
  SequenceId const a = open(plane, {1});
  StepId const first = begin(plane);
  add_draft(plane, first, a, numbers(1, 6));  // drafts: nothing is pending
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  add_draft(plane, second, a, {7, 8});
  e.rows.run(plane.plan(first), {numbers(1, 6)});
  REQUIRE(plane.commit(first));
  REQUIRE(plane.submit(second));
  SequenceId const f = fork(plane, a);
  REQUIRE(plane.truncate(f, 6));
  StepId const third = begin(plane);
  add(plane, third, f, {9});  // one page from the pool, the part page is the step's
  REQUIRE(plane.submit(third));
  REQUIRE(plane.close(f));
  e.finish(second, {{7, 8}});
  check_sound(plane);
  REQUIRE(plane.close(a));
  check_sound(plane);
  e.finish(third, {{9}});
  check_sound(plane);
}

TEST_CASE("publish: two pages, one held by a sequence more and one by a step, are two spans",
          "[control][publish][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  auto const z = plane.open({.tokens = numbers(1, 8), .stream = StreamId{1}});
  auto const foreign = plane.begin(StreamId{1});
  REQUIRE((z && foreign));
  add(plane, *foreign, *z, numbers(1, 8));
  REQUIRE(
    plane.submit(*foreign));  // its first page is pending: nobody else may publish these tokens
  SequenceId const a = open(plane, {1});
  append_draft(plane, a, numbers(1, 6));
  StepId const second = begin(plane);
  add(plane, second, a, {7, 8});
  REQUIRE(plane.submit(second));
  SequenceId const x = fork(plane, a);
  REQUIRE(*plane.truncate(x, 4) == 4);
  SequenceId const f = fork(plane, a);
  StepId const third = begin(plane);
  add(plane, third, f, {9});
  REQUIRE(plane.submit(third));
  REQUIRE(plane.close(f));
  REQUIRE(plane.fail(*foreign));
  REQUIRE(plane.commit(second));
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  CHECK(plane.holders(plane.table(a)[0]) == plane.holders(plane.table(a)[1]));
  REQUIRE(plane.close(a));
  REQUIRE(plane.close(x));
  check_sound(plane);  // the first page is idle, the second one is not
  CHECK(plane.stats().cached == 1);
  REQUIRE(plane.commit(third));
  check_sound(plane);
  CHECK(plane.stats().cached == 2);
}

TEST_CASE("Rule 10: a cut or a fork keeps committed rows in a page that a chunk in flight fills",
          "[control][rules][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  PageId const part = plane.table(a)[1];
  StepId const first = begin(plane);
  add(plane, first, a, numbers(7, 12));  // fills two pages, which are pending
  bool const forked_open = GENERATE(false, true);
  SequenceId f{};
  if (forked_open) {
    f = fork(plane, a);
  }
  REQUIRE(plane.submit(first));
  if (!forked_open) {
    f = fork(plane, a);
  }
  SequenceId const b = open(plane, numbers(1, 13));  // attaches to both
  CHECK(length_of(plane, b) == 12);
  CHECK(*plane.truncate(a, 6) == 6);
  CHECK(length_of(plane, f) == 6);
  CHECK(plane.table(a)[1] == part);
  CHECK(plane.table(f)[1] == part);
  CHECK(*plane.truncate(b, 6) == 4);  // it never had rows 4 and 5 but with the step's
  check_sound(plane);
  StepId const second = begin(plane);
  add(plane, second, a, {70});
  add(plane, second, f, {80});
  REQUIRE(plane.submit(second));
  for (PageCopy const& copy : plane.plan(second).copies) {
    CHECK(copy.source == part);
    CHECK(copy.rows == 2);
  }
  SECTION("the step is committed")
  {
    e.finish(first, {numbers(7, 12)});
    CHECK(cached_rows(plane, numbers(1, 13)) == 12);
    e.finish(second, {{70}, {80}});
    e.check(a, 7);
    e.check(f, 7);
    e.check(b, 4);
  }
  SECTION("the step fails")
  {
    e.rows.apply(plane.plan(first));
    REQUIRE(plane.fail(first));
    CHECK(plane.cuts().empty());
    e.finish(second, {{70}, {80}});
    e.check(a, 7);
    e.check(f, 7);
    e.check(b, 4);
    CHECK(cached_rows(plane, numbers(1, 13)) == 4);
  }
  for (SequenceId const id : {a, f, b}) {
    REQUIRE(plane.close(id));
    check_sound(plane);
  }
}

TEST_CASE("Rule 10: who kept the part page of a chunk that failed goes on in it",
          "[control][rules][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const first = begin(plane);
  add(plane, first, a, numbers(7, 12));
  SequenceId const f = fork(plane, a);
  REQUIRE(plane.submit(first));
  SequenceId const b = open(plane, numbers(1, 13));
  REQUIRE(*plane.truncate(a, 5) == 5);
  REQUIRE(plane.fail(first));
  REQUIRE(plane.cuts().size() == 1);
  CHECK(plane.cuts()[0] == Cut{b, 4});
  e.check(a, 5);
  e.check(f, 6);
  e.append(a, {60});
  e.append(f, {7});
  e.check(a, 6);
  e.check(f, 7);
}

TEST_CASE(
  "Rule 10: an orphan to which nobody attached is not computed for a fork that keeps rows of "
  "before it",
  "[control][rules][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(7, 12));
  SequenceId const f = fork(plane, a);
  SequenceId const g = fork(plane, a);
  REQUIRE(plane.close(a));
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).chunks.empty());
  e.finish(step, {});
  e.check(f, 6);
  e.check(g, 6);
}

TEST_CASE("fork: of a sequence whose last page is pending in part, the span ends there",
          "[control][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(7, 16));
  REQUIRE(plane.submit(step));
  SequenceId const f = fork(plane, a);
  REQUIRE(plane.close(a));
  e.finish(step, {numbers(7, 16)});
  check_sound(plane);
  CHECK(plane.stats().cached == 2);
  e.check(f, 6);
}

#if defined(__cpp_exceptions)
TEST_CASE("submit: where `apply` throws, the step is as before", "[control][step]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 5));
  SequenceId const b = e.prefilled(numbers(101, 105));
  StepId const step = begin(plane);
  add(plane, step, a, {6});
  add(plane, step, b, {106});
  std::uint64_t const digest = plane.digest();
  CHECK_THROWS_AS(
    plane.submit(step, [](Plan const&) -> Result<Done> { throw std::runtime_error("pipe"); }),
    std::runtime_error);
  CHECK(plane.digest() == digest);
  CHECK(plane.plan(step).chunks.empty());
  check_sound(plane);
  REQUIRE(plane.close(a));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).chunks.size() == 1);
  e.rows.run(plane.plan(step), {{106}});
  REQUIRE(plane.commit(step, std::vector<Index>{0, 1}));
  e.check(b, 6);
}
#endif

TEST_CASE("submit: where `apply` says no, the step is as before", "[control][step]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 5));
  SequenceId const b = e.prefilled(numbers(101, 105));
  StepId const step = begin(plane);
  add(plane, step, a, {6});
  add(plane, step, b, {106});
  auto const refused = plane.submit(step, [](Plan const& plan) -> Result<Done> {
    return Error{
      Why::device_failed, "plan", static_cast<std::int64_t>(plan.chunks.size()), "was lost"};
  });
  REQUIRE_FALSE(refused);
  REQUIRE(plane.close(a));
  REQUIRE(plane.submit(step));
  e.rows.run(plane.plan(step), {{106}});
  REQUIRE(plane.commit(step, std::vector<Index>{0, 1}));
  e.check(b, 6);
}

TEST_CASE("reorder: a sequence of another domain is no parent", "[control][sampling]")
{
  Plane plane = make_plane(8);
  Domain const tenant({.salt = "tenant"});
  SequenceId const a = prefilled(plane, numbers(1, 6));
  auto const b = plane.open({.tokens = numbers(1, 6), .domain = &tenant});
  REQUIRE(b);
  append(plane, *b, numbers(1, 6));
  std::uint64_t const digest = plane.digest();
  std::vector<SequenceId> const ids{a, *b};
  auto const refused = plane.reorder(ids, std::vector<Index>{1, 1});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().why == Why::bad_config);
  CHECK_THAT(std::string(refused.error().message().text), Contains("of the same domain"));
  CHECK(plane.digest() == digest);
  CHECK(plane.reorder(ids, std::vector<Index>{0, 1}));
  check_sound(plane);
}
