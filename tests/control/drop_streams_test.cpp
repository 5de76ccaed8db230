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
#include "support/random.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

template <class Policy>
class Pair {
 public:
  using P = Control<PageAllocator, RadixTree, Policy>;

  explicit Pair(std::uint64_t seed) : random_(seed)
  {
    ControlOptions const options{
      .pages = 24, .page_tokens = 4, .max_sequences = 16, .max_step_tokens = 256};
    planes_.push_back(make_plane<P>(options));
    planes_.push_back(make_plane<P>(options));
  }

  /// One random call, or a few that end with a dropped step.
  void act()
  {
    StreamId const stream{random_.below(2)};
    switch (random_.below(4)) {
      case 0:
        compute(stream);
        break;
      case 1:
        leave_in_flight(stream);
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
    return cached(planes_[0]) == cached(planes_[1]) &&
           planes_[0].stats().evicted_pages == planes_[1].stats().evicted_pages &&
           planes_[1].check_invariants();
  }
  /// Everything that is cached leaves page by page, in the same order.
  [[nodiscard]] bool drain()
  {
    for (std::uint32_t s = 0; s < 2; ++s) {
      commit(StreamId{s});
      for (SequenceId const id : open_[s]) {
        REQUIRE(planes_[0].close(id));
        REQUIRE(planes_[1].close(id));
      }
    }
    SequenceId eater{};
    for (P& p : planes_) {
      eater = open(p, {5});
    }
    while (planes_[0].stats().free + planes_[0].stats().cached > 0 && alike()) {
      for (P& p : planes_) {
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
  /// A text of one, two or three pages is opened and computed.
  void compute(StreamId stream)
  {
    auto& ids = open_[stream.value];
    if (flights_[stream.value].value != 0 || ids.size() == 3) {
      return;
    }
    Token const name = static_cast<Token>(random_.below(9)) * 100;
    Tokens const text = numbers(name, name + static_cast<Token>(4 * random_.between(1, 3)));
    SequenceId id{};
    bool took = true;
    for (P& p : planes_) {
      id = *p.open({.tokens = text, .stream = stream});
      StepId const step = *p.begin(stream);
      Tokens const rest(text.begin() + p.info(id)->length, text.end());
      took = p.add(step, id, {.tokens = rest}).has_value();
      if (took) {
        REQUIRE(p.submit(step));
        REQUIRE(p.commit(step));
      } else {
        REQUIRE(p.drop(step));
        REQUIRE(p.close(id));
      }
    }
    if (took) {
      ids.push_back(id);
    }
  }
  /// What is open gets a step, and leaves: its pages are fenced.
  void leave_in_flight(StreamId stream)
  {
    auto& ids = open_[stream.value];
    if (flights_[stream.value].value != 0 || ids.empty()) {
      return;
    }
    for (P& p : planes_) {
      StepId const step = *p.begin(stream);
      for (SequenceId const id : ids) {
        (void)p.add(step, id, {.tokens = Tokens{7}});
      }
      REQUIRE(p.submit(step));
      flights_[stream.value] = step;
      for (SequenceId const id : ids) {
        REQUIRE(p.close(id));
      }
    }
    ids.clear();
  }
  void commit(StreamId stream)
  {
    for (P& p : planes_) {
      if (flights_[stream.value].value != 0) {
        REQUIRE(p.commit(flights_[stream.value]));
      }
    }
    flights_[stream.value] = {};
  }
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
    for (P& p : planes_) {
      for (int i = 0; i < 3; ++i) {
        ids[i] = *p.open({.tokens = Tokens{9}, .stream = i < 2 ? stream : other});
      }
      steps[0] = *p.begin(stream);
    }
    std::uint64_t const before = planes_[1].stats().evicted_pages;
    (void)planes_[1].add(steps[0], ids[0], {.tokens = texts[0]});
    (void)planes_[1].add(steps[0], ids[1], {.tokens = texts[1]});
    if (ends) {
      commit(other);
    }
    for (P& p : planes_) {
      steps[1] = *p.begin(other);
    }
    if (both) {
      (void)planes_[1].add(steps[1], ids[2], {.tokens = texts[2]});
    }
    evicted_ += planes_[1].stats().evicted_pages - before;
    for (P& p : planes_) {
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
  std::vector<P> planes_;
  std::vector<SequenceId> open_[2];  // by stream
  StepId flights_[2]{};
  std::uint64_t evicted_ = 0;
};

template <class Policy>
void check_seeds(std::uint64_t seeds)
{
  std::uint64_t evicted = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    Pair<Policy> pair(seed);
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
