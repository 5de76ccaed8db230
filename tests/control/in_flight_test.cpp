// SPDX-License-Identifier: Apache-2.0
// What copies, moves of sequences and hits leave behind while steps are in flight: each case is a change of one line that
// random calls found late or never.

#include <kvcache/replace/sieve.hpp>

#include "support/catch.hpp"
#include "support/plane.hpp"

using namespace kvcache;
using namespace kvcache_test;

TEST_CASE("In flight: a part page that a step copies from does not become pending", "[control]")
{
  Plane p = make_plane(16);
  SequenceId const x = prefilled(p, numbers(1, 6));
  SequenceId const y = fork(p, x);
  StepId const one = begin(p);
  add(p, one, y, {9});  // copies the part page
  REQUIRE(p.submit(one));
  StepId const two = begin(p);
  add(p, two, x, numbers(11, 16));  // fills the part page and another
  REQUIRE(p.submit(two));

  REQUIRE(p.fail(one));  // y has the part page again
  check_sound(p);
  REQUIRE(p.close(x));
  check_sound(p);
  REQUIRE(p.commit(two));
  check_sound(p);
}

TEST_CASE(
  "In flight: a hit cut back before a torn picture is not one on another stream's pending page",
  "[control]")
{
  Plane p = make_plane(8);
  Media const cat({.digest = Text("cat", 3)});
  Domain const away({.salt = Text("y", 1)});
  std::vector<MediaSpan> const media{{.item = &cat, .first = 2, .rows = 4, .atomic = true}};
  auto const compute = [&](Prompt const& prompt) {
    auto const x = p.open(prompt);
    REQUIRE(x);
    StepId const step = begin(p);
    REQUIRE(p.add(step, *x, {.tokens = prompt.tokens}));
    REQUIRE(p.submit(step));
    REQUIRE(p.commit(step));
    REQUIRE(p.close(*x));
  };
  Tokens const picture{1, 2, 0, 0, 0, 0, 7, 8};
  Tokens const text{1, 2, 50, 51, 52};
  compute({.tokens = picture, .media = media});             // two pages are cached
  compute({.tokens = numbers(100, 127), .domain = &away});  // seven: the picture's second leaves
  p.forget(away);
  auto const w = p.open({.tokens = text, .stream = StreamId{1}});
  REQUIRE(w);
  auto const step = p.begin(StreamId{1});
  REQUIRE(p.add(*step, *w, {.tokens = text}));
  REQUIRE(p.submit(*step));  // its first page begins like the picture's, and is not written yet

  auto const z = p.open({.tokens = picture, .media = media});

  REQUIRE(z);
  CHECK(p.info(*z)->length == 0);
  CHECK(p.table(*z).empty());
  check_sound(p);
}

TEST_CASE("In flight: a sequence is in a step once, over suspend, resume and reorder", "[control]")
{
  Plane p = make_plane(64);
  SequenceId const a = prefilled(p, numbers(1, 5));
  SequenceId const b = prefilled(p, numbers(21, 25));
  StepId const step = begin(p);
  add(p, step, a, {9});
  REQUIRE(p.suspend(a));
  REQUIRE(p.resume(a));
  std::vector<SequenceId> const ids{a, b};
  std::vector<Index> const parents{1, 0};
  REQUIRE(p.reorder(ids, parents));

  Tokens const next{9};
  auto const again = p.add(step, a, {.tokens = next});
  REQUIRE_FALSE(again);
  CHECK(again.error().why == Why::busy);
  CHECK(p.add(step, b, {.tokens = next}));
  check_sound(p);
}

TEST_CASE(
  "In flight: a copy whose sequence was cut while its step was built reaches the table by the next "
  "plan",
  "[control]")
{
  Plane p = make_plane(16);
  SequenceId const x = prefilled(p, numbers(1, 6));
  fork(p, x);
  PageId const shared = p.table(x)[1];
  StepId const two = begin(p);
  add(p, two, x, {9});  // copies the part page
  REQUIRE(*p.truncate(x, 6) == 6);
  REQUIRE(p.table(x)[1] != shared);
  REQUIRE(p.submit(two));
  REQUIRE(p.commit(two));
  StepId const three = begin(p);
  add(p, three, x, {9});
  REQUIRE(p.submit(three));

  Plan const& plan = p.plan(three);
  REQUIRE(plan.tables.size() == 1);
  TableDelta const& delta = plan.tables[0];
  REQUIRE(delta.first <= 1);
  REQUIRE(delta.first + delta.count == 2);
  CHECK(plan.ids[delta.ids_at + 1 - delta.first] == p.table(x)[1]);
  check_sound(p);
}

