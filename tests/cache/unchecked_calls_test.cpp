// SPDX-License-Identifier: Apache-2.0
// What a release build does, in every build: nothing is recounted, whatever a policy says.

#undef KVCACHE_CHECK_CALLS
#define KVCACHE_CHECK_CALLS 0

#include "cache/every_call.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {
struct Unchecked {};
}  // namespace

TEST_CASE("KVCACHE_CHECK_CALLS: with 0 no call recounts anything", "[cache][check_calls]")
{
  Watch watch;
  auto cache = watch.make<Unchecked>(8);
  watch.lies = true;
  every_call(cache, [&](char const* call, bool) {
    CAPTURE(call);
    CHECK(watch.take() == 0);
  });
  CHECK_FALSE(cache.check_invariants());  // the caller's own question is answered
  CHECK(watch.take() == 1);
}

TEST_CASE("KVCACHE_CHECK_CALLS: with 0 a view does not look which tokens its step has",
          "[cache][check_calls][view]")
{
  using Own = kvcache::KVCache<kvcache::PagedHeads<float, 40, 4>>;  // no other file has this view
  auto cache = Own::create({.layers = 1, .kv_heads = 1}, {.pages = 8}).value();
  kvcache::Sequence const a = cache.open({}).value();
  Tokens const text{1, 2, 3};
  auto step = cache.prepare({{a, text}});
  REQUIRE(step);
  CHECK(step->view().row_of(0, 0, 2) != nullptr);
  CHECK(step->view().row_of(0, 0, 3) == nullptr);
}
