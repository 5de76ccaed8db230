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

TEST_CASE("KVCACHE_CHECK_CALLS: a token beyond those of the view's step is told",
          "[cache][check_calls][view]")
{
  using Own = KVCache<PagedHeads<float, 24, 4>>;  // no other file has this view
  auto cache = Own::create({.layers = 1, .kv_heads = 1}, {.pages = 8}).value();
  Tokens const text{1, 2, 3, 4, 5};
  Sequence const a = cache.open({.tokens = text}).value();
  Sequence const b = cache.open({.tokens = text}).value();
  auto step = cache.prepare({{a, text}, {b, text}}, {}, {.attach = true});
  REQUIRE(step);
  auto const kv = step->view();
  REQUIRE(kv.num_tokens() == 6);
  std::vector<float> const row(24, 1.0F);
  std::string const told =
    "kvcache: the step has no such token; it computes what step.tokens() says, view.num_tokens() "
    "of them, which may be fewer than it was given";
  for (Index const token : {-1, 6, 9}) {
    CAPTURE(token);
    CHECK_THROWS_WITH(kv.append(Solo{}, 0, 0, token, row.data(), row.data()), told);
    CHECK_THROWS_WITH((void)kv.row_of(0, 0, token), told);
    CHECK_THROWS_WITH((void)kv.tiles(0, 0, token), told);
  }
  auto const any = kv.of({});  // of a graph: padding is skipped
  any.append(Solo{}, 0, 0, 6, row.data(), row.data());
  CHECK(any.row_of(0, 0, 6) == nullptr);
  for (Index token = 0; token < 6; ++token) {
    kv.append(Solo{}, 0, 0, token, row.data(), row.data());
  }
  CHECK(step->commit(std::vector<Index>{5, 1}));
}
