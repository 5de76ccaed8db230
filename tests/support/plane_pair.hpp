// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Two control planes that hear the same calls, for tests in which one of them hears more: both must go on alike.

#include <kvcache/control/control.hpp>

#include <vector>

#include "support/catch.hpp"
#include "support/plane.hpp"
#include "support/random.hpp"

namespace kvcache_test {

/// See the file comment. Two streams, of a step in flight each at most.
template <class P>
struct PlanePair {
  explicit PlanePair(kvcache::ControlOptions const& options)
      : planes{make_plane<P>(options), make_plane<P>(options)}
  {
  }

  /// A text of one, two or three pages is opened and computed.
  void compute(kvcache::StreamId stream, Random& random)
  {
    auto& ids = open_ids[stream.value];
    if (flights[stream.value].value != 0 || ids.size() == 3) {
      return;
    }
    auto const name = static_cast<kvcache::Token>(random.below(9)) * 100;
    Tokens const text = numbers(name, name + static_cast<kvcache::Token>(4 * random.between(1, 3)));
    kvcache::SequenceId id{};
    bool took = true;
    for (P& p : planes) {
      id = *p.open({.tokens = text, .stream = stream});
      kvcache::StepId const step = *p.begin(stream);
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
  void leave_in_flight(kvcache::StreamId stream)
  {
    auto& ids = open_ids[stream.value];
    if (flights[stream.value].value != 0 || ids.empty()) {
      return;
    }
    for (P& p : planes) {
      kvcache::StepId const step = *p.begin(stream);
      for (kvcache::SequenceId const id : ids) {
        (void)p.add(step, id, {.tokens = Tokens{7}});
      }
      REQUIRE(p.submit(step));
      flights[stream.value] = step;
      for (kvcache::SequenceId const id : ids) {
        REQUIRE(p.close(id));
      }
    }
    ids.clear();
  }
  void commit(kvcache::StreamId stream)
  {
    for (P& p : planes) {
      if (flights[stream.value].value != 0) {
        REQUIRE(p.commit(flights[stream.value]));
      }
    }
    flights[stream.value] = {};
  }

  P planes[2];
  std::vector<kvcache::SequenceId> open_ids[2];  // by stream
  kvcache::StepId flights[2]{};
};

}  // namespace kvcache_test
