// SPDX-License-Identifier: Apache-2.0
// Faults of sections 4 and 5: counts, leaks, sharing and copy-on-write.

#include <cstdint>
#include <vector>

#include "faults/verify.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

/// Writes pages until none can be had, so that a page that was given back too early is overwritten.
template <class Cache>
int flood(Cache& cache)
{
  int const s = cache.open({2000});
  for (kvcache::Token token = 2000; cache.append(s, {token}); ++token) {
  }
  return s;
}

}  // namespace

TEST_CASE("B-036 finished, then preempted: a second close is refused", "[faults][counts]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 8));
      cache.append(s, range(1, 8));
      bool const first = cache.close(s);
      bool const again = cache.close(s) || cache.close(s);
      return first && !again && cache.free() + cache.cached() == 8 && cache.check();
    },
    Bug::frees_twice);
}

TEST_CASE("B-041 a fork forgets the parent", "[faults][counts]")
{
  for (int const order : {0, 1, 2}) {
    verify(
      [order](auto& cache) {
        int const parent = cache.open(range(1, 6));
        cache.append(parent, range(1, 6));
        int const child = cache.fork(parent);
        int const grandchild = cache.fork(child);
        int const first = order == 0 ? parent : order == 1 ? child : grandchild;
        bool right = cache.reads(child) && cache.length(grandchild) == 6;
        cache.close(first);
        int const other = flood(cache);
        for (int const s : {parent, child, grandchild}) {
          right = right && (s == first || (cache.reads(s) && cache.length(s) == 6));
        }
        for (int const s : {other, parent, child, grandchild}) {
          cache.close(s);
        }
        return right && cache.free() + cache.cached() == 8 && cache.check();
      },
      Bug::fork_forgets_the_parent);
  }
}

TEST_CASE("B-043 a warm prefill fails half-way", "[faults][counts]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 4));
      int const b = cache.open(range(11, 18));
      cache.append(b, range(11, 18));
      int const c = cache.open(joined(range(1, 4), range(21, 32)));
      bool right = cache.free() == 1 && cache.length(c) == 4;
      right = right && !cache.append(c, range(21, 32));
      right = right && cache.length(c) == 4 && cache.free() == 1;
      cache.close(c);
      right = right && cache.cached() == 1;
      return right && cache.append(b, range(19, 26)) && cache.cached() == 0 && cache.check();
    },
    Bug::leaks_when_refused,
    4);
}

TEST_CASE("B-046 an orphan when the store skips a page", "[faults][counts]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 8));  // before anybody has cached it
      cache.cache(range(1, 4));
      cache.append(s, range(1, 8));
      bool right = cache.length(s) == 8 && cache.reads(s) && cache.free() == 6;
      cache.close(s);
      return right && cache.free() == 6 && cache.cached() == 2 && cache.hit(range(1, 9)) == 8;
    },
    Bug::loses_duplicates);
}

TEST_CASE("B-047 a partly filled tail page given to a second writer", "[faults][sharing]")
{
  verify(
    [](auto& cache) {
      int const one = cache.open(range(1, 6));
      cache.append(one, range(1, 6));
      int const two = cache.fork(one);
      cache.append(one, {7});
      cache.append(two, {50});
      bool right = cache.table(one)[0] == cache.table(two)[0];
      right = right && cache.table(one)[1] != cache.table(two)[1];
      for (kvcache::Token k = 0; k < 3; ++k) {
        cache.append(one, {8 + k});
        cache.append(two, {51 + k});
        right = right && cache.reads(one) && cache.reads(two);
      }
      return right && cache.length(one) == 10 && cache.length(two) == 10;
    },
    Bug::shares_the_tail);
}

TEST_CASE("B-047 a prompt that leaves a cached page in its middle writes into a copy",
          "[faults][sharing]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 8));
      int const s = cache.open(joined(range(1, 6), {50}));
      bool right = cache.length(s) == 6;
      cache.append(s, {50, 51, 52});
      int const again = cache.open(range(1, 9));
      right = right && cache.length(again) == 8 && cache.reads(again) && cache.reads(s);
      return right && cache.table(s)[0] == cache.table(again)[0] &&
             cache.table(s)[1] != cache.table(again)[1];
    },
    Bug::shares_the_tail);
  RealCache real;
  real.cache(range(1, 8));
  int const s = real.open(joined(range(1, 6), {50}));
  int const t = real.open(joined(range(1, 6), {60}));
  CHECK(real.cache().holders(kvcache::PageId{real.table(s)[0]}) == 3);  // two tables and the tree
  CHECK(real.table(s) == real.table(t));
}

TEST_CASE("B-047 all parallel samples of one prompt write their own tail in one step",
          "[faults][sharing]")
{
  verify(
    [](auto& cache) {
      std::vector<int> samples{cache.open(range(1, 6))};
      cache.append(samples[0], range(1, 6));
      for (int i = 1; i < 4; ++i) {
        samples.push_back(cache.fork(samples[0]));
      }
      bool right = true;
      for (kvcache::Token k = 0; k < 5; ++k) {
        for (int i = 0; i < 4; ++i) {
          right = right && cache.reserve(samples[static_cast<std::size_t>(i)], {100 * i + k});
        }
        cache.run();
        cache.commit();
        for (int const s : samples) {
          right = right && cache.reads(s);
        }
      }
      return right;
    },
    Bug::shares_the_tail,
    16);
}

TEST_CASE("B-050 the next slot is not the last slot plus one", "[faults][sharing]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 14));
      int const t = cache.open(range(21, 29));
      for (kvcache::Token k = 0; k < 2;
           ++k) {  // turn by turn, so that neither has consecutive pages
        cache.append(s, range(4 * k + 1, 4 * k + 4));
        cache.append(t, range(4 * k + 21, 4 * k + 24));
      }
      cache.append(s, {9, 10});
      cache.append(s, range(11, 14));
      auto const pages = cache.table(s);
      return pages.size() == 4 && pages[1] != pages[0] + 1 && cache.reads(s) && cache.reads(t);
    },
    Bug::counts_slots_on);
}
