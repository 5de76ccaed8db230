// SPDX-License-Identifier: Apache-2.0

// What a scheduler asks before it lets a request in, what it pins, and who has which pages.

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

Plane make(PageCount pages, PageCount watermark)
{
  return make_plane({.pages = pages,
                     .page_tokens = 4,
                     .max_sequences = 8,
                     .max_step_tokens = 256,
                     .watermark = watermark});
}

}  // namespace

TEST_CASE("admit: the whole need counts, less what others hold already", "[control][admission]")
{
  Plane plane = make(10, 0);
  SequenceId const a = prefilled(plane, numbers(1, 10));  // 3 pages, 2 in the tree
  Tokens const prompt = {1, 2, 3, 4, 5, 6, 7, 8, 90, 91};
  auto const admission = plane.admit({.tokens = prompt, .max_tokens = 20});
  REQUIRE(admission);
  CHECK(admission->prompt == 1);
  CHECK(admission->full == 3);
  CHECK(admission->available == 7);
  CHECK(admission->fits);
  REQUIRE(plane.close(a));
  auto const idle = plane.admit({.tokens = prompt, .max_tokens = 20});
  CHECK(idle->prompt == 3);  // taking two cached pages leaves two fewer to evict
  CHECK(idle->full == 5);
  CHECK(idle->available == 10);
}

TEST_CASE("admit: the watermark is for those that run, and no hurdle for the first",
          "[control][admission]")
{
  Plane plane = make(6, 2);
  Tokens const prompt = numbers(1, 20);
  CHECK(plane.admit({.tokens = prompt})->fits);
  CHECK(plane.admit({.tokens = prompt, .max_tokens = 24})->fits);
  SequenceId const a = open(plane, numbers(50, 53));
  CHECK_FALSE(plane.admit({.tokens = prompt})->fits);
  CHECK(plane.admit({.tokens = numbers(1, 16)})->fits);
  REQUIRE(plane.suspend(a));
  CHECK(plane.admit({.tokens = prompt})->fits);
  for (PageCount const watermark : {6U, 7U}) {
    auto const made = Plane::create({.pages = 6, .page_tokens = 4, .watermark = watermark});
    REQUIRE_FALSE(made);
    CHECK(std::string(made.error().field) == "watermark");
  }
}

TEST_CASE("admit: what runs may yet grow, up to its stated end", "[control][admission]")
{
  Plane plane = make(10, 0);
  auto const a = plane.open({.tokens = numbers(1, 6), .max_tokens = 20});
  REQUIRE(a);
  append(plane, *a, numbers(1, 6));
  auto const admission = plane.admit({.tokens = numbers(30, 40), .max_tokens = 24});
  CHECK(admission->growth == 3);
  CHECK(admission->full == 6);
  CHECK(admission->fits);
  CHECK_FALSE(admission->fits_beside_growth);
  CHECK(plane.admit({.tokens = numbers(30, 40), .max_tokens = 20})->fits_beside_growth);
}

TEST_CASE("admit: what can never fit is refused at once, with the figure", "[control][admission]")
{
  Plane plane = make(4, 0);
  Prompt const prompt{.tokens = {}, .max_tokens = 17};
  for (auto const& error : {plane.admit(prompt).error(), plane.open(prompt).error()}) {
    CHECK(error.why == Why::too_large);
    CHECK(std::string(error.field) == "max_tokens");
    CHECK(error.value == 17);
    CHECK(error.limit == 16);
  }
  Tokens const tokens = numbers(1, 8);
  CHECK(plane.open({.tokens = tokens, .max_tokens = 7}).error().why == Why::bad_config);
  CHECK(plane.stats().sequences == 0);
}

