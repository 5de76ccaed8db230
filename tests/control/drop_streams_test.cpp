// SPDX-License-Identifier: Apache-2.0
// Steps that are filled, and dropped, beside steps of another stream: what leaves next, and in which order, is as if they had
// never been. Two planes hear the same calls, and one of them also adds to steps that are dropped.

#include <kvcache/replace/sieve.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "support/cases.hpp"
#include "support/plane.hpp"
#include "support/plane_pair.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

template <class Policy>
class DroppedPair : PlanePair<Control<PageAllocator, RadixTree, Policy>> {
  using P = Control<PageAllocator, RadixTree, Policy>;
  using Base = PlanePair<P>;
  using Base::commit;
  using Base::open_ids;
  using Base::planes;

 public:
  explicit DroppedPair(std::uint64_t seed)
      : Base({.pages = 24, .page_tokens = 4, .max_sequences = 16, .max_step_tokens = 256}),
        random_(seed)
  {
  }

  /// One random call, or a few that end with a dropped step.
  void act()
  {
    StreamId const stream{random_.below(2)};
    switch (random_.below(4)) {
      case 0:
        this->compute(stream, random_);
        break;
      case 1:
        this->leave_in_flight(stream);
        break;
      case 2:
        commit(stream);
        break;
      default:
        drop(stream);
    }
  }
  /// The same texts are cached, and as many left.
  [[nodiscard]] bool alike() const
  {
    return cached(planes[0]) == cached(planes[1]) &&
           planes[0].stats().evicted_pages == planes[1].stats().evicted_pages &&
           planes[1].check_invariants();
  }
  /// Everything that is cached leaves page by page, in the same order.
  [[nodiscard]] bool drain()
  {
    for (std::uint32_t s = 0; s < 2; ++s) {
      commit(StreamId{s});
      for (SequenceId const id : open_ids[s]) {
        REQUIRE(planes[0].close(id));
        REQUIRE(planes[1].close(id));
      }
    }
    SequenceId eater{};
    for (P& p : planes) {
      eater = open(p, {5});
    }
    while (planes[0].stats().free + planes[0].stats().cached > 0 && alike()) {
      for (P& p : planes) {
        StepId const step = begin(p);
        REQUIRE(p.add(step, eater, {.count = 4}));
        REQUIRE(p.submit(step));
        Tokens const names(4, 5);
        REQUIRE(p.commit(step, std::vector<Outcome>{{.accepted = 4, .tokens = names}}));
      }
    }
    return alike();
  }
  [[nodiscard]] std::uint64_t dropped_evictions() const { return evicted_; }

 private:
  /// A step of two chunks is dropped; perhaps one of the other stream, that began later, is too, or the other stream's step in
  /// flight ends meanwhile.
  void drop(StreamId stream)
  {
    StreamId const other{1 - stream.value};
    bool const both = random_.below(2) == 0;
    bool const ends = random_.below(2) == 0;
    Tokens texts[3];
    for (Tokens& text : texts) {
      text = numbers(10'000, 10'000 + static_cast<Token>(4 * random_.between(1, 10)) - 1);
    }
    StepId steps[2];
    SequenceId ids[3];
    for (P& p : planes) {
      for (int i = 0; i < 3; ++i) {
        ids[i] = *p.open({.tokens = Tokens{9}, .stream = i < 2 ? stream : other});
      }
      steps[0] = *p.begin(stream);
    }
    std::uint64_t const before = planes[1].stats().evicted_pages;
    (void)planes[1].add(steps[0], ids[0], {.tokens = texts[0]});
    (void)planes[1].add(steps[0], ids[1], {.tokens = texts[1]});
    if (ends) {
      commit(other);
    }
    for (P& p : planes) {
      steps[1] = *p.begin(other);
    }
    if (both) {
      (void)planes[1].add(steps[1], ids[2], {.tokens = texts[2]});
    }
    evicted_ += planes[1].stats().evicted_pages - before;
    for (P& p : planes) {
      REQUIRE(p.drop(steps[1]));
      REQUIRE(p.drop(steps[0]));
      for (SequenceId const id : ids) {
        REQUIRE(p.close(id));
      }
    }
  }
  /// Every cached text that ends with a page.
  [[nodiscard]] static std::set<Tokens> cached(P const& p)
  {
    std::map<std::uint32_t, Tokens> texts;
    std::set<Tokens> all;
    p.for_each_stored([&](Event const& event) {  // parents first
      Tokens text = texts[event.parent.value];
      text.insert(text.end(), event.tokens.begin(), event.tokens.end());
      texts[event.page.value] = text;
      all.insert(text);
    });
    return all;
  }

  Random random_;
  std::uint64_t evicted_ = 0;
};

template <class Policy>
void check_seeds(std::uint64_t seeds)
{
  std::uint64_t evicted = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    DroppedPair<Policy> pair(seed);
    for (int round = 0; round < 200; ++round) {
      CAPTURE(round);
      pair.act();
      REQUIRE(pair.alike());
    }
    REQUIRE(pair.drain());
    evicted += pair.dropped_evictions();
  }
  CHECK(evicted > 100 * seeds);
}

}  // namespace

TEST_CASE("drop: beside steps of two streams the order of what leaves is as it was",
          "[control][drop][sieve]")
{
  check_seeds<Lru>(static_cast<std::uint64_t>(cases_of(60)));
  check_seeds<Sieve>(static_cast<std::uint64_t>(cases_of(60)));
}
