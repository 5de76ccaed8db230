// SPDX-License-Identifier: Apache-2.0
// Control and pool in two processes. The scheduler owns the control plane: ids and integers, no byte of K or V. The
// worker owns a pool and the model: it applies the plans that come over a pipe, runs its kernels, and sends back the
// tokens that it picked.
//
//   scheduler   plan 1 | plan 2 | commit 1, plan 3 | commit 2, plan 4 | ...
//   worker             | step 1 | step 2           | step 3           | ...
//
// Two steps are in flight: step n+1 is planned by the number of its tokens, before step n has said which they are. So
// the worker finds the next plan in its pipe when it is done. Then the worker is killed in the middle of its work.
// Read first: include/kvcache/control/plan.hpp, docs/life-of-a-token.md.

#include <kvcache/kvcache.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "04_processes.hpp"
#include "llama/decoder.hpp"
#include "llama/recall_text.hpp"
#include "llama/sampler.hpp"

namespace {

using Layout = kvcache::PagedHeads<kvcache::half, kvcache::dynamic, 16>;
using Decoder = llama::Decoder<Layout>;
using Control = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;
using Tokens = std::vector<kvcache::Token>;

constexpr std::size_t chunk_tokens = 64;
constexpr kvcache::Token yours = -1;  // in place of a token: the one that you picked for this row

/// What both sides must agree on.
kvcache::ControlOptions sizes()
{
  kvcache::ControlOptions options{
    .pages = 96, .page_tokens = 16, .max_sequences = 8, .max_step_tokens = 512};
  (void)options.complete();
  return options;
}

/// In front of a step: what follows it.
struct Header {
  std::uint32_t plan_bytes;
  std::uint32_t tokens;
};

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& items)
{
  return std::as_writable_bytes(std::span(items));
}

// ---- the worker

int work(int input, int output)
{
  Decoder decoder;
  kvcache::Error error{};
  kvcache::Geometry const geometry = Layout::complete(decoder.geometry(), error);
  auto pool = kvcache::Pool<Layout>::create(geometry, sizes());
  Tokens picked(sizes().max_sequences,
                0);  // by table row: a step may be planned before its tokens are known
  for (;;) {
    bool const waiting = has_input(input);
    std::vector<Header> header(1);
    if (!receive(input, bytes_of(header))) {
      return 0;  // the scheduler has left
    }
    std::vector<std::byte> bytes(header[0].plan_bytes);
    Tokens tokens(header[0].tokens);
    if (!receive(input, bytes) || !receive(input, bytes_of(tokens))) {
      return 0;
    }
    auto const plan = kvcache::parse_plan(bytes);
    if (!plan) {
      std::fprintf(stderr, "worker: no plan: %s\n", plan.error().message().text);
      return 1;
    }
    if (auto const applied = pool->apply(*plan); !applied) {
      std::fprintf(stderr, "worker: not my plan: %s\n", applied.error().message().text);
      return 1;
    }
    if (tokens.size() != static_cast<std::size_t>(plan->num_tokens())) {
      std::fprintf(stderr, "worker: %zu tokens for %d rows\n", tokens.size(), plan->num_tokens());
      return 1;
    }
    std::size_t at = 0;
    for (kvcache::PlannedChunk const& chunk : plan->chunks) {
      if (tokens[at] == yours) {
        tokens[at] = picked[chunk.row.value];
      }
      at += static_cast<std::size_t>(chunk.tokens);
    }
    auto const logits = decoder.run(pool->view(plan->slot), tokens);
    Tokens result{waiting ? 1 : 0};
    at = 0;
    for (kvcache::PlannedChunk const& chunk : plan->chunks) {
      at += static_cast<std::size_t>(chunk.tokens);
      picked[chunk.row.value] = llama::greedy(decoder.row(logits, at - 1));
      result.push_back(picked[chunk.row.value]);
    }
    if (!send(output, bytes_of(result))) {
      return 0;
    }
  }
}

// ---- the scheduler

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
};

struct Figures {
  std::size_t steps = 0;
  std::size_t rows = 0;     // computed
  std::size_t ahead = 0;    // steps planned while another was in flight
  std::size_t late = 0;     // tokens that came when their request had ended
  std::size_t waiting = 0;  // plans that the worker found in its pipe
  std::size_t plan_bytes = 0;
};

