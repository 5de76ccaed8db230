// SPDX-License-Identifier: Apache-2.0
// Who may have a page, or a table row, that a step in flight still reads: each case is a change of one line that random calls
// found late or never.

#include "support/catch.hpp"
#include "support/plane.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

SequenceId open_on(Plane& p, Tokens const& prompt, StreamId stream)
{
  auto const id = p.open({.tokens = prompt, .stream = stream});
  REQUIRE(id);
  return *id;
}

constexpr StreamId other_stream{1};

/// A sequence that has computed `prompt`, and whose pages are in no tree: it publishes no more.
SequenceId unindexed(Plane& p, Tokens const& prompt)
{
  SequenceId const id = open(p, prompt);
  p.forget(Domain{});
  append(p, id, prompt);
  return id;
}

/// `step` makes a copy of a cached page, and one for a fork of who got it; both are closed.
void leave_copies(Plane& p, StepId step)
{
  SequenceId const z = open(p, {1, 2, 3, 4, 5, 6, 99});  // two rows of the second page
  REQUIRE(p.info(z)->length == 6);
  add(p, step, z, {99});  // copies it
  SequenceId const f = fork(p, z);
  add_draft(p, step, f, {100});  // a copy of the copy is one of the page
  REQUIRE(p.close(f));
  REQUIRE(p.close(z));
}

}  // namespace

TEST_CASE(
  "Fences: a page that a step of another stream reads is copied before its one holder writes it",
  "[control]")
{
  Plane p = make_plane(16);
  SequenceId const x = unindexed(p, numbers(1, 8));
  SequenceId const y = fork(p, x);
  REQUIRE(*p.truncate(y, 5) == 5);
  PageId const shared = p.table(y)[1];
  fly(p, x, {9});  // reads rows 0 to 7
  REQUIRE(p.close(x));
  REQUIRE(p.holders(shared) == 1);

  StepId const writer = fly(p, y, {9}, other_stream);

  CHECK(p.table(y)[1] != shared);
  CHECK(p.plan(writer).copies.size() == 1);
  check_sound(p);
}

TEST_CASE("Fences: a page that two steps read waits for the newer one, whoever lets go last",
          "[control]")
{
  Plane p = make_plane(6);
  SequenceId const x = prefilled(p, numbers(1, 8));  // two pages are cached
  SequenceId const y = open(p, {1, 2, 3, 4, 5, 6, 7, 8, 10});
  StepId const one = fly(p, x, {9});
  fly(p, y, {10});
  REQUIRE(p.close(y));
  REQUIRE(p.close(x));
  REQUIRE(p.commit(one));

  SequenceId const z = open_on(p, numbers(100, 115), other_stream);
  auto const step = p.begin(other_stream);
  auto const added = p.add(*step, z, {.tokens = numbers(100, 115)});  // four pages; three are free

  REQUIRE_FALSE(added);
  CHECK(added.error().why == Why::no_pages);
  CHECK(added.error().evictable == 0);
  check_sound(p);
}

TEST_CASE("Fences: a page that a commit replaces by its twin waits for the step that reads it",
          "[control]")
{
  Plane p = make_plane(16);
  SequenceId const first_slot = open(p, {9});
  SequenceId const x = open(p, numbers(1, 8));
  SequenceId const z = open_on(p, numbers(1, 8), other_stream);
  StepId const other = fly(p, z, numbers(1, 8), other_stream);  // its pages are pending
  REQUIRE(p.commit(
    fly(p, x, numbers(1, 8), {}, true)));  // x has the same ones, and waits with publishing
  REQUIRE(p.close(first_slot));
  SequenceId const y = fork(p, x);  // in the first slot: it is looked at before x
  REQUIRE(p.commit(other));
  StepId const one = fly(p, x, {9});
  PageId const page = p.table(y)[1];
  fly(p, y, {10});  // reads `page`

  REQUIRE(p.commit(one));  // publishes x: z's pages replace its own, in y too

  CHECK(p.table(y)[1] != page);
  CHECK(p.holders(page) == 1);  // it waits
  check_sound(p);
}

