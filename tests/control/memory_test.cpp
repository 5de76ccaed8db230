// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "control/steady_load.hpp"
#include "support/counting_new.hpp"
#include "support/hungry_tree.hpp"
#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// Each change of its index may fail.
using Hungry = Control<PageAllocator, HungryTree, Lru>;

/// Makes each allocation of `call` fail in turn on a fresh plane: it must say `no_memory` and change nothing,
/// and must succeed on the same plane once there is memory. The last `spare` allocations are those that the
/// call can do without. Returns how many allocations there were.
template <class Prepare, class Call>
int check_each_failure(Prepare&& prepare, Call&& call, int spare = 0)
{
  for (int n = 0; n < 1000; ++n) {
    CAPTURE(n);
    Hungry plane = make_plane<Hungry>(24);
    auto const context = prepare(plane);
    std::uint64_t const before = plane.digest();
    Why why = Why::ok;
    bool struck = false;
    {
      FailAllocation const failing(n);
      why = call(plane, context);
      struck = failing.struck();
    }
    check_sound(plane);
    if (!struck) {
      CHECK(why == Why::ok);
      return n;
    }
    if (why == Why::ok) {
      REQUIRE(spare > 0);
      --spare;
      continue;
    }
    REQUIRE(why == Why::no_memory);
    CHECK(plane.digest() == before);
    CHECK(call(plane, context) == Why::ok);
    check_sound(plane);
  }
  FAIL("there is no end of allocations");
  return -1;
}

template <class R>
Why why_of(R const& result)
{
  return result ? Why::ok : result.error().why;
}

}  // namespace

TEST_CASE("Control: open without memory changes nothing", "[control][memory]")
{
  Tokens prompt =
    numbers(1, 7);  // leaves what is cached inside the second page, which makes a split
  prompt.insert(prompt.end(), 50, 100);
  int const tried = check_each_failure(
    [](Hungry& plane) {
      cache_only(plane, numbers(1, 12));
      return 0;
    },
    [&](Hungry& plane, int) { return why_of(plane.open({.tokens = prompt})); });
  CHECK(tried >= 2);
}

TEST_CASE("Control: fork without memory changes nothing", "[control][memory]")
{
  int const tried =
    check_each_failure([](Hungry& plane) { return prefilled(plane, numbers(1, 20)); },
                       [](Hungry& plane, SequenceId id) { return why_of(plane.fork(id)); });
  CHECK(tried == 2);
}

TEST_CASE("Control: truncate without memory changes nothing", "[control][memory]")
{
  int const tried =
    check_each_failure([](Hungry& plane) { return prefilled(plane, numbers(1, 20)); },
                       [](Hungry& plane, SequenceId id) { return why_of(plane.truncate(id, 7)); });
  CHECK(tried >= 1);
}

TEST_CASE("Control: add without memory changes nothing, evictions and copies included",
          "[control][memory]")
{
  struct Context {
    StepId step;
    SequenceId id;
  };
  Tokens const tokens = numbers(300, 360);
  int const tried = check_each_failure(
    [](Hungry& plane) {
      cache_only(plane, numbers(101, 140));
      cache_only(plane, numbers(201, 230));
      SequenceId const a = prefilled(plane, numbers(1, 20));
      REQUIRE(plane.truncate(a, 18));
      return Context{begin(plane), a};
    },
    [&](Hungry& plane, Context const& c) { return why_of(plane.add(c.step, c.id, {tokens})); },
    8);  // its pages are then pending for nobody
  CHECK(tried >= 5);
}