TEST_CASE("admit: a suspended sequence comes back for its whole need", "[control][admission]")
{
  Plane plane = make(6, 0);
  auto const a = plane.open({.tokens = numbers(1, 8), .max_tokens = 16});
  append(plane, *a, numbers(1, 8));
  CHECK(plane.admit(*a).error().why == Why::bad_config);
  REQUIRE(plane.suspend(*a));
  CHECK(plane.admit(*a)->full == 4);
  CHECK(plane.admit(*a)->fits);
  SequenceId const b = open(plane, numbers(50, 60));
  append(plane, b, numbers(50, 60));
  CHECK_FALSE(plane.admit(*a)->fits);
  CHECK(plane.stats().suspensions == 1);
  REQUIRE(plane.close(b));
  plane.forget(Domain{});
  REQUIRE(plane.resume(*a));
  CHECK(plane.info(*a)->suspensions == 1);
  CHECK(plane.info(*a)->lost == 8);
  CHECK(plane.stats().lost_tokens == 8);
  CHECK(plane.admit(SequenceId{7, 7}).error().why == Why::stale_sequence);
}

TEST_CASE("open: what a probe promised is compared with what came of it", "[control][admission]")
{
  Plane plane = make(4, 0);
  cache_only(plane, numbers(1, 8));
  Tokens const prompt = numbers(1, 9);
  Index const promised = plane.probe({.tokens = prompt}).rows;
  CHECK(promised == 8);
  cache_only(plane, numbers(50, 65));  // evicts all of it
  REQUIRE(plane.open({.tokens = prompt, .promised = promised}));
  CHECK(plane.stats().promised_tokens == 8);
  CHECK(plane.stats().promised_hits == 0);
  CHECK(plane.open({.tokens = prompt, .promised = -1}).error().why == Why::bad_config);
}

TEST_CASE("pin: a pinned prefix is not evicted, whatever comes", "[control][pins]")
{
  Plane plane = make(4, 0);
  cache_only(plane, numbers(1, 10));
  auto const pin = plane.pin({.tokens = numbers(1, 10)});
  REQUIRE(pin);
  CHECK(plane.stats().cached == 0);
  cache_only(plane, numbers(50, 57));
  cache_only(plane, numbers(60, 67));
  CHECK(cached_rows(plane, numbers(1, 10)) == 8);
  SequenceId const b = open(plane, numbers(70, 81));
  StepId const step = begin(plane);
  auto const refused = plane.add(step, b, {numbers(70, 81)});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().evictable == 2);
  check_sound(plane);
  int seen = 0;
  plane.for_each_pin([&](PinInfo const& info) {
    ++seen;
    CHECK(info.pin == *pin);
    CHECK(info.pages == 2);
    CHECK(info.rows == 8);
    CHECK(info.age == 3);  // steps begun since
  });
  CHECK(seen == 1);
  REQUIRE(plane.unpin(*pin));
  CHECK(plane.unpin(*pin).error().why == Why::stale_pin);
  CHECK(plane.add(step, b, {numbers(70, 81)}));
}

TEST_CASE("pin: only whole pages that are committed; a forgotten domain leaves the pin its pages",
          "[control][pins]")
{
  Plane plane = make(8, 0);
  CHECK(plane.pin({.tokens = numbers(1, 8)}).error().why == Why::bad_config);
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 9));
  REQUIRE(plane.submit(step));
  CHECK(plane.pin({.tokens = numbers(1, 8)}).error().why == Why::bad_config);  // pending
  REQUIRE(plane.commit(step));
  CHECK(plane.pin({.tokens = numbers(1, 3)}).error().why == Why::bad_config);  // no whole page
  auto const pin = plane.pin({.tokens = numbers(1, 8)});
  REQUIRE(pin);
  plane.forget(Domain{});
  REQUIRE(plane.close(a));
  check_sound(plane);
  CHECK(plane.stats().free == 6);
  REQUIRE(plane.unpin(*pin));
  CHECK(plane.stats().free == 8);
  auto const again = plane.pin({.tokens = numbers(1, 8)});
  CHECK_FALSE(again);
}