TEST_CASE("Fences: where no page can be had, one that another stream reads is not written in place",
          "[control]")
{
  Plane p = make_plane(3);
  SequenceId const y = prefilled(p, numbers(1, 8));
  SequenceId const x = open_on(p, numbers(1, 8), other_stream);
  REQUIRE(p.info(x)->length == 7);
  fly(p, y, {9});  // reads both pages
  REQUIRE(p.close(y));

  auto const step = p.begin(other_stream);
  auto const added = p.add(*step, x, {.tokens = Tokens{88}});

  REQUIRE_FALSE(added);
  CHECK(added.error().why == Why::no_pages);
  check_sound(p);
}

TEST_CASE("Fences: a sequence cut while a step was built, and dropped, is read by the step before",
          "[control]")
{
  Plane p = make_plane(6);
  SequenceId const x = prefilled(p, numbers(1, 8));
  fly(p, x, {9});  // reads both pages
  StepId const two = begin(p);
  add(p, two, x, {10});
  REQUIRE(*p.truncate(x, 8) == 8);
  REQUIRE(p.drop(two));
  REQUIRE(p.close(x));

  SequenceId const z = open_on(p, numbers(100, 115), other_stream);
  auto const step = p.begin(other_stream);
  CHECK_FALSE(p.add(*step, z, {.tokens = numbers(100, 115)}));  // four pages; three are free
  check_sound(p);
}

TEST_CASE("Fences: the table row of a dropped step's sequence waits for the step before",
          "[control]")
{
  Plane p = make_plane({.pages = 16, .page_tokens = 4, .max_sequences = 1, .max_step_tokens = 64});
  SequenceId const x = open(p, {1, 2, 3});
  StepId const one = fly(p, x, {1, 2, 3});
  StepId const two = begin(p);
  add(p, two, x, {9});
  REQUIRE(p.close(x));
  REQUIRE(p.drop(two));

  auto const early = p.open({.tokens = Tokens{1, 2, 3}, .stream = other_stream});
  REQUIRE_FALSE(early);  // the kernels of step one read the only row
  CHECK(early.error().why == Why::no_rows);
  REQUIRE(p.commit(one));
  CHECK(p.open({.tokens = Tokens{1, 2, 3}}));
  check_sound(p);
}

TEST_CASE("Fences: a page that steps of two streams read waits for both", "[control]")
{
  Plane p = make_plane(6);
  SequenceId const x = prefilled(p, numbers(1, 8));  // two pages are cached
  SequenceId const y = open_on(p, {1, 2, 3, 4, 5, 6, 7, 8, 10}, other_stream);
  StepId const one = fly(p, x, {9});
  StepId const two = fly(p, y, {10}, other_stream);
  REQUIRE(p.close(x));
  REQUIRE(p.close(y));

  // Two pages are free, and one waits that the own stream's step wrote; the cached ones are read by both.
  for (std::uint32_t s = 0; s < 2; ++s) {
    SequenceId const z = open_on(p, numbers(100, 115), StreamId{s});
    auto const step = p.begin(StreamId{s});
    REQUIRE(step);
    auto const added = p.add(*step, z, {.tokens = numbers(100, 115)});
    REQUIRE_FALSE(added);
    CHECK(added.error().evictable == 0);
    REQUIRE(p.drop(*step));
    REQUIRE(p.close(z));
  }
  REQUIRE(p.commit(one));
  check_sound(p);
  SequenceId const z = open_on(p, numbers(100, 115), other_stream);
  auto const step = p.begin(other_stream);
  CHECK(
    p.add(*step, z, {.tokens = numbers(100, 115)}));  // what is left to read is its own stream's
  REQUIRE(p.drop(*step));
  REQUIRE(p.commit(two));
  check_sound(p);
}

TEST_CASE("Fences: a page that a copy holds too is not written while another stream reads it",
          "[control]")
{
  Plane p = make_plane(16);
  SequenceId const x = unindexed(p, numbers(1, 8));
  SequenceId const z = fork(p, x);
  REQUIRE(*p.truncate(x, 6) == 6);
  SequenceId const y = fork(p, x);
  PageId const shared = p.table(x)[1];
  fly(p, z, {9}, other_stream);  // reads rows 0 to 7
  REQUIRE(p.close(z));
  fly(p, y, {7});  // copies two rows, and keeps the page for that

  StepId const step = fly(p, x, {8});  // row 6

  CHECK(p.table(x)[1] != shared);
  CHECK(p.plan(step).copies.size() == 1);
  check_sound(p);
}

