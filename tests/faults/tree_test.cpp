// SPDX-License-Identifier: Apache-2.0
// Faults of sections 2 and 3, from the outside: the tree, and publishing. See tests/prefix/faults_test.cpp too.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "faults/verify.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

/// A sequence that takes page after page, so that cached ones must go.
template <class Cache>
class Filler {
 public:
  explicit Filler(Cache& cache) : cache_(cache), s_(cache.open({1000})) {}
  bool take(int pages)
  {
    Text text;
    for (int i = 0; i < 4 * pages; ++i) {
      text.push_back(1000 + next_++);
    }
    return cache_.append(s_, text);
  }
  void close() { cache_.close(s_); }

 private:
  Cache& cache_;
  int s_;
  int next_ = 0;
};

}  // namespace

TEST_CASE("B-016 the whole prompt is cached", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 8));
      bool right = cache.hit(range(1, 8)) == 7 && cache.hit(range(1, 9)) == 8 &&
                   cache.hit(range(1, 4)) == 3 && cache.hit({1}) == 0;
      // The last token is computed again, in a copy: the index keeps its two pages and their bytes.
      int const s = cache.open(range(1, 8));
      right = right && cache.length(s) == 7;
      auto const shared = cache.table(s);
      cache.reserve(s, {8});
      right = right && cache.table(s)[0] == shared[0] && cache.table(s)[1] != shared[1];
      cache.run();
      cache.commit();
      right = right && cache.reads(s);
      cache.close(s);
      return right && cache.cached() == 2 && cache.free() == 6;
    },
    Bug::ignores_fresh_tail);
}

TEST_CASE("B-016 the whole prompt is cached: a longer fresh tail is left to compute",
          "[faults][tree]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 12));
      int const s = cache.open(range(1, 12), 0, 6);
      return cache.length(s) == 6 && cache.reads(s);
    },
    Bug::ignores_fresh_tail);
}

TEST_CASE("B-019 a length divisible by the page size", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      bool right = true;
      for (auto const& [length, pages] :
           {std::pair<int, std::size_t>{0, 0}, {1, 1}, {4, 1}, {5, 2}, {8, 2}, {9, 3}}) {
        int const s = cache.open({});
        right = right && (length == 0 || cache.append(s, range(1, length)));
        right = right && cache.table(s).size() == pages && cache.reads(s);
        cache.close(s);
      }
      return right;
    },
    Bug::takes_a_page_too_many);

  // The last tile of the view has the rows of the last page, never 0 and never those of a whole page too many.
  for (auto const& [length, last] :
       {std::pair<int, int>{1, 1}, {3, 3}, {4, 4}, {5, 1}, {8, 4}, {9, 1}}) {
    RealCache cache;
    kvcache::Index const tiles = (length + 3) / 4;
    auto step = cache.cache().begin();
    REQUIRE(step.has_value());
    auto handle = cache.cache().open({.tokens = {}});
    REQUIRE(handle.has_value());
    Text const text = range(1, length);
    REQUIRE(step->add(*handle, {text}).has_value());
    REQUIRE(step->submit().has_value());
    auto const batch = step->view();
    CHECK(batch.tiles_of(length) == tiles);
    kvcache::Index seen = 0;
    kvcache::Index rows = 0;
    for (auto const tile : batch.tiles(0, 0, length - 1)) {
      rows = tile.rows();
      ++seen;
    }
    CHECK(seen == tiles);
    CHECK(rows == last);
  }
}

TEST_CASE("B-021 keys shorter than a page", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      bool right = true;
      for (kvcache::Token k = 1; k <= 1000 && right; ++k) {
        cache.cache({k, k + 1, k + 2});
        right = cache.hit({k, k + 1, k + 2}) == 0 && cache.cached() == 0 && cache.free() == 8;
      }
      return right && cache.check();
    },
    Bug::publishes_short_keys);
}