class Scheduler {
 public:
  Scheduler(Process& worker, std::vector<Request>& requests, std::size_t depth)
      : worker_(worker),
        requests_(requests),
        depth_(depth),
        control_(std::move(*Control::create(sizes())))
  {
    for (Request const& request : requests) {
      sequences_.push_back({*control_.open({.tokens = request.text}), 0});
    }
  }

  /// Returns whether all requests came to their end; if not, `trouble()` says why. `kill_at`: the step after which
  /// the worker is killed.
  bool run(std::size_t kill_at = 0)
  {
    for (;;) {
      while (flights_.size() < depth_ && plan_step()) {
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
  struct Planned {
    kvcache::SequenceId id;
    std::size_t rows;  // with those in flight
  };
  struct Part {  // a chunk of a step in flight
    std::size_t request;
    bool counted;  // planned by number
    bool picks;    // ends where the text ended when it was planned: its token is news
  };
  struct Flight {
    kvcache::StepId step;
    std::vector<Part> parts;
  };

  /// Plans a step of all that can go on and sends it. Returns whether there was anything.
  bool plan_step()
  {
    Flight flight{*control_.begin(), {}};
    Tokens inputs;
    bool anything = false;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      Tokens const& text = requests_[i].text;
      Planned& planned = sequences_[i];
      if (requests_[i].done()) {
        continue;
      }
      auto const known =
        std::span(text).subspan(planned.rows < text.size() ? planned.rows : text.size());
      auto const named = known.first(known.size() < chunk_tokens ? known.size() : chunk_tokens);
      kvcache::Chunk const chunk{.tokens = named, .count = named.empty() ? 1 : 0};
      auto const added = control_.add(flight.step, planned.id, chunk);
      if (!added) {
        trouble_ = "a step lacks pages";  // llama/batch.cpp shows what to do about it
        control_.drop(flight.step);
        return false;
      }
      anything = true;
      planned.rows += named.empty() ? 1 : named.size();
      // Of equal prompts one is computed: the others attach to its pages, in the same step already.
      if (auto const rows = static_cast<std::size_t>(*added); rows > 0) {
        flight.parts.push_back({i, named.empty(), named.size() == known.size()});
        if (named.empty()) {
          inputs.push_back(yours);
        } else {
          inputs.insert(inputs.end(), named.end() - static_cast<std::ptrdiff_t>(rows), named.end());
        }
      }
    }
    if (!anything) {
      control_.drop(flight.step);
      return false;
    }
    (void)control_.submit(flight.step);
    std::vector<std::byte> const plan = kvcache::to_bytes(control_.plan(flight.step));
    std::vector<Header> const header{
      {static_cast<std::uint32_t>(plan.size()), static_cast<std::uint32_t>(inputs.size())}};
    figures_.steps += 1;
    figures_.rows += inputs.size();
    figures_.ahead += flights_.empty() ? 0U : 1U;
    figures_.plan_bytes += plan.size();
    flights_.push_back(std::move(flight));
    if (!send(worker_.to(), std::as_bytes(std::span(header))) || !send(worker_.to(), plan) ||
        !send(worker_.to(), std::as_bytes(std::span(inputs)))) {
      give_up();
      return false;
    }
    return true;
  }

  /// Waits for the oldest step and commits it.
  void collect()
  {
    Flight const& flight = flights_.front();
    Tokens result(1 + flight.parts.size());
    if (!receive(worker_.from(), bytes_of(result))) {
      give_up();
      return;
    }
    figures_.waiting += static_cast<std::size_t>(result[0]);
    std::vector<kvcache::Outcome> outcomes(flight.parts.size());
    auto const& chunks = control_.plan(flight.step).chunks;
    for (std::size_t i = 0; i < flight.parts.size(); ++i) {
      Request const& request = requests_[flight.parts[i].request];
      if (!request.done()) {  // else it was closed while the step ran, and the step knows
        outcomes[i].accepted = chunks[i].tokens;
        if (flight.parts[i].counted) {  // by now the step before has said which token that was
          outcomes[i].tokens = {&request.text[static_cast<std::size_t>(chunks[i].first_index)], 1};
        }
      }
    }
    if (auto const done = control_.commit(flight.step, outcomes); !done) {
      trouble_ = done.error().message().text;
      return;
    }
    for (std::size_t i = 0; i < flight.parts.size(); ++i) {
      Request& request = requests_[flight.parts[i].request];
      if (request.done()) {
        figures_.late += 1;
      } else if (flight.parts[i].picks) {
        request.text.push_back(result[i + 1]);
        if (request.done()) {
          control_.close(sequences_[flight.parts[i].request].id);
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
  Figures figures_;
  std::string trouble_;
};

// ---- the same in one process, a token at a time

void run_here(Decoder& decoder, std::vector<Request>& requests)
{
  using Cache = kvcache::KVCache<Layout>;
  auto cache = Cache::create(decoder.geometry(), {.pages = sizes().pages});
  for (Request& request : requests) {
    auto const sequence = cache->open({.tokens = request.text});
    while (!request.done()) {
      auto const rest =
        std::span(request.text).subspan(static_cast<std::size_t>(sequence->length()));
      auto step = cache->prepare({{*sequence, rest}});
      auto const logits = decoder.run(step->view(), rest);
      request.text.push_back(llama::greedy(decoder.row(logits, rest.size() - 1)));
      step->commit();
    }
  }
}

bool same_texts(std::vector<Request> const& a, std::vector<Request> const& b)
{
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) {
    same = a[i].text == b[i].text;
  }
  return same;
}

void print_row(char const* what, std::size_t one, std::size_t two)
{
  std::printf("   %-46s %8zu %8zu\n", what, one, two);
}

}  // namespace

int main()
{
  std::signal(SIGPIPE,
              SIG_IGN);  // a pipe that nobody reads is an error of `write`, not the end of us
  Decoder decoder;  // for the prompts, and to compare with; what the scheduler does needs no model
  auto const text = llama::make_recall_text(256, 4, 5);
  std::vector<Request> asked;
  for (auto const& question : text.questions) {
    Tokens prompt = decoder.tokenizer().encode(text.context + " " + question.text);
    std::size_t const size = prompt.size();
    asked.push_back({std::move(prompt),
                     size,
                     static_cast<int>(asked.size()) + 1,
                     decoder.tokenizer().encode(".").front()});
  }
  std::vector<Request> expected = asked;
  run_here(decoder, expected);

  Figures figures[2];
  bool all_same = true;
  for (std::size_t const depth : {1U, 2U}) {
    std::vector<Request> requests = asked;
    Process worker(work);
    Scheduler scheduler(worker, requests, depth);
    if (!scheduler.run()) {
      std::printf("%s\n", scheduler.trouble().c_str());
      return 1;
    }
    figures[depth - 1] = scheduler.figures();
    all_same = all_same && same_texts(requests, expected);
  }
  std::printf("Four questions about one text, %zu tokens each\n", asked[0].text.size());
  std::printf("   %-46s %8s %8s\n", "steps in flight", "1", "2");
  Figures const& one = figures[0];
  Figures const& two = figures[1];
  print_row("steps", one.steps, two.steps);
  print_row("rows computed", one.rows, two.rows);
  print_row("planned before the tokens were known", one.ahead, two.ahead);
  print_row("tokens for a request that had ended", one.late, two.late);
  print_row("plans that the worker found in its pipe", one.waiting, two.waiting);
  print_row("bytes of plan a step", one.plan_bytes / one.steps, two.plan_bytes / two.steps);
  for (Request const& request : expected) {
    auto const answer = std::span(request.text).subspan(request.asked);
    std::printf("   %s\n", decoder.tokenizer().decode(answer).c_str());
  }
  std::printf("   %s as in one process\n", all_same ? "same tokens" : "OTHER TOKENS");

  std::printf("A worker that is killed, and the next one\n");
  std::vector<Request> requests = asked;
  {
    Process worker(work);
    Scheduler scheduler(worker, requests, 2);
    bool const ended = scheduler.run(12);
    std::printf("   %s\n", ended ? "IT WENT ON" : scheduler.trouble().c_str());
    all_same = all_same && !ended;
  }
  // Its bytes are gone, so the cache starts anew; the scheduler knows every token.
  Process worker(work);
  Scheduler scheduler(worker, requests, 2);
  bool const ended = scheduler.run() && same_texts(requests, expected);
  std::printf("   %s after %zu rows more\n",
              ended ? "same tokens" : "OTHER TOKENS",
              scheduler.figures().rows);
  return all_same && ended ? 0 : 1;
}