TEST_CASE("Control: submit without memory can be tried again", "[control][memory]")
{
  int const tried = check_each_failure(
    [](Hungry& plane) {
      SequenceId const a = prefilled(plane, numbers(1, 30));
      std::vector<SequenceId> forks;
      for (int i = 0; i < 7; ++i) {
        forks.push_back(fork(plane, a));
      }
      StepId const step = *plane.begin(StreamId{3});
      for (SequenceId const f :
           forks) {  // whose tables are all new to the pools: more than the plan has room for
        add(plane, step, f, {50, 51});
      }
      add(plane, step, a, {31, 32});
      return step;
    },
    [](Hungry& plane, StepId step) {
      auto const submitted = plane.submit(step);
      if (submitted) {
        CHECK(plane.plan(step).stream == StreamId{3});
        CHECK(plane.plan(step).chunks.size() == 8);
        CHECK(plane.plan(step).copies.size() == 7);
        CHECK(plane.plan(step).tables.size() == 7);
        CHECK(plane.plan(step).ids.size() == 56);
      } else {
        CHECK(plane.plan(step).chunks.empty());
      }
      return why_of(submitted);
    });
  CHECK(tried >= 1);
}

TEST_CASE("Control: drop, fail, commit, close and forget end well without memory",
          "[control][memory]")
{
  for (int n = 0; n < 12; ++n) {
    for (int const call : {0, 1, 2, 3, 4}) {
      CAPTURE(n, call);
      Hungry plane = make_plane<Hungry>(12);
      cache_only(plane, numbers(101, 124));
      SequenceId const a = prefilled(plane, numbers(1, 6));
      SequenceId const f = fork(plane, a);
      StepId const step = begin(plane);
      add(plane, step, f, numbers(50, 64));
      add(plane, step, a, numbers(7, 20));
      if (call < 2) {
        REQUIRE(plane.submit(step));
      }
      {
        FailAllocation const failing(n);
        switch (call) {
          case 0:
            CHECK(plane.commit(step));  // rows are real; what cannot be published is not
            break;
          case 1:
            CHECK(plane.fail(step));
            break;
          case 2:
            CHECK(plane.drop(step));  // what cannot go back into the tree is free
            break;
          case 3:
            CHECK(plane.close(f));
            break;
          default:
            plane.forget({});
            break;
        }
      }
      check_sound(plane);
      CHECK(plane.info(a)->length == (call == 0 ? 20 : 6));
      if (call > 2) {
        CHECK(plane.drop(step));
        check_sound(plane);
      }
      if (call == 0) {
        append(plane, a, numbers(21, 24));  // the next commit publishes what was left
        CHECK(plane.probe({.tokens = numbers(1, 25)}).rows == 24);
        check_sound(plane);
      }
    }
  }
}

TEST_CASE("Control: arrays that outgrow their first room without memory change nothing",
          "[control][memory]")
{
  // Spans for which there was no room at first: the tree's own list, the policy, the list of fenced ones with the tags, the
  // tables of children.
  Tokens const text = numbers(1, 8);
  for (int const spans : {1025, 1026, 1366}) {
    int struck = 0;
    for (int n = 0; n < 100; ++n) {
      CAPTURE(spans, n);
      Plane plane = make_plane({.pages = 1500, .page_tokens = 4, .max_sequences = 8});
      for (int i = 1; i < spans; ++i) {
        cache_only(plane, {100 + i, 1, 1, 1, 1});
      }
      SequenceId const a = prefilled(plane, {1, 2, 3});
      StepId const step = begin(plane);
      add(plane, step, a, {4});
      REQUIRE(plane.submit(step));
      {
        FailAllocation const failing(n);
        REQUIRE(plane.commit(step));  // what cannot be published is not
        if (!failing.struck()) {
          CHECK(cached_rows(plane, text) == 4);
          break;
        }
      }
      ++struck;
      check_sound(plane);
      CHECK(cached_rows(plane, text) == 0);
      append(plane, a, {5});
      CHECK(cached_rows(plane, text) == 4);
      check_sound(plane);
    }
    CHECK(struck == (spans == 1025 ? 1 : spans == 1026 ? 3 : 2));
  }
}

