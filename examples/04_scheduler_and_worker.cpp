// SPDX-License-Identifier: Apache-2.0
// Control and pool in two processes. The scheduler owns the control plane: ids and integers, no byte of K or V. The
// worker owns a pool and the model: it applies plans that come over a pipe, runs kernels, sends back the tokens it picked.
//
//   scheduler   plan 1 | plan 2 | commit 1, plan 3 | commit 2, plan 4 | ...
//   worker             | step 1 | step 2           | step 3           | ...
//
// Two steps are in flight: step n+1 is planned by the number of its tokens, before step n has said which they are, so
// that the worker finds it in its pipe. The sides are in 04_scheduler.hpp and 04_worker.hpp; here they are started,
// compared with one process, and a worker is killed. Read first: docs/life-of-a-token.md.

#include <kvcache/kvcache.hpp>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "04_processes.hpp"
#include "04_scheduler.hpp"
#include "04_worker.hpp"
#include "llama/recall_text.hpp"
#include "llama/sampler.hpp"

namespace {

/// The same in one process, a token at a time.
std::vector<Request> run_here(Decoder& decoder, std::vector<Request> requests)
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
  return requests;
}

/// Four questions about one text; number i is done behind i + 1 sentences.
std::vector<Request> make_requests(Decoder const& decoder)
{
  auto const text = llama::make_recall_text(256, 4, 5);
  std::vector<Request> requests;
  for (auto const& question : text.questions) {
    Request request;
    request.text = decoder.tokenizer().encode(text.context + " " + question.text);
    request.asked = request.text.size();
    request.sentences = static_cast<int>(requests.size()) + 1;
    request.full_stop = decoder.tokenizer().encode(".").front();
    requests.push_back(std::move(request));
  }
  return requests;
}

void print_figures(Figures const& one, Figures const& two)
{
  auto const row = [](char const* what, std::size_t left, std::size_t right) {
    std::printf("   %-46s %8zu %8zu\n", what, left, right);
  };
  row("steps in flight", 1, 2);
  row("steps", one.steps, two.steps);
  row("rows computed", one.rows, two.rows);
  row("planned before the tokens were known", one.ahead, two.ahead);
  row("tokens for a request that had ended", one.late, two.late);
  row("plans that the worker found in its pipe", one.waiting, two.waiting);
  row("bytes of plan a step", one.plan_bytes / one.steps, two.plan_bytes / two.steps);
}

}  // namespace

int main()
{
  std::signal(SIGPIPE, SIG_IGN);  // where nobody reads, `write` says so
  Decoder decoder;  // for the prompts, and to compare with; the scheduler needs no model
  std::vector<Request> const asked = make_requests(decoder);
  std::vector<Request> const expected = run_here(decoder, asked);
  for (Request const& request : expected) {
    auto const answer = std::span(request.text).subspan(request.asked);
    std::printf(
      "   %zu tokens, %.64s\n", request.asked, decoder.tokenizer().decode(answer).c_str());
  }
  bool same = true;
  Figures figures[2];
  for (std::size_t const depth : {1U, 2U}) {
    std::vector<Request> requests = asked;
    Process worker(work);
    Scheduler scheduler(worker, requests, depth);
    if (!scheduler.run()) {
      std::printf("%s\n", scheduler.trouble().c_str());
    }
    figures[depth - 1] = scheduler.figures();
    same = same && requests == expected;
  }
  std::printf("From a worker process: %s\n", same ? "same tokens" : "OTHER TOKENS");
  print_figures(figures[0], figures[1]);

  std::vector<Request> requests = asked;
  {
    Process worker(work);
    Scheduler scheduler(worker, requests, 2);
    bool const ended = scheduler.run(12);  // the worker is killed after step 12
    std::printf("%s\n", ended ? "IT WENT ON" : scheduler.trouble().c_str());
    same = same && !ended;
  }
  // The rows are gone, so the cache starts anew; but the scheduler knows every token that had come.
  Process worker(work);
  Scheduler scheduler(worker, requests, 2);
  same = scheduler.run() && requests == expected && same;
  std::printf("From the next worker: %s\n", same ? "same tokens" : "OTHER TOKENS");
  return same ? 0 : 1;
}
