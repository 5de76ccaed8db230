// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file How 03_fork_and_speculate.cpp generates with trees of drafts: several guesses at how the text goes on, in one step.

#include "03_generate.hpp"
#include "llama/draft_tree.hpp"

/// Goes on as `go_on` does, with up to `branches` guesses a step that begin with different tokens. Sums over the rows of a
/// tree leave some out, so the logits are those of `go_on` up to the last bits.
inline Run go_on_in_trees(Cache& cache,
                          Decoder& decoder,
                          Tokens const& prompt,
                          std::size_t tokens,
                          std::size_t guesses,
                          std::size_t branches,
                          float temperature)
{
  Run run;
  auto const sequence = cache.open({.tokens = prompt});
  llama::Sampler sampler({.temperature = temperature, .seed = 5});
  Tokens text = prompt;
  text.push_back(sampler.pick(prefill(cache, decoder, *sequence, prompt)));
  while (text.size() < prompt.size() + tokens) {
    auto const left = prompt.size() + tokens - text.size() - 1;
    llama::DraftTree tree(text.back());
    for (auto const guess : llama::look_up_several(text, std::min(guesses, left), branches)) {
      tree.add(guess, 1 + branches * guesses);
    }

    // One pass over all of them. The view shows each token its ancestors only, and siblings share a position.
    auto step =
      cache.prepare({{.sequence = *sequence, .tokens = tree.tokens, .parents = tree.parents}});
    auto const logits = decoder.run(step->view(), tree.tokens);

    // Down the tree as long as the model picks what somebody guessed.
    std::vector<kvcache::Index> path;
    for (kvcache::Index at = 0; at >= 0; at = tree.child(at, text.back())) {
      path.push_back(at);
      text.push_back(sampler.pick(decoder.row(logits, static_cast<std::size_t>(at))));
    }
    kvcache::Outcome const outcome{.accepted = static_cast<kvcache::Index>(path.size()),
                                   .path = path};
    step->commit({&outcome, 1});  // the next step's plan moves the rows of the path together

    run.steps += 1;
    run.drafted += tree.tokens.size() - 1;
    run.accepted += path.size() - 1;
  }
  run.rows = static_cast<std::size_t>(sequence->length());
  run.answer.assign(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end());
  return run;
}
