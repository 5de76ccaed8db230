// SPDX-License-Identifier: Apache-2.0
// What a debug build does, in every build: each call of the facade ends with a recount, and reports what is broken.

#undef KVCACHE_CHECK_CALLS
#define KVCACHE_CHECK_CALLS 1

#include <string>
#include <utility>
#include <vector>

#include "cache/every_call.hpp"
#include "support/catch.hpp"
#include "support/last_words.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

struct Checked {};

std::string const miscounted = "I6: evictable pages were miscounted";

}  // namespace

TEST_CASE("KVCACHE_CHECK_CALLS: every call that may change the cache is followed by a recount",
          "[cache][check_calls]")
{
  Watch watch;
  auto cache = watch.make<Checked>(8);
  CHECK(watch.take() == 0);
  every_call(cache, [&](char const* call, bool changes) {
    CAPTURE(call);
    CHECK((watch.take() > 0) == changes);
  });
}

TEST_CASE("KVCACHE_CHECK_CALLS: the call after a policy began to lie reports it",
          "[cache][check_calls]")
{
  Watch watch;
  auto cache = watch.make<Checked>(8);
  Tokens const text{1, 2, 3, 4, 5};
  auto const sequence = prefilled(cache, text);
  auto other = cache.open({.tokens = Tokens{9}});
  REQUIRE(other);
  std::vector<Sequence> beams;
  beams.push_back(std::move(*other));
  auto step = cache.begin();
  REQUIRE(step);
  watch.lies = true;
  CHECK_THROWS_WITH(cache.open({.tokens = text}), miscounted);
  CHECK_THROWS_WITH(cache.fork(sequence), miscounted);
  CHECK_THROWS_WITH(cache.truncate(sequence, 4), miscounted);
  CHECK_THROWS_WITH(cache.resume(sequence), miscounted);
  CHECK_THROWS_WITH(cache.reorder(beams, std::vector<Index>{0}), miscounted);
  CHECK_THROWS_WITH(cache.begin(StreamRef{.number = 1}), miscounted);
  CHECK_THROWS_WITH(cache.prepare({{sequence, text}}, StreamRef{.number = 2}), miscounted);
  CHECK_THROWS_WITH(step->add(sequence, {text}), miscounted);
  CHECK_THROWS_WITH(step->submit(), miscounted);
  CHECK_THROWS_WITH(step->commit(), miscounted);
  CHECK_THROWS_AS(cache.begin(StreamRef{.number = 3}), LogicError);
  watch.lies = false;  // handles that go out of scope would end the program
}

#if defined(__cpp_exceptions)
TEST_CASE("KVCACHE_CHECK_CALLS: a report reaches its handler past the handles that it ends",
          "[cache][check_calls]")
{
  Watch watch;
  auto cache = watch.make<Checked>(8);
  std::string said;
  try {
    auto const sequence = prefilled(cache, {1, 2, 3});
    auto const step = cache.begin();
    watch.lies = true;
    (void)cache.fork(sequence);
  } catch (LogicError const& error) {
    said = error.what();
  }
  CHECK(said == miscounted);
  watch.lies = false;
  CHECK(cache.stats().sequences == 1);  // the fork that reported: its handle was never given out
  CHECK(cache.check_invariants());
}
#endif

TEST_CASE(
  "KVCACHE_CHECK_CALLS: where a call may not throw the report is printed and the program ends",
  "[cache][check_calls]")
{
  Watch watch;
  auto cache = watch.make<Checked>(8);
  auto sequence = prefilled(cache, {1, 2, 3});
  std::string const end = miscounted + "\naborted";
  auto const dies = [&](auto const& body) {
    return last_words([&] {
      watch.lies = true;
      body();
    });
  };
  CHECK(dies([&] { sequence.close(); }) == end);
  CHECK(dies([&] { (void)cache.suspend(sequence); }) == end);
  CHECK(dies([&] { cache.forget(Domain{}); }) == end);
  CHECK(last_words([&] {
          auto const step = cache.begin();
          watch.lies = true;
        }) == end);
  CHECK(last_words([&] { sequence.close(); }) == "lived on");
}

TEST_CASE("KVCACHE_CHECK_CALLS: handles of a cache that is gone are not recounted",
          "[cache][check_calls]")
{
  Watch watch;
  Sequence sequence;
  {
    auto cache = watch.make<Checked>(8);
    sequence = prefilled(cache, {1, 2, 3});
    watch.lies = true;
  }
  sequence.close();
  CHECK(sequence.length() == 0);
}
