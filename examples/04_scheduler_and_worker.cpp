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
// The two sides are in 04_scheduler.hpp and 04_worker.hpp; here they are started, and compared with one process.
// Read first: include/kvcache/control/plan.hpp, docs/life-of-a-token.md.

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
  std::signal(SIGPIPE, SIG_IGN);  // where nobody reads, `write` says so; no need to die
  Decoder decoder;  // for the prompts, and to compare with; the scheduler needs no model
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
  std::size_t known = 0;
  for (Request const& request : requests) {
    known += request.text.size() - request.asked;
  }
  // Its bytes are gone, so the cache starts anew; the scheduler knows every token.
  Process worker(work);
  Scheduler scheduler(worker, requests, 2);
  bool const ended = scheduler.run() && same_texts(requests, expected);
  std::printf("   another goes on behind the %zu tokens that had come: %s\n",
              known,
              ended ? "same tokens" : "OTHER TOKENS");
  return all_same && ended ? 0 : 1;
}
