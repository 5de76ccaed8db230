// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file An engine on two streams whose kernels run late, with steps that it gives up before they ran. Every row that a
/// kernel reads must be the right one.

#include <kvcache/kvcache.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/facade.hpp"
#include "support/random.hpp"
#include "support/stream_world.hpp"

namespace kvcache_test {

/// What happened: a run in which nothing is given up shows nothing.
struct StreamsTally {
  int wrong = 0;
  int steps = 0;
  int given_up = 0;
  int hits = 0;
};

/// `device` asks `world`. `handles` are two streams.
inline StreamsTally run_streams(std::uint64_t seed,
                                kvcache::Device& device,
                                StreamWorld& world,
                                std::array<void*, 2> handles)
{
  using Step = Cache::Step;
  struct Flight {
    Step step;
    StreamWorld::Mark end;  // of its kernels
    std::size_t sequence;
    Tokens history;  // with its tokens
  };
  struct Open {
    kvcache::Sequence sequence;
    Tokens history;
    std::uint32_t stream;
    int flights = 0;
  };
  Random random(seed);
  StreamsTally tally;
  {
    auto made = Cache::create(
      small_model, {.pages = 14, .max_sequences = 8, .max_step_tokens = 64, .device = &device});
    REQUIRE(made);
    Cache cache(std::move(*made));
    std::vector<std::optional<Open>> open(5);
    std::array<std::deque<Flight>, 2> flights;
    auto const commit = [&](std::uint32_t stream) {
      Flight& oldest = flights[stream].front();
      world.finish(oldest.end);
      REQUIRE(oldest.step.commit());
      Open& o = *open[oldest.sequence];
      o.flights -= 1;
      flights[stream].pop_front();
    };
    for (int round = 0; round < 150; ++round) {
      std::uint32_t const stream = random.below(2);
      std::size_t const i = random.below(5);
      auto const what = random.below(10);
      if (what == 0 && open[i] && open[i]->flights == 0) {
        open[i].reset();
      } else if (what <= 2 && !flights[stream].empty()) {
        commit(stream);
      } else if (what == 3 && !flights[stream].empty()) {
        // Gives up all of the stream, the youngest first; none of their kernels needs to have run.
        while (!flights[stream].empty()) {
          Flight& last = flights[stream].back();
          open[last.sequence].reset();
          flights[stream].pop_back();
          tally.given_up += 1;
        }
      } else if (flights[stream].size() < 2) {
        if (!open[i]) {
          Tokens prompt{7, 8, 9, 10};  // the same for all: pages are shared
          prompt.push_back(static_cast<kvcache::Token>(random.below(3)));
          auto sequence = cache.open({.tokens = prompt, .stream = kvcache::StreamId{stream}});
          if (!sequence) {
            continue;
          }
          auto const cached = static_cast<std::ptrdiff_t>(sequence->cached());
          tally.hits += cached > 0 ? 1 : 0;
          open[i].emplace(
            Open{std::move(*sequence), Tokens(prompt.begin(), prompt.begin() + cached), stream, 0});
        }
        Open& o = *open[i];
        if (o.flights > 0 && o.stream != stream) {
          continue;
        }
        o.stream = stream;
        Tokens next;
        for (std::uint32_t n = random.between(1, 6); n > 0; --n) {
          next.push_back(static_cast<kvcache::Token>(100 + random.below(50)));
        }
        if (o.history.size() < 4) {
          next = {7, 8, 9, 10};
          next.erase(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(o.history.size()));
        }
        auto step = cache.prepare({{o.sequence, next}}, {handles[stream], stream});
        if (!step) {
          if (o.history.size() < 4) {
            open[i].reset();  // what it found may be a step's that is given up next
          }
          continue;
        }
        Tokens history = o.history;
        history.insert(history.end(), next.begin(), next.end());
        if (step->plan().chunks.empty()) {  // all of them are cached by now
          next.clear();
        } else {
          auto const planned = static_cast<std::ptrdiff_t>(step->plan().chunks[0].tokens);
          next.erase(next.begin(), next.end() - planned);
        }
        world.ask(handles[stream], [&tally, view = step->view(), next, history] {
          if (view.num_tokens() != static_cast<kvcache::Index>(next.size())) {
            tally.wrong += 1000;
            return;
          }
          if (!next.empty()) {
            run_kernels(view, next);
            tally.wrong += count_wrong(view, view.num_tokens() - 1, history);
          }
        });
        o.history = history;
        o.flights += 1;
        tally.steps += 1;
        flights[stream].push_back(
          {std::move(*step), world.record(handles[stream]), i, std::move(history)});
      }
    }
    while (!flights[0].empty() || !flights[1].empty()) {
      commit(flights[0].empty() ? 1 : flights[1].empty() ? 0 : random.below(2));
    }
    world.finish_all(random);
  }
  return tally;
}

}  // namespace kvcache_test
