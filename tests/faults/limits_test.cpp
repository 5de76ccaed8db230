// SPDX-License-Identifier: Apache-2.0
// Faults of sections 11 to 13 that touch steps and pages: drafts, late results, admission, cost.

#include <kvcache/kvcache.hpp>

#include <cstddef>

#include "faults/verify.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache_test;

TEST_CASE("B-116 a speculative tail is reserved and not recorded", "[faults][limits]")
{
  verify(
    [](auto& cache) {
      bool right = true;
      for (kvcache::Index accepted = 1; accepted <= 5; ++accepted) {
        int const s = cache.open(range(1, 6));
        cache.append(s, range(1, 6));
        cache.reserve(s, range(7, 11), true);
        right = right && cache.table(s).size() == 3;
        cache.run();
        cache.commit(accepted);
        right = right && cache.table(s).size() == static_cast<std::size_t>(6 + accepted + 3) / 4 &&
                cache.reads(s);
        cache.close(s);
        cache.forget(0);
        right = right && cache.free() == 8;
      }
      int const s = cache.open(range(1, 3));
      cache.append(s, range(1, 3));
      cache.reserve(s, range(4, 12), true);
      right = right && cache.table(s).size() == 3;  // two boundaries at once
      cache.run();
      cache.commit(0);
      right = right && cache.length(s) == 3 && cache.table(s).size() == 1 && cache.reads(s);
      Random random(116);
      for (int round = 0; round < 1000 && right; ++round) {
        cache.truncate(s, 3);
        right = cache.reserve(s, range(40, 48), true);
        cache.run();
        auto const n = static_cast<kvcache::Index>(random.below(10));
        cache.commit(n);
        cache.truncate(s, 3);
        cache.forget(0);
        right = right && cache.table(s).size() == 1 && cache.free() == 7 && cache.reads(s);
      }
      return right;
    },
    Bug::keeps_rejected_pages);
}

TEST_CASE("B-128 a request larger than the usable pool", "[faults][limits]")
{
  verify(
    [](auto& cache) {
      int const fits = cache.open(range(1, 48));  // 12 usable pages beside the page of zeros
      bool right = fits >= 0 && cache.append(fits, range(1, 48));
      cache.close(fits);
      right = right && cache.open(range(1, 49)) == -1 && cache.open(range(1, 52)) == -1;
      int const next = cache.open(range(101, 104));
      return right && cache.append(next, range(101, 104)) && cache.check();
    },
    Bug::admits_anything,
    12);
}

TEST_CASE("B-132 a pre-check that is off by one page", "[faults][limits]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 5));  // five rows of two pages: three to spare
      bool right = cache.append(s, range(1, 5)) && cache.free() == 0;
      right = right && !cache.append(s, range(6, 9)) && cache.length(s) == 5 && cache.reads(s);
      return right && cache.append(s, range(6, 8)) && cache.length(s) == 8 && cache.reads(s);
    },
    Bug::asks_for_a_page_too_many,
    2);
  RealCache roomy(3);
  int const s = roomy.open(range(1, 5));
  roomy.append(s, range(1, 5));
  CHECK(roomy.append(s, range(6, 9)));
  CHECK(roomy.length(s) == 9);
  CHECK(roomy.check());
}

TEST_CASE("B-133 the result of a step that was rolled back", "[faults][limits]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 7));
      cache.append(s, range(1, 4));
      cache.reserve(s, range(5, 7));
      cache.run();
      cache.close(s);                         // preempted while the step runs
      int const t = cache.open(range(1, 9));  // has its slot, perhaps
      cache.commit();                         // late: it is for nobody
      bool const right = cache.length(s) == 0 && cache.length(t) == 4 && cache.reads(t);
      cache.close(t);
      return right && cache.free() == 7 && cache.cached() == 1 && cache.check();
    },
    Bug::commits_what_was_closed);
}
