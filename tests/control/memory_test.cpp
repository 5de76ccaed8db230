// SPDX-License-Identifier: Apache-2.0

#include "support/counting_new.hpp"
#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// Makes each allocation of `call` fail in turn on a fresh plane: it must say `no_memory` and change nothing,
/// and must succeed on the same plane once there is memory. Returns how many allocations there were.
template <class Prepare, class Call>
int check_each_failure(Prepare&& prepare, Call&& call)
{
  for (int n = 0; n < 1000; ++n) {
    CAPTURE(n);
    Plane plane = make_plane(24);
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
  Tokens const prompt = numbers(1, 7);  // ends inside the second cached page, which makes a split
  int const tried = check_each_failure(
    [](Plane& plane) {
      cache_only(plane, numbers(1, 12));
      return 0;
    },
    [&](Plane& plane, int) { return why_of(plane.open({.tokens = prompt})); });
  CHECK(tried >= 2);
}

TEST_CASE("Control: fork without memory changes nothing", "[control][memory]")
{
  int const tried =
    check_each_failure([](Plane& plane) { return prefilled(plane, numbers(1, 20)); },
                       [](Plane& plane, SequenceId id) { return why_of(plane.fork(id)); });
  CHECK(tried == 2);
}

TEST_CASE("Control: truncate without memory changes nothing", "[control][memory]")
{
  int const tried =
    check_each_failure([](Plane& plane) { return prefilled(plane, numbers(1, 20)); },
                       [](Plane& plane, SequenceId id) { return why_of(plane.truncate(id, 7)); });
  CHECK(tried >= 1);
}

TEST_CASE("Control: add without memory changes nothing, evictions and copies included",
          "[control][memory]")
{
  struct Context {
    StepId step;
    SequenceId id;
  };
  int const tried = check_each_failure(
    [](Plane& plane) {
      cache_only(plane, numbers(101, 140));
      cache_only(plane, numbers(201, 230));
      SequenceId const a = prefilled(plane, numbers(1, 20));
      REQUIRE(plane.truncate(a, 18));
      return Context{begin(plane), a};
    },
    [](Plane& plane, Context const& c) {
      Tokens const tokens = numbers(300, 360);
      return why_of(plane.add(c.step, c.id, {tokens}));
    });
  CHECK(tried >= 5);
}

TEST_CASE("Control: submit without memory can be tried again", "[control][memory]")
{
  int const tried = check_each_failure(
    [](Plane& plane) {
      SequenceId const a = prefilled(plane, numbers(1, 6));
      SequenceId const f = fork(plane, a);
      Plan const warm = plane.plan();
      StepId const step = *plane.begin(StreamId{3});
      add(plane, step, f, numbers(50, 60));
      add(plane, step, a, numbers(7, 20));
      return step;
    },
    [](Plane& plane, StepId step) {
      auto const submitted = plane.submit(step);
      if (submitted) {
        CHECK(plane.plan().stream == StreamId{3});
        CHECK(plane.plan().chunks.size() == 2);
        CHECK(plane.plan().copies.size() == 1);
        CHECK(plane.plan().tables.size() == 2);
      } else {
        CHECK(plane.plan().chunks.empty());
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
      Plane plane = make_plane(12);
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

TEST_CASE("Control: a step in steady state allocates nothing", "[control][memory]")
{
  constexpr int sequences = 256;
  constexpr int steps = 200;
  Plane plane = make_plane({.pages = 8192,
                            .page_tokens = 16,
                            .max_sequences = sequences,
                            .max_sequence_tokens = 512,
                            .max_step_tokens = 16384});
  std::vector<SequenceId> ids;
  for (int i = 0; i < sequences; ++i) {
    Tokens const prompt = numbers(i * 1000, i * 1000 + 40);
    ids.push_back(prefilled(plane, prompt));
  }
  std::vector<Token> next(1);
  std::uint64_t quiet_steps = 0;  // no page was crossed
  std::uint64_t quiet_counted = 0;
  std::uint64_t page_counted = 0;  // a page was crossed: tables grow, the tree takes pages
  std::uint64_t worst = 0;
  for (int step_number = 0; step_number < steps + 40; ++step_number) {
    auto const length = plane.info(ids[0])->length;
    Allocations const during;
    auto const step = plane.begin();
    bool good = static_cast<bool>(step);
    for (SequenceId const id : ids) {
      next[0] = static_cast<Token>(1 + step_number);
      good = good && plane.add(*step, id, {next});
    }
    good = good && plane.submit(*step) && plane.commit(*step);
    std::uint64_t const counted = during.count();
    REQUIRE(good);
    if (step_number < 40) {
      continue;  // warm-up
    }
    bool const crosses = length % 16 == 0 || (length + 1) % 16 == 0;
    (crosses ? page_counted : quiet_counted) += counted;
    quiet_steps += crosses ? 0U : 1U;
    worst = counted > worst ? counted : worst;
  }
  check_sound(plane);
  WARN("256 sequences, " << steps << " steps: " << quiet_counted << " allocations in "
                         << quiet_steps << " steps inside a page, " << page_counted
                         << " in the others, at most " << worst << " in one step");
  CHECK(quiet_counted == 0);
}