TEST_CASE("Fences: they begin at the oldest of two steps, wherever its object lies", "[control]")
{
  Plane p = make_plane(7);
  SequenceId const x = prefilled(p, numbers(1, 8));  // two pages are cached
  SequenceId const y = prefilled(p, numbers(21, 22));
  StepId const one = fly(p, y, {23});
  fly(p, x, {9});  // reads the cached pages
  REQUIRE(p.commit(one));
  fly(p, y, {24});  // in the object of step one, before or behind step two's
  REQUIRE(p.close(x));

  SequenceId const z = open_on(p, numbers(100, 115), other_stream);
  auto const step = p.begin(other_stream);
  auto const added = p.add(*step, z, {.tokens = numbers(100, 115)});  // four pages; three are free
  REQUIRE_FALSE(added);
  CHECK(added.error().evictable == 0);
  check_sound(p);
}

TEST_CASE(
  "Fences: a copy that is never made leaves its page, and those before it, to the step in flight",
  "[control]")
{
  Plane p = make_plane(16);
  cache_only(p, numbers(1, 8));
  SequenceId const w = prefilled(p, {50});
  fly(p, w, {51});
  StepId const step = begin(p);
  leave_copies(p, step);
  REQUIRE(p.drop(step));
  check_sound(p);
}

TEST_CASE("Fences: what an open step let go of waits for the steps before it, never for itself",
          "[control]")
{
  Plane p = make_plane(16);
  cache_only(p, numbers(1, 8));
  StepId const one = fly(p, prefilled(p, {50}), {51});
  StepId const two = begin(p);
  leave_copies(p, two);
  REQUIRE(p.fail(one));  // and what nobody wants of step two
  check_sound(p);
  REQUIRE(p.submit(two));
  check_sound(p);
}

TEST_CASE(
  "Fences: rows that were cut off are read to the end though their sequence copies the page away",
  "[control]")
{
  Plane p = make_plane(16);
  SequenceId const a = prefilled(p, numbers(1, 6));
  SequenceId const b = open(p, {1, 2, 99});  // two rows of the first page
  REQUIRE(p.info(b)->length == 2);
  PageId const shared = p.table(b)[0];
  p.forget(Domain{});            // it is in no tree
  fly(p, a, {7}, other_stream);  // reads rows 0 to 5
  REQUIRE(*p.truncate(a, 2) == 2);
  fly(p, a, {50}, other_stream);  // copies two rows
  REQUIRE(p.table(a)[0] != shared);

  StepId const step = fly(p, b, {98});

  CHECK(p.table(b)[0] != shared);
  CHECK(p.plan(step).copies.size() == 1);
  check_sound(p);
}

TEST_CASE("Fences: of a fenced span that is cut in two no part leaves before the other",
          "[control]")
{
  Plane p = make_plane(16);
  cache_only(p, numbers(1, 4));
  SequenceId const z = open_on(p, {1, 2, 3, 4, 99}, other_stream);
  fly(p, z, {99}, other_stream);  // reads the first page
  REQUIRE(p.close(z));
  SequenceId const x = open(p, numbers(1, 12));
  append_draft(p, x, numbers(5, 12));  // the two behind it are of the same span
  REQUIRE(p.close(x));
  auto const pin = p.pin({.tokens = numbers(1, 4)});
  REQUIRE(pin);
  check_sound(p);
  REQUIRE(p.close(open(p, numbers(1, 9))));  // two pages
  check_sound(p);
}

TEST_CASE("Fences: a page that steps of two streams read is written by neither, nor by a third",
          "[control]")
{
  Plane p = make_plane(16);
  SequenceId const x = unindexed(p, numbers(1, 8));
  SequenceId const w = fork(p, x);
  SequenceId const y = fork(p, x);
  REQUIRE(*p.truncate(y, 5) == 5);
  PageId const shared = p.table(y)[1];
  fly(p, x, {9}, other_stream);  // read rows 0 to 7
  fly(p, w, {9}, StreamId{2});
  REQUIRE(p.close(x));
  REQUIRE(p.close(w));
  REQUIRE(p.holders(shared) == 1);

  StepId const writer = fly(p, y, {9});

  CHECK(p.table(y)[1] != shared);
  CHECK(p.plan(writer).copies.size() == 1);
  check_sound(p);
}

