// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The scheduler of 04_scheduler_and_worker.cpp: requests and a control plane, no byte of K or V.

#include <kvcache/control/plan_bytes.hpp>
#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "04_messages.hpp"
#include "04_processes.hpp"

/// A question, and what is known of its answer.
struct Request {
  Tokens text;
  std::size_t asked = 0;  // tokens of it that are the prompt
  int sentences = 0;      // it ends behind so many full stops: nobody knows beforehand when that is
  kvcache::Token full_stop = 0;

  [[nodiscard]] bool done() const
  {
    int stops = 0;
    for (std::size_t i = asked; i < text.size(); ++i) {
      stops += text[i] == full_stop ? 1 : 0;
    }
    return stops == sentences;
  }
  friend bool operator==(Request const&, Request const&) = default;
};

/// What a run of the scheduler cost.
struct Figures {
  std::size_t steps = 0;
  std::size_t rows = 0;     // computed
  std::size_t ahead = 0;    // steps planned while another was in flight
  std::size_t late = 0;     // tokens that came when their request had ended
  std::size_t waiting = 0;  // plans that the worker found in its pipe
  std::size_t plan_bytes = 0;
};

using Control = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;

/// Runs all requests through one worker. Of what it knows a request is its tokens: with them another scheduler, and
/// another worker, can go on.
class Scheduler {
 public:
  Scheduler(Process& worker, std::vector<Request>& requests, std::size_t depth)
      : worker_(worker),
        requests_(requests),
        depth_(depth),
        control_(Control::create(sizes()).value())
  {
    for (Request const& request : requests) {
      sequences_.push_back(
        {*control_.open({.tokens = request.text}), 0});  // an empty tree: no hits
    }
  }

  /// Returns whether all requests came to their end; if not, `trouble()` says why. `kill_at`: the step after which
  /// the worker is killed.
  bool run(std::size_t kill_at = 0)
  {
    for (;;) {
      while (trouble_.empty() && flights_.size() < depth_ && plan_step()) {
      }
      if (!trouble_.empty() || flights_.empty()) {
        break;
      }
      if (figures_.steps == kill_at) {
        worker_.kill();
      }
      collect();
    }
    if (!control_.check_invariants()) {
      trouble_ += "; the control plane is broken";
    }
    return trouble_.empty();
  }

  [[nodiscard]] Figures const& figures() const { return figures_; }
  [[nodiscard]] std::string const& trouble() const { return trouble_; }

 private:
  static constexpr std::size_t chunk_tokens = 64;

  struct Planned {
    kvcache::SequenceId id;
    std::size_t rows;  // with those in flight
  };
  struct Part {  // a chunk of a step in flight, in the order of the adds
    std::size_t request;
    std::size_t first;    // where its tokens begin in the text
    kvcache::Index rows;  // computed; 0: it was found whole, and the worker has no part of it
    bool counted;         // planned by number
    bool picks;           // ends where the text ended when it was planned: its token is news
  };
  struct Flight {
    kvcache::StepId step;
    std::vector<Part> parts;
  };

  /// Plans a step of all that can go on and sends it. Returns whether there was anything to send, and to whom.
  bool plan_step()
  {
    Flight flight{*control_.begin({}, {.attach = true}), {}};
    bool anything = false;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (!requests_[i].done()) {
        anything = add_chunk(i, flight) || anything;
      }
    }
    if (!anything || !trouble_.empty()) {
      control_.drop(flight.step);
      return false;
    }
    (void)control_.submit(flight.step);
    Tokens inputs;
    for (kvcache::StepToken const token : control_.tokens(flight.step)) {
      inputs.push_back(token.kind == kvcache::StepToken::Kind::counted ? yours : token.token);
    }
    figures_.steps += 1;
    figures_.rows += inputs.size();
    figures_.ahead += flights_.empty() ? 0U : 1U;
    flights_.push_back(std::move(flight));
    if (!send_step(control_.plan(flights_.back().step), inputs)) {
      give_up();
      return false;
    }
    return true;
  }

  /// The next tokens of a request: those that are known, else one that is not known yet.
  bool add_chunk(std::size_t request, Flight& flight)
  {
    std::span<kvcache::Token const> const text = requests_[request].text;
    Planned& planned = sequences_[request];
    auto const known = text.subspan(std::min(planned.rows, text.size()));
    auto const named = known.first(std::min(known.size(), chunk_tokens));
    kvcache::Chunk const chunk{.tokens = named, .count = named.empty() ? 1 : 0};
    auto const added = control_.add(flight.step, planned.id, chunk);
    if (!added) {
      trouble_ = "a step lacks pages";  // llama/batch.cpp shows what to do about it
      return false;
    }
    // Of equal prompts one is computed: the others attach to its pages, in the same step already.
    flight.parts.push_back(
      {request, planned.rows, *added, named.empty(), named.size() == known.size()});
    planned.rows += named.empty() ? 1 : named.size();
    return true;
  }

  bool send_step(kvcache::Plan const& plan, Tokens& inputs)
  {
    (void)kvcache::serialise(plan, bytes_);
    figures_.plan_bytes += bytes_.size();
    std::vector<Header> header{
      {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(inputs.size())}};
    return write_all(worker_.to(), bytes_of(header)) && write_all(worker_.to(), bytes_) &&
           write_all(worker_.to(), bytes_of(inputs));
  }

  /// Waits for the oldest step and commits it.
  void collect()
  {
    Flight const& flight = flights_.front();
    Picks result(1 + control_.plan(flight.step).chunks.size());
    if (!read_all(worker_.from(), bytes_of(result))) {
      give_up();
      return;
    }
    figures_.waiting += static_cast<std::size_t>(result[0]);
    std::vector<kvcache::Outcome> outcomes(flight.parts.size());
    for (std::size_t i = 0; i < flight.parts.size(); ++i) {
      Request const& request = requests_[flight.parts[i].request];
      if (!request.done()) {  // else it was closed while the step ran, and the step knows
        outcomes[i].accepted = flight.parts[i].rows;
        if (flight.parts[i].counted) {  // by now the step before has said which token that was
          outcomes[i].tokens = {&request.text[flight.parts[i].first], 1};
        }
      }
    }
    if (auto const done = control_.commit(flight.step, outcomes); !done) {
      trouble_ = done.error().message().text;
      return;
    }
    std::size_t answer = 1;
    for (Part const& part : flight.parts) {
      Request& request = requests_[part.request];
      kvcache::Token const pick = part.rows > 0 ? result[answer++] : yours;
      if (request.done()) {
        figures_.late += 1;
      } else if (part.picks) {  // its last token is always computed
        request.text.push_back(pick);
        if (request.done()) {
          control_.close(sequences_[part.request].id);
        }
      }
    }
    flights_.pop_front();
  }

  /// The worker is gone. What was in flight never existed.
  void give_up()
  {
    trouble_ = "the worker, process " + std::to_string(worker_.pid()) + ", " + worker_.end() +
               " with " + std::to_string(flights_.size()) + " steps in flight";
    for (Flight const& flight : flights_) {
      control_.fail(flight.step);
    }
    flights_.clear();
  }

  Process& worker_;
  std::vector<Request>& requests_;
  std::size_t depth_;
  Control control_;
  std::vector<Planned> sequences_;
  std::deque<Flight> flights_;
  std::vector<std::byte> bytes_;  // of the plan sent last
  Figures figures_;
  std::string trouble_;
};