namespace {

/// 256 sequences that each decode 200 tokens; allocations in steps that only fill a page, and in the others.
struct Decoded {
  std::uint64_t inside = 0;
  std::uint64_t at_page_ends = 0;
  int steps_inside = 0;
};

Decoded decode(Plane& plane, std::vector<SequenceId> const& ids)
{
  Decoded out;
  std::vector<Token> next(1);
  for (Token token = 0; token < 200; ++token) {
    next[0] = token;
    Index const length = plane.info(ids[0])->length;
    Allocations const during;
    auto const step = plane.begin();
    bool good = static_cast<bool>(step);
    for (SequenceId const id : ids) {
      good = good && plane.add(*step, id, {next});
    }
    good = good && plane.submit(*step) && plane.commit(*step);
    std::uint64_t const counted = during.count();
    REQUIRE(good);
    bool const takes_page = length % 16 == 0;
    bool const publishes = (length + 1) % 16 == 0;
    (takes_page || publishes ? out.at_page_ends : out.inside) += counted;
    out.steps_inside += takes_page || publishes ? 0 : 1;
  }
  return out;
}

}  // namespace

TEST_CASE("Control: a step in steady state allocates nothing", "[control][memory]")
{
  constexpr int sequences = 256;
  Plane plane = make_plane({.pages = 8192,
                            .page_tokens = 16,
                            .max_sequences = sequences,
                            .max_sequence_tokens = 512,
                            .max_step_tokens = 16384});
  std::vector<SequenceId> ids;
  for (int i = 0; i < sequences; ++i) {
    ids.push_back(prefilled(plane, numbers(i * 1000, i * 1000 + 40)));
  }
  Decoded const first = decode(plane, ids);
  // Each sequence's list of tokens doubles as it grows, from 57 to 114 to 228 to 456, and so do the step's
  // own lists: that and nothing else.
  CHECK(first.inside <= 3 * sequences + 24);

  for (SequenceId const id : ids) {
    REQUIRE(*plane.truncate(id, 32) == 32);  // a page's end: nothing to copy
  }
  Decoded const again = decode(plane, ids);
  CHECK(again.steps_inside == 175);
  CHECK(again.inside == 0);
  CHECK(again.at_page_ends <= 16);  // the index is larger than it was
  check_sound(plane);
}

TEST_CASE("Control: a cache that is full asks the heap for nothing, whatever its steps do",
          "[control][memory]")
{
  // The promise: once each slot has had a sequence as long as those to come, and the cache has been full for a while.
  for (std::uint64_t const seed : {1U, 2U, 3U, 4U}) {
    CAPTURE(seed);
    Plane plane = make_plane({.pages = 500,
                              .page_tokens = 16,
                              .max_sequences = SteadyLoad::max_running,
                              .max_sequence_tokens = SteadyLoad::longest,
                              .max_step_tokens = 2048,
                              .event_capacity = 64});
    SteadyLoad load(plane, seed);
    load.use_all_slots();
    for (int step = 0; step < 2000; ++step) {
      load.step();
    }
    std::uint64_t const evicted = plane.stats().evicted_pages;
    std::uint64_t const opened = load.opened;
    std::uint64_t const forked = load.forked;
    load.forget_counts();
    for (int step = 0; step < 2000; ++step) {
      load.step();
    }
    for (int call = 0; call < SteadyLoad::calls; ++call) {
      CAPTURE(SteadyLoad::names[static_cast<std::size_t>(call)]);
      CHECK(load.count(static_cast<SteadyLoad::Call>(call)) == 0);
    }
    CHECK(plane.stats().evicted_pages > evicted + 8000);
    CHECK(load.opened > opened + 500);
    CHECK(load.forked > forked + 50);
    check_sound(plane);
  }
}

namespace {

/// A picture in rows 2 to 6, and one in the next turn.
struct Pictures {
  Media cat{{.digest = "cat", .kind = {}, .dtype = {}, .dims = {}, .options = {}}};
  Tokens prompt = {1, 2, 9, 9, 9, 9, 9, 3, 4};
  std::vector<MediaSpan> media = {{.item = &cat, .first = 2, .rows = 5, .atomic = true},
                                  {.item = nullptr, .first = 7, .rows = 2, .atomic = true}};
  Tokens turn = {5, 9, 9, 6};
  std::vector<MediaSpan> later = {{.item = &cat, .first = 10, .rows = 2}};
};

}  // namespace