TEST_CASE("Fences: a page that was evicted comes back only from the top of those that wait",
          "[control]")
{
  Plane p = make_plane(6);
  SequenceId const x = prefilled(p, numbers(1, 8));
  SequenceId const v = prefilled(p, {50});
  StepId const one = begin(p);
  add(p, one, x, {9});
  add(p, one, v, {51});
  REQUIRE(p.submit(one));
  REQUIRE(p.close(x));  // two pages are cached and fenced, one waits
  SequenceId const y = open(p, numbers(100, 115));
  StepId const step = begin(p);
  add(p, step, y, numbers(100, 115));  // two were free, one waited, one is evicted
  REQUIRE(p.stats().cached == 1);
  REQUIRE(p.close(y));  // the step keeps all four
  REQUIRE(p.close(v));  // its page waits
  REQUIRE(p.drop(step));
  CHECK(p.stats().cached == 1);
  check_sound(p);
}

TEST_CASE("Fences: what a dropped step let go of is fenced with the pages before it", "[control]")
{
  Plane p = make_plane(16);
  SequenceId const w = prefilled(p, {50});
  SequenceId const s = prefilled(p, numbers(1, 8));
  fly(p, w, {51});
  StepId const step = begin(p);
  add(p, step, s, {9});
  REQUIRE(p.close(fork(p, s)));  // the step keeps both pages for it
  REQUIRE(p.drop(step));         // and the step before may read them, as far as anybody knows
  REQUIRE(p.close(s));           // which no step binds any more
  check_sound(p);
}

TEST_CASE("Fences: pages of another stream's steps take nothing from what a stream can evict",
          "[control]")
{
  Plane p = make_plane(6);
  cache_only(p, numbers(1, 8));
  SequenceId const z = open_on(p, {1, 2, 3, 4, 5, 6, 99}, other_stream);
  fly(p, z, {99}, other_stream);  // copies the second page, and holds it
  REQUIRE(p.close(z));            // the first one is idle, and fenced
  SequenceId const v = prefilled(p, numbers(20, 23));
  fly(p, v, {24});
  REQUIRE(p.close(v));  // one page is cached, one waits: both for this stream
  SequenceId const y = open(p, numbers(100, 115));
  StepId const step = begin(p);
  auto const refused = p.add(step, y, {.tokens = numbers(100, 115)});  // a page more than there is
  REQUIRE_FALSE(refused);
  CHECK(refused.error().evictable == 1);
  add(p, step, y, numbers(100, 111));  // one is free
  check_sound(p);
}

TEST_CASE("Step: a sequence that came back from another stream takes no second chunk in it",
          "[control]")
{
  Plane p = make_plane(32);
  SequenceId const s = prefilled(p, numbers(1, 9));
  p.forget(Domain{});
  SequenceId const b = open(p, numbers(1, 9));
  fly(p, b, numbers(1, 9));  // its pages are pending
  StepId const step = begin(p);
  add(p, step, s, {10});
  REQUIRE(p.suspend(s));
  REQUIRE(p.resume(s, other_stream));
  REQUIRE(p.info(s)->length == 0);
  REQUIRE(p.commit(fly(p, s, numbers(1, 9), other_stream)));
  REQUIRE(p.suspend(s));
  REQUIRE(p.resume(s));
  REQUIRE(p.info(s)->length == 8);  // of this stream again
  CHECK_FALSE(p.add(step, s, {.tokens = Tokens{9}}));
  check_sound(p);
}

TEST_CASE("Copies: a chunk behind a draft copies the page in which its rows begin if none is kept",
          "[control]")
{
  Plane p = make_plane(16);
  SequenceId const w = prefilled(p, {50});
  StepId const one = fly(p, w, {51});
  StepId const two = fly(p, w, {52});  // both objects of steps have room from now on
  REQUIRE(p.commit(one));
  REQUIRE(p.commit(two));
  SequenceId const s = prefilled(p, {1, 2});
  fly(p, s, {3, 4, 5}, {}, true);  // ends in the second page
  fork(p, s);                      // has the first one, too
  StepId const step = fly(p, s, {7});
  CHECK(p.plan(step).copies.size() == 1);
  check_sound(p);
}
