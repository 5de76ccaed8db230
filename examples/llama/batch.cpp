// SPDX-License-Identifier: Apache-2.0
#include "batch.hpp"

#include <algorithm>
#include <string>

#include "error.hpp"
#include "sampler.hpp"

namespace llama {
namespace {

struct Request {
  enum class State { waiting, running, done };

  kvcache::Sequence sequence;
  std::vector<std::int32_t> text;  // the prompt and what was picked; the last token has no row yet
  std::size_t end = 0;             // tokens of `text` when it is done
  State state = State::waiting;
  std::size_t rows_given = 0;  // that it had when it was suspended

  [[nodiscard]] bool suspended() const { return sequence.info().suspended; }
  [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(sequence.length()); }
};

/// The requests stand in the order of their arrival: who comes first is served first and suspended last.
class Batcher {
 public:
  Batcher(Engine& engine,
          std::span<std::vector<std::int32_t> const> prompts,
          BatchOptions const& options)
      : engine_(engine), options_(options)
  {
    for (auto const& prompt : prompts) {
      std::size_t const rows = prompt.size() + options.tokens - 1;
      if (pages(rows) > engine.stats().capacity) {
        throw Error("a request of " + std::to_string(rows) + " rows takes " +
                    std::to_string(pages(rows)) + " pages; the pool has " +
                    std::to_string(engine.stats().capacity));
      }
      requests_.push_back(
        {engine.open({.tokens = prompt}), prompt, prompt.size() + options.tokens});
    }
  }

  Batch run()
  {
    while (admit()) {
      step();
    }
    for (Request const& request : requests_) {
      auto const answer = request.text.end() - static_cast<std::ptrdiff_t>(options_.tokens);
      out_.answers.emplace_back(answer, request.text.end());
    }
    return std::move(out_);
  }

 private:
  using State = Request::State;

  [[nodiscard]] std::size_t pages(std::size_t rows) const
  {
    return pages_for(rows, engine_.geometry().page_tokens);
  }
  [[nodiscard]] Request* youngest_running()
  {
    auto const last = std::find_if(requests_.rbegin(), requests_.rend(), [](Request const& r) {
      return r.state == State::running;
    });
    return last == requests_.rend() ? nullptr : &*last;
  }

  /// Lets requests in while their text, and a page of growth for everybody, fits. Returns whether any is running.
  bool admit()
  {
    kvcache::Stats const stats = engine_.stats();
    std::size_t running = 0;
    std::size_t promised = 0;
    for (Request const& request : requests_) {
      if (request.state == State::running) {
        running += 1;
        promised += pages(request.text.size()) + 1 - request.sequence.info().pages;
      }
    }
    for (Request& request : requests_) {
      if (request.state != State::waiting) {
        continue;
      }
      promised += pages(request.text.size()) + 1;
      if (running > 0 && promised > stats.free + stats.cached) {
        break;
      }
      if (request.suspended()) {
        engine_.resume(request.sequence);
        out_.rows_kept += request.rows();
        out_.rows_recomputed += request.rows_given - request.rows();
      }
      request.state = State::running;
      running += 1;
    }
    out_.most_running = std::max(out_.most_running, running);
    return running > 0;
  }

  void step()
  {
    for (;;) {
      plan();
      auto const logits = engine_.try_step(works_);
      if (logits) {
        collect(*logits);
        out_.steps += 1;
        return;
      }
      if (out_.first.why == kvcache::Why::ok) {
        out_.first = logits.error();
      }
      if (!make_room(logits.error())) {
        throw Error("the oldest request finds no room: others hold pages of this engine");
      }
    }
  }

  /// Each running request computes what its text has more than rows, as far as the step holds it.
  void plan()
  {
    works_.clear();
    planned_.clear();
    std::size_t left = options_.step_tokens;
    for (Request& request : requests_) {
      std::size_t const lacks = request.text.size() - request.rows();
      std::size_t const tokens = std::min(lacks, left);
      if (request.state != State::running || tokens == 0) {
        continue;
      }
      left -= tokens;
      works_.push_back({&request.sequence,
                        std::span(request.text).subspan(request.rows(), tokens),
                        tokens == lacks ? Wanted::last : Wanted::none});
      planned_.push_back(&request);
    }
  }

  void collect(std::span<float const> logits)
  {
    for (std::size_t i = 0; i < works_.size(); ++i) {
      if (works_[i].wanted == Wanted::none) {
        continue;
      }
      Request& request = *planned_[i];
      request.text.push_back(greedy(logits.first(engine_.vocab())));
      logits = logits.subspan(engine_.vocab());
      if (request.text.size() == request.end) {
        request.sequence.close();
        request.state = State::done;
      }
    }
  }

  /// Suspends as many as it takes for the pages that the step lacked, but not the oldest. Returns whether it found any.
  bool make_room(kvcache::Shortage const& shortage)
  {
    std::size_t const there = std::size_t{shortage.free} + shortage.evictable;
    std::size_t const lacking = shortage.need > there ? shortage.need - there : 1;
    for (std::size_t given = 0; given < lacking;) {
      Request* const victim = youngest_running();
      if (victim == nullptr || victim == planned_.front()) {
        return given > 0;
      }
      given += victim->sequence.info().pages;
      victim->rows_given = victim->rows();
      engine_.suspend(victim->sequence);
      victim->state = State::waiting;
      out_.suspensions += 1;
    }
    return true;
  }

  Engine& engine_;
  BatchOptions options_;
  std::vector<Request> requests_;
  std::vector<Work> works_;
  std::vector<Request*> planned_;  // whose works they are
  Batch out_;
};

}  // namespace

Batch run_batch(Engine& engine,
                std::span<std::vector<std::int32_t> const> prompts,
                BatchOptions const& options)
{
  return Batcher(engine, prompts, options).run();
}

}  // namespace llama