TEST_CASE("use_of: a domain's pages, and what a stream's steps keep", "[control][admission]")
{
  Plane plane = make(8, 0);
  Domain const tenant({.model = {}, .weights = {}, .salt = "t", .adapters = {}});
  CHECK(plane.use_of(tenant).sequences == 0);
  auto const a = plane.open({.tokens = numbers(1, 9), .domain = &tenant});
  append(plane, *a, numbers(1, 9));
  REQUIRE(plane.pin({.tokens = numbers(1, 9), .domain = &tenant}));
  DomainUse const use = plane.use_of(tenant);
  CHECK(use.indexed == 2);
  CHECK(use.tables == 3);
  CHECK(use.pinned == 2);
  CHECK(use.sequences == 1);
  CHECK(plane.use_of(Domain{}).indexed == 0);

  CHECK(plane.use_of(StreamId{}).steps == 0);
  CHECK(plane.use_of(StreamId{}).age == 0);
  SequenceId const b = open(plane, numbers(50, 59));
  StepId const step = begin(plane);
  add(plane, step, b, numbers(50, 59));
  REQUIRE(plane.submit(step));
  StreamUse busy = plane.use_of(StreamId{});
  CHECK(busy.steps == 1);
  CHECK(busy.oldest == step);
  CHECK(busy.age == 1);
  CHECK(busy.held == 2);  // pending pages
  CHECK(busy.waiting == 0);
  REQUIRE(plane.close(b));
  busy = plane.use_of(StreamId{});
  CHECK(busy.waiting == 1);  // the part page; the pending ones commit with the step
  REQUIRE(plane.begin(StreamId{1}));
  CHECK(plane.use_of(StreamId{}).age == 2);
  REQUIRE(plane.commit(step));
  CHECK(plane.use_of(StreamId{}).held == 0);
  check_sound(plane);
}

TEST_CASE("admit: cached pages above those that a step in flight writes are not available",
          "[control][admission]")
{
  // The writer of the last two pages leaves while its step runs: its first two pages are cached, and cannot be evicted.
  Plane plane = make(8, 0);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(9, 16));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.close(a));
  CHECK(plane.stats().cached == 2);
  Tokens const prompt = numbers(50, 73);
  Admission const admission = *plane.admit({.tokens = prompt});
  CHECK(admission.full == 6);
  CHECK(admission.available == 4);
  CHECK_FALSE(admission.fits);
  SequenceId const b = open(plane, prompt);
  StepId const next = begin(plane);
  auto const refused = plane.add(next, b, {prompt});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().free == 4);
  CHECK(refused.error().evictable == 0);
  CHECK(
    std::string(refused.error().message().text) ==
    "no pages: 6 are needed, 4 are free, 0 can be evicted, 4 come back when steps in flight end");
  REQUIRE(plane.commit(step));
  CHECK(plane.admit({.tokens = prompt})->fits);
  CHECK(plane.add(next, b, {prompt}));
}

TEST_CASE("admit: what another stream may still read is not available", "[control][admission]")
{
  Plane plane = make(4, 0);
  cache_only(plane, numbers(1, 8));
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, a, {9});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.close(a));  // its pages are cached again, and step reads them
  Admission const here = *plane.admit({.tokens = numbers(50, 61)});
  Admission const there = *plane.admit({.tokens = numbers(50, 61), .stream = StreamId{1}});
  CHECK(here.available == 4);
  CHECK(there.available == 1);
}

TEST_CASE("admit: sums do not wrap, and there are so many streams", "[control][admission]")
{
  Plane plane = make_plane(
    {.pages = 1U << 20, .page_tokens = 1, .max_sequences = 1U << 13, .max_step_tokens = 16});
  for (int i = 0; i < 1 << 13; ++i) {
    REQUIRE(plane.open({.tokens = {}, .max_tokens = 1 << 20}));
  }
  Admission const admission = *plane.admit({.tokens = numbers(1, 4)});
  CHECK(admission.growth == std::uint64_t{1} << 33);
  CHECK_FALSE(admission.fits_beside_growth);
  CHECK(plane.admit({.tokens = {}, .stream = StreamId{4}}).error().why == Why::bad_config);
  CHECK(plane.open({.tokens = {}, .stream = StreamId{4}}).error().why == Why::bad_config);
}