TEST_CASE(
  "Control: arrays of closed sequences go back, but for a reserve that opens need no heap for",
  "[control][memory]")
{
  Plane p =
    make_plane({.pages = 1024, .page_tokens = 16, .max_sequences = 512, .max_step_tokens = 8192});
  Tokens const text = numbers(1, 8000);
  Tokens const some = numbers(1, 100);
  cache_only(p, text);
  std::vector<SequenceId> ids;
  ids.reserve(512);
  std::int64_t const before = live_bytes;
  for (int burst = 0; burst < 3; ++burst) {
    while (ids.size() < 512) {
      ids.push_back(ids.size() % 2 == 0 ? open(p, text) : fork(p, ids.back()));
    }
    CHECK(live_bytes - before > std::int64_t{8} << 20);
    for (SequenceId const id : ids) {
      REQUIRE(p.close(id));
    }
    ids.clear();
    CHECK(live_bytes - before <= std::int64_t{1} << 20);
    REQUIRE(p.check_invariants());
    Allocations const allocations;
    for (int i = 0; i < 100; ++i) {
      ids.push_back(open(p, i % 2 == 0 ? text : some));
      ids.push_back(fork(p, ids.back()));
      REQUIRE(p.close(ids[0]));
      REQUIRE(p.close(ids[1]));
      ids.clear();
    }
    CHECK(allocations.count() == 0);
  }
}

TEST_CASE("Control: open with media without memory changes nothing", "[control][memory][media]")
{
  Pictures const p;
  int const tried = check_each_failure(
    [&](Hungry& plane) {
      cache_only(plane, {1, 2, 3, 4, 5});
      return 0;
    },
    [&](Hungry& plane, int) { return why_of(plane.open({.tokens = p.prompt, .media = p.media})); });
  CHECK(tried >= 8);
}

TEST_CASE("Control: a turn with media without memory changes nothing", "[control][memory][media]")
{
  Pictures const p;
  int const tried = check_each_failure(
    [&](Hungry& plane) {
      auto const id = plane.open({.tokens = p.prompt, .media = p.media});
      REQUIRE(id);
      append(plane, *id, p.prompt);
      return std::pair(*id, begin(plane));
    },
    [&](Hungry& plane, std::pair<SequenceId, StepId> const& at) {
      return why_of(plane.add(at.second, at.first, {.tokens = p.turn, .media = p.later}));
    },
    6);  // a page that is not made pending is found after commit
  CHECK(tried >= 4);
}

TEST_CASE("Control: a step with media that fails without memory falls back further",
          "[control][memory][media]")
{
  // Rows 6 to 12 are atomic, and row 12 is in a page of the step that fails: the split of the cached span before it
  // finds no memory, so the sequence keeps nothing of that span.
  Media const cat({.digest = "cat", .kind = {}, .dtype = {}, .dims = {}, .options = {}});
  std::vector<MediaSpan> const media = {{.item = &cat, .first = 6, .rows = 7, .atomic = true}};
  Tokens const prompt = numbers(1, 21);
  Hungry plane = make_plane<Hungry>(24);
  auto const a = plane.open({.tokens = prompt, .media = media});
  append(plane, *a, numbers(1, 13));
  StepId const step = begin(plane);
  add(plane, step, *a, numbers(14, 20));
  REQUIRE(plane.submit(step));
  auto const b = plane.open({.tokens = prompt, .media = media});
  REQUIRE(plane.info(*b)->length == 20);
  bool struck = false;
  {
    FailAllocation const failing(0);
    REQUIRE(plane.fail(step));
    struck = failing.struck();
  }
  CHECK(struck);
  CHECK(plane.info(*b)->length == 0);
  check_sound(plane);
  StepId const again = begin(plane);
  CHECK(plane.add(again, *b, {.tokens = prompt}).has_value());
  REQUIRE(plane.submit(again));
  REQUIRE(plane.commit(again));
  CHECK(plane.info(*b)->length == 21);
  check_sound(plane);
}