TEST_CASE("B-023 a child filed under the wrong key after a split", "[faults][tree]")
{
  verify(
    [](auto& first) {
      std::vector<Text> texts{
        range(1, 8), {1, 2, 3, 4, 9, 10, 11, 12}, {1, 2, 9, 9, 9, 9, 9, 9}, range(1, 16)};
      std::sort(texts.begin(), texts.end());
      bool right = true;
      auto& cache = first;
      int tenant = 0;
      do {
        ++tenant;
        for (std::size_t i = 0; i < texts.size() && right; ++i) {
          cache.cache(texts[i], tenant);
          for (std::size_t j = 0; j <= i; ++j) {
            right = right && cache.hit(joined(texts[j], {99}), tenant) ==
                               static_cast<kvcache::Index>(texts[j].size());
          }
          right = right && cache.check();
        }
        right = right && cache.cached() == 7;
        Filler filler(cache);
        for (int page = 0; page < 8 && right; ++page) {  // one free, seven cached
          right = filler.take(1) && cache.check() &&
                  cache.cached() == static_cast<std::uint32_t>(7 - page);
        }
        filler.close();
        cache.forget(0);  // the filler's own pages
        right = right && cache.free() == 8;
      } while (right && std::next_permutation(texts.begin(), texts.end()));
      return right && tenant == 24;
    },
    Bug::misfiles_a_child);
}

TEST_CASE("B-025 shared pages counted twice as evictable", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 8));
      cache.cache({1, 2, 3, 4, 9, 10, 11, 12});
      bool const idle = cache.cached() == 3 && cache.free() == 5;
      int const s = cache.open({1, 2, 3, 4, 77});
      bool const used = cache.length(s) == 4 && cache.cached() == 2 && cache.free() == 5;
      cache.close(s);
      return idle && used && cache.cached() == 3 && cache.check();
    },
    Bug::counts_shared_twice);
}

TEST_CASE("B-026 a partial match locks too much", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 16));
      int const s = cache.open(joined(range(1, 8), {50}));
      cache.cache(joined(range(1, 8), range(31, 38)));
      bool right = cache.length(s) == 8 && cache.cached() == 4;  // all but the two that s uses
      cache.close(s);
      right = right && cache.cached() == 6 && cache.free() == 2;
      Filler filler(cache);
      return right && filler.take(8) && cache.cached() == 0 && cache.check();
    },
    Bug::keeps_a_lock);
}

TEST_CASE("B-028 a prefix evicted before its suffix", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 12));
      Filler filler(cache);
      bool right = cache.hit(range(1, 13)) == 12;
      for (kvcache::Index left = 12; left >= 0; left -= 4) {  // the first page is a free one
        right = right && filler.take(1) && cache.hit(range(1, 13)) == left;
      }
      return right;
    },
    Bug::evicts_the_front,
    4);
}

TEST_CASE("B-031 a page indexed, the request dropped, the rows never written", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 8));
      bool right = cache.reserve(s, range(1, 8));
      right = right && cache.hit(range(1, 9)) == 0;  // reserved is not written
      cache.close(s);
      cache.drop();
      return right && cache.hit(range(1, 9)) == 0 && cache.free() == 8;
    },
    Bug::publishes_at_reserve);
}

TEST_CASE("B-031 a step that fails after submit publishes nothing", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 8));
      cache.reserve(s, range(1, 8));
      cache.run();
      bool const right = cache.hit(range(1, 9)) == 0;
      cache.fail();
      return right && cache.hit(range(1, 9)) == 0 && cache.length(s) == 0 && cache.free() == 8;
    },
    Bug::publishes_at_reserve);
}

TEST_CASE("B-033 chunked prefill publishes half a page, and counts a hit as free", "[faults][tree]")
{
  verify(
    [](auto& cache) {
      int const s = cache.open(range(1, 8));
      cache.append(s, range(1, 6));
      return cache.hit(range(1, 9)) == 4;
    },
    Bug::publishes_part_pages);
  verify(
    [](auto& cache) {
      cache.cache(range(1, 4));
      int const other = cache.open({50});
      cache.append(other, {50});
      bool right = cache.free() == 1 && cache.cached() == 1;
      int const large = cache.open(joined(range(1, 4), range(21, 28)));
      right = right && cache.length(large) == 4 && !cache.append(large, range(21, 28));  // 2 of 1
      cache.close(large);
      int const small = cache.open(range(1, 8));
      right = right && cache.length(small) == 4 && cache.append(small, range(5, 8));
      cache.close(small);
      return right && cache.hit({1, 2, 3, 4, 60}) == 4 && cache.cached() == 2 && cache.check();
    },
    Bug::leaks_when_refused,
    3);
}