TEST_CASE(
  "In flight: under SIEVE a span in a forgotten one's place has neither its mark nor its turn",
  "[control]")
{
  auto p = make_plane<Control<PageAllocator, RadixTree, Sieve>>(4);
  cache_only(p, numbers(1, 4));
  p.forget(Domain{});
  cache_only(p, numbers(11, 14));
  cache_only(p, numbers(21, 24));
  cache_only(p, numbers(31, 42));  // three pages: two are free

  CHECK(cached_rows(p, {11, 12, 13, 14, 0}) == 0);
  CHECK(cached_rows(p, {21, 22, 23, 24, 0}) == 4);
  check_sound(p);
}

TEST_CASE(
  "In flight: a chunk behind drafts copies the page where it may begin, and no more rows than a "
  "page has",
  "[control]")
{
  Plane p = make_plane(16);
  SequenceId const s = prefilled(p, numbers(1, 5));
  fork(p, s);  // shares the part page
  StepId const one = begin(p);
  add_draft(p, one, s, {6, 7, 8, 9});  // copies it
  REQUIRE(p.submit(one));
  SequenceId const g = fork(p, s);  // five rows, the last one in the copy
  PageId const copy = p.table(s)[1];
  REQUIRE(p.table(g)[1] == copy);

  StepId const two = begin(p);
  add(p, two, s, {12});          // row 9 at most, row 5 at least
  CHECK(p.table(s)[1] != copy);  // g reads it
  REQUIRE(p.submit(two));

  REQUIRE(p.plan(two).copies.size() == 1);
  CHECK(p.plan(two).copies[0].source == copy);
  CHECK(p.plan(two).copies[0].rows == 4);
  CHECK(p.plan(two).chunks[0].first_index == 9);
  CHECK(p.plan(two).chunks[0].slack == 4);
  check_sound(p);
}

TEST_CASE("In flight: a sequence of a dropped step is as idle as before", "[control]")
{
  Plane p = make_plane(16);
  SequenceId const a = prefilled(p, numbers(1, 6));
  SequenceId const b = prefilled(p, numbers(11, 16));
  StepId const one = begin(p);
  add(p, one, a, {7});
  REQUIRE(p.submit(one));
  StepId const two = begin(p);
  add(p, two, b, {17});
  REQUIRE(p.drop(two));

  std::vector<SequenceId> const ids{b};
  std::vector<Index> const parents{0};
  CHECK(p.reorder(ids, parents));
  check_sound(p);
}

TEST_CASE(
  "In flight: behind drafts that may be refused a shared page before the last one is copied",
  "[control]")
{
  Plane p = make_plane(16);
  SequenceId const s = prefilled(p, numbers(1, 3));
  StepId const one = begin(p);
  add_draft(p, one, s, {4, 5});  // row 3 in place, row 4 in a new page
  REQUIRE(p.submit(one));
  SequenceId const g = fork(p, s);  // three rows
  PageId const shared = p.table(s)[0];
  REQUIRE(p.table(g)[0] == shared);
  StepId const two = begin(p);
  add(p, two, s, {6});  // row 5, or row 3 if both drafts are refused
  CHECK(p.table(s)[0] != shared);
  check_sound(p);
}

TEST_CASE("In flight: a row planned by count, in place, needs its name at commit", "[control]")
{
  Plane p = make_plane(16);
  SequenceId const s = prefilled(p, numbers(1, 2));
  append(p, s, {3});  // arrays have their room
  REQUIRE(*p.truncate(s, 2) == 2);
  StepId const step = begin(p);
  REQUIRE(p.add(step, s, {.count = 1}));
  REQUIRE(p.submit(step));
  CHECK_FALSE(p.commit(step));
  Index const one[] = {1};
  CHECK_FALSE(p.commit(step, one));
  Tokens const name{7};
  Outcome const outcome{.accepted = 1, .tokens = name};
  REQUIRE(p.commit(step, std::span(&outcome, 1)));
  CHECK(p.tokens(s)[2] == 7);
  check_sound(p);
}
