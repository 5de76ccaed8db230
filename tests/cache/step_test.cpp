// SPDX-License-Identifier: Apache-2.0

#include <kvcache/kvcache.hpp>

#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/facade.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

static_assert(!std::is_copy_constructible_v<Cache::Step>);

}  // namespace

TEST_CASE("Step: out of scope before submit it never happened", "[cache][step]")
{
  Cache cache = make_cache(8);
  Sequence const a = prefilled(cache, {1, 2, 3});
  auto const before = cache.digest();
  {
    auto step = cache.begin();
    REQUIRE(step);
    REQUIRE(step->add(a, {Tokens{4, 5, 6}}));
    CHECK(cache.digest() != before);
  }
  CHECK(cache.digest() == before);
  CHECK(cache.stats().planned_rows == 3);
  CHECK(cache.begin());
}

TEST_CASE("Step: out of scope after submit its rows never existed", "[cache][step]")
{
  Cache cache = make_cache(8);
  Tokens history{1, 2, 3};
  Sequence const a = prefilled(cache, history);
  {
    Tokens const tokens{4, 5, 6};
    auto step = cache.prepare({{a, tokens}});
    REQUIRE(step);
    run_kernels(step->view(), tokens);
  }
  CHECK(a.length() == 3);
  CHECK(cache.stats().free == 7);
  CHECK(cache.check_invariants());
  append(cache, a, {7, 8}, history);
}

TEST_CASE("Step: a moved step is the step, what it was moved from is over", "[cache][step]")
{
  Cache cache = make_cache(8);
  Sequence const a = prefilled(cache, {1});
  auto made = cache.begin();
  REQUIRE(made);
  Cache::Step step(std::move(*made));
  CHECK_THROWS_AS(made->add(a, {Tokens{2}}), LogicError);
  CHECK_THROWS_AS(made->submit(), LogicError);
  CHECK_THROWS_AS(made->view(), LogicError);
  REQUIRE(step.add(a, {Tokens{2}}));
  REQUIRE(step.submit());
  REQUIRE(step.commit());
  CHECK_THROWS_WITH(step.commit(), "kvcache: this Step is over: it was committed, or moved from");
  CHECK(a.length() == 2);

  auto open = cache.begin();
  REQUIRE(open);
  REQUIRE(open->add(a, {Tokens{3}}));
  step = std::move(*open);
  REQUIRE(step.submit());
  REQUIRE(step.commit());
  CHECK(a.length() == 3);
}

TEST_CASE("Step: assigning over a step in flight ends that one", "[cache][step]")
{
  Cache first = make_cache(8);
  Cache second = make_cache(8);
  Sequence const a = prefilled(first, {1});
  auto of_first = first.begin();
  auto of_second = second.begin();
  REQUIRE((of_first && of_second));
  REQUIRE(of_first->add(a, {Tokens{2}}));
  *of_first = std::move(*of_second);
  CHECK(first.begin());  // the step of the first cache was dropped
  CHECK(second.begin().error().why == Why::busy);
}

TEST_CASE("Step: view and plan need a submit first", "[cache][step]")
{
  Cache cache = make_cache(8);
  Sequence const a = prefilled(cache, {1});
  auto step = cache.begin();
  REQUIRE(step);
  REQUIRE(step->add(a, {Tokens{2}}));
  CHECK_THROWS_WITH(step->view(),
                    "kvcache: Step::view() needs a submitted step; call submit() first");
  CHECK_THROWS_WITH(step->plan(),
                    "kvcache: Step::plan() needs a submitted step; call submit() first");
  CHECK(step->commit().error().why == Why::stale_step);
  REQUIRE(step->submit());
  CHECK(step->plan().step == step->id());
  CHECK(step->submit().error().why == Why::stale_step);
  CHECK(step->add(a, {Tokens{3}}).error().why == Why::stale_step);
  CHECK(step->commit(std::vector<Index>{2}).error().why == Why::bad_config);
  REQUIRE(step->commit(std::vector<Index>{1}));
}

TEST_CASE("prepare: all of it, or nothing happened and the Shortage says why", "[cache][step]")
{
  Cache cache = make_cache(4);
  Sequence const a = prefilled(cache, {1, 2, 3, 4, 5});
  auto b = cache.open({.tokens = Tokens{9}});
  REQUIRE(b);
  auto const before = cache.digest();
  Tokens const fits{6, 7, 8, 9};
  Tokens const too_many{1, 2, 3, 4, 5, 6, 7, 8};
  {
    auto const step = cache.prepare({{a, fits}, {*b, too_many}});
    REQUIRE_FALSE(step);
    CHECK(step.error().why == Why::no_pages);
    CHECK(step.error().need == 2);
    CHECK(step.error().free == 1);
  }
  CHECK(cache.digest() == before);
  {
    auto const step = cache.prepare({{a, fits}, {a, fits}});
    REQUIRE_FALSE(step);
    CHECK(step.error().why == Why::busy);
  }
  {
    Tokens const bad{-4};
    auto const step = cache.prepare({{a, fits}, {*b, bad}});
    REQUIRE_FALSE(step);
    CHECK(step.error().why == Why::bad_token);
    CHECK(step.error().detail.value == -4);
  }
  CHECK(cache.digest() == before);
  auto const step = cache.prepare({{a, fits}});
  REQUIRE(step);
  Tokens const one{9};
  auto const second = cache.prepare({{*b, one}});
  REQUIRE(second);
  auto const third = cache.prepare({{*b, one}});  // two are in flight
  REQUIRE_FALSE(third);
  CHECK(third.error().why == Why::busy);
}

TEST_CASE("Step: sequences may close while it is in flight", "[cache][step]")
{
  Cache cache = make_cache(8);
  Tokens const tokens{4, 5, 6};
  Sequence a = prefilled(cache, {1, 2, 3});
  auto step = cache.prepare({{a, tokens}});
  REQUIRE(step);
  a.close();
  CHECK(cache.stats().fenced == 2);
  run_kernels(step->view(), tokens);  // the kernel still writes its pages
  REQUIRE(step->commit());
  CHECK(cache.stats().free == 8);
  CHECK(cache.check_invariants());
}
