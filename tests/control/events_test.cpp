// SPDX-License-Identifier: Apache-2.0

#include <set>

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

Plane make(std::uint32_t event_capacity, PageCount pages = 8)
{
  return make_plane({.pages = pages,
                     .page_tokens = 4,
                     .max_sequences = 8,
                     .max_step_tokens = 256,
                     .event_capacity = event_capacity});
}

/// The kinds and pages of all events that are kept: "+1 +2 -2 x".
std::string told(Plane const& plane)
{
  std::string text;
  EventLog const& log = plane.events();
  for (std::uint64_t n = log.oldest(); n < log.next(); ++n) {
    Event const event = log.at(n);
    CHECK(event.number == n);
    text += event.kind == EventKind::cleared ? "x" : event.kind == EventKind::stored ? "+" : "-";
    text += event.kind == EventKind::cleared ? " " : std::to_string(event.page.value) + " ";
  }
  return text;
}

}  // namespace

TEST_CASE("Events: stored pages tell their parent and tokens, in order and by number",
          "[control][events]")
{
  Plane plane = make(16);
  SequenceId const a = prefilled(plane, numbers(1, 9));
  EventLog const& log = plane.events();
  REQUIRE(log.next() == 3);
  REQUIRE(log.oldest() == 1);
  Event const second = log.at(2);
  CHECK(second.kind == EventKind::stored);
  CHECK(second.page.value == pages(plane, a)[1]);
  CHECK(second.parent.value == pages(plane, a)[0]);
  CHECK(Tokens(second.tokens.begin(), second.tokens.end()) == numbers(5, 8));
  CHECK(second.domain == *plane.domain_id(Domain{}));
  append(plane, a, {10, 11, 12});
  CHECK(told(plane) == "+1 +2 +3 ");
}

TEST_CASE("Events: pages are told when they are committed, not while they are pending",
          "[control][events]")
{
  Plane plane = make(16);
  SequenceId const a = open(plane, numbers(1, 9));
  StepId step = begin(plane);
  add(plane, step, a, numbers(1, 8));
  REQUIRE(plane.submit(step));
  CHECK(told(plane).empty());
  REQUIRE(plane.fail(step));
  CHECK(told(plane).empty());
  step = begin(plane);
  add(plane, step, a, numbers(1, 8));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
  CHECK(plane.events().next() == 3);
}

TEST_CASE("Events: evicted pages are removed, deepest first; a dropped step tells them back",
          "[control][events]")
{
  Plane plane = make(16, 3);
  cache_only(plane, numbers(1, 8));
  SequenceId const b = open(plane, numbers(50, 60));
  StepId const step = begin(plane);
  add(plane, step, b, numbers(50, 60));
  CHECK(told(plane) == "+1 +2 -2 -1 ");
  REQUIRE(plane.drop(step));
  CHECK(told(plane) == "+1 +2 -2 -1 +1 +2 ");
  plane.forget(Domain{});
  CHECK(told(plane) == "+1 +2 -2 -1 +1 +2 x ");
}

TEST_CASE("Events: a page that leaves the index to be written in place is removed",
          "[control][events]")
{
  Plane plane = make(16, 2);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  REQUIRE(*plane.truncate(a, 6) == 6);
  append(plane, a, {70});
  CHECK(told(plane) == "+1 +2 -2 ");
}

TEST_CASE("Events: a reader that is slower than the ring sees the gap, and a snapshot closes it",
          "[control][events]")
{
  Plane plane = make(4, 8);
  cache_only(plane, numbers(1, 8));
  EventCursor cursor;
  EventLog const& log = plane.events();
  for (std::uint64_t n = log.oldest(); n < log.next(); ++n) {
    CHECK(cursor.take(n) == EventCursor::Verdict::apply);
  }
  cache_only(plane, numbers(20, 39));  // five pages: one more than the ring holds
  CHECK(log.oldest() == 4);
  CHECK(cursor.take(log.oldest()) == EventCursor::Verdict::waiting);
  std::set<std::uint32_t> stored;
  std::uint64_t number = 0;
  plane.for_each_stored([&](Event const& event) {
    CHECK((event.parent == zero_page || stored.count(event.parent.value) == 1));
    stored.insert(event.page.value);
    number = event.number;
  });
  CHECK(stored.size() == 7);
  cursor.jump(number);
  CHECK(number == log.next() - 1);
  append(plane, open(plane, numbers(60, 64)), numbers(60, 63));
  CHECK(cursor.take(log.next() - 1) == EventCursor::Verdict::apply);
}

TEST_CASE("Events: none are kept unless they are asked for", "[control][events]")
{
  Plane plane = make(0);
  cache_only(plane, numbers(1, 8));
  CHECK(plane.events().next() == 1);
  CHECK(plane.events().oldest() == 1);
  CHECK_FALSE(Plane::create({.pages = 1, .page_tokens = 4, .event_capacity = 1U << 27}));
}
