// SPDX-License-Identifier: Apache-2.0
// B-133 with steps in flight: results that come after their sequence was preempted, closed or cut.

#include <kvcache/control/prompt.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "faults/serving.hpp"
#include "faults/subject.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

enum class End { suspend, suspend_and_resume, cut, close };

/// Sequences whose steps take three tokens by count, up to two steps in flight.
class RealFlights {
 public:
  int open(Text const& text)
  {
    ids_.push_back(*plane_.open({.tokens = {}}));
    auto const step = *plane_.begin(kvcache::StreamId{1});  // beside those in flight
    (void)plane_.add(step, ids_.back(), {.tokens = text});
    (void)plane_.submit(step);
    (void)plane_.commit(step);
    return static_cast<int>(ids_.size()) - 1;
  }
  void fly(int s)
  {
    steps_.push_back(*plane_.begin());
    (void)plane_.add(steps_.back(), at(s), {.tokens = {}, .count = 3});
    (void)plane_.submit(steps_.back());
  }
  void end(int s, End how)
  {
    switch (how) {
      case End::suspend:
        (void)plane_.suspend(at(s));
        break;
      case End::suspend_and_resume:
        (void)plane_.suspend(at(s));
        (void)plane_.resume(at(s));
        break;
      case End::cut:
        (void)plane_.truncate(at(s), 4);
        break;
      case End::close:
        (void)plane_.close(at(s));
        break;
    }
  }
  /// The results of the `i`-th step. False: it was over.
  bool land(std::size_t i, Text const& names)
  {
    std::vector<kvcache::Outcome> const outcome{{.accepted = 3, .tokens = names}};
    return plane_.commit(steps_[i], outcome).has_value();
  }
  void resume(int s) { (void)plane_.resume(at(s)); }
  [[nodiscard]] Text text(int s) const
  {
    auto const tokens = plane_.tokens(ids_[static_cast<std::size_t>(s)]);
    return {tokens.begin(), tokens.end()};
  }
  [[nodiscard]] bool sound() const
  {
    return static_cast<bool>(plane_.check_invariants()) && plane_.stats().fenced == 0;
  }

 private:
  [[nodiscard]] kvcache::SequenceId at(int s) { return ids_[static_cast<std::size_t>(s)]; }
  Plane plane_ = plane_of(8);
  std::vector<kvcache::SequenceId> ids_;
  std::vector<kvcache::StepId> steps_;
};

/// The same as plain texts. With the fault a result goes to whoever has the place of its sequence now.
class NaiveFlights {
 public:
  explicit NaiveFlights(bool takes_late_results = false) : takes_late_results_(takes_late_results)
  {
  }
  int open(Text const& text)
  {
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      if (!sequences_[s].open) {  // its place goes to the next
        sequences_[s] = {text, sequences_[s].epoch + 1, true};
        return static_cast<int>(s);
      }
    }
    sequences_.push_back({text, 0, true});
    return static_cast<int>(sequences_.size()) - 1;
  }
  void fly(int s) { steps_.push_back({s, at(s).epoch, true}); }
  void end(int s, End how)
  {
    at(s).epoch += 1;
    at(s).open = how != End::close;
    at(s).text.resize(how == End::close ? 0 : 4);
  }
  bool land(std::size_t i, Text const& names)
  {
    Step& step = steps_[i];
    bool const was_flying = step.flying;
    step.flying = false;
    if (was_flying && (takes_late_results_ || at(step.sequence).epoch == step.epoch)) {
      at(step.sequence).text = joined(at(step.sequence).text, names);
    }
    return was_flying;
  }
  void resume(int) {}
  [[nodiscard]] Text text(int s) const { return sequences_[static_cast<std::size_t>(s)].text; }
  [[nodiscard]] bool sound() const { return true; }

 private:
  struct Sequence {
    Text text;
    int epoch;
    bool open;
  };
  struct Step {
    int sequence;
    int epoch;
    bool flying;
  };
  [[nodiscard]] Sequence& at(int s) { return sequences_[static_cast<std::size_t>(s)]; }
  std::vector<Sequence> sequences_;
  std::vector<Step> steps_;
  bool takes_late_results_;
};

/// `steps` steps of a sequence fly when it ends; another takes its place where it was closed. Their results are for nobody.
template <class Flights>
bool ignores_late_results(Flights flights, int steps, End how)
{
  int const s = flights.open(range(1, 4));
  for (int i = 0; i < steps; ++i) {
    flights.fly(s);
  }
  flights.end(s, how);
  bool right = true;
  int const t = how == End::close ? flights.open(range(101, 104)) : -1;
  for (int i = 0; i < steps; ++i) {
    auto const step = static_cast<std::size_t>(i);
    right = flights.land(step, range(5, 7)) && right;
    right = !flights.land(step, range(5, 7)) && right;  // and only once
    right = right && (t < 0 || flights.text(t) == range(101, 104));
  }
  if (how == End::suspend) {
    flights.resume(s);
  }
  return right && (how == End::close || flights.text(s) == range(1, 4)) && flights.sound();
}

}  // namespace

TEST_CASE("B-133 results of steps in flight of a sequence that was rolled back",
          "[faults][late_results]")
{
  for (int const steps : {1, 2}) {
    for (End const how : {End::suspend, End::suspend_and_resume, End::cut, End::close}) {
      CAPTURE(steps, static_cast<int>(how));
      CHECK(ignores_late_results(RealFlights(), steps, how));
      CHECK(ignores_late_results(NaiveFlights(), steps, how));
      CHECK_FALSE(ignores_late_results(NaiveFlights(true), steps, how));
    }
  }
  RealFlights flights;  // the sequence goes on where it was
  int const s = flights.open(range(1, 4));
  flights.fly(s);
  flights.fly(s);
  flights.end(s, End::suspend_and_resume);
  (void)flights.land(0, range(50, 52));
  (void)flights.land(1, range(60, 62));
  flights.fly(s);
  (void)flights.land(2, range(5, 7));
  CHECK(flights.text(s) == range(1, 7));
  CHECK(flights.sound());
}
