// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A text generated with trees of drafts, against the same by one token a step in an engine of its own.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "fixture.hpp"
#include "llama/draft_tree.hpp"
#include "llama/engine.hpp"
#include "llama/prompt_lookup.hpp"
#include "llama/sampler.hpp"
#include "support/catch.hpp"
#include "tree_logits.hpp"

namespace llama_test {

inline constexpr std::size_t most_guess = 6;  // tokens

/// A text by one token a step, and by how much the token picked led at the narrowest.
struct PlainText {
  Ids text;
  double lead = HUGE_VAL;
};

[[nodiscard]] inline PlainText greedy_text(Runner& runner,
                                           TreeRun const& run,
                                           Ids const& prompt,
                                           std::size_t tokens)
{
  auto const engine = runner.engine(
    run.kv, llama::pages_for(prompt.size() + tokens, run.page_tokens), run.page_tokens);
  kvcache::Sequence const sequence = engine->open({.tokens = prompt});
  PlainText out{.text = prompt};
  auto logits = llama::prefill(*engine, sequence, prompt, 64);
  while (out.text.size() < prompt.size() + tokens) {
    Logits sorted(logits.begin(), logits.end());
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    out.lead = std::min(out.lead, static_cast<double>(sorted[0]) - static_cast<double>(sorted[1]));
    out.text.push_back(llama::greedy(logits));
    llama::Work const work{&sequence, {&out.text.back(), 1}};
    logits = engine->step({&work, 1});
  }
  return out;
}

/// What trees did for a text.
struct TreeText {
  std::size_t steps = 0;
  std::size_t drafted = 0;
  std::size_t accepted = 0;
  std::uint64_t moved = 0;   // rows
  std::uint64_t copied = 0;  // pages
  double continued = 0;      // see the function
};

/// Guesses at how `text` goes on, and as many that leave one of these somewhere, in any order.
[[nodiscard]] inline llama::DraftTree random_guesses(std::mt19937_64& random,
                                                     TreeRun const& run,
                                                     Ids const& text,
                                                     std::size_t vocab)
{
  std::vector<Ids> guesses;
  for (auto const guess : llama::look_up_several(text, most_guess, 3)) {
    auto const right = guess.first(below(random, guess.size()));
    Ids wrong(right.begin(), right.end());
    for (std::int32_t const token : random_tokens(random, vocab, 2)) {
      wrong.push_back(token);
    }
    guesses.emplace_back(guess.begin(), guess.end());
    guesses.push_back(std::move(wrong));
  }
  std::shuffle(guesses.begin(), guesses.end(), random);
  llama::DraftTree tree(text.back());
  for (Ids const& guess : guesses) {
    tree.add(guess, run.most_tokens);
  }
  return tree;
}

/// One step: the model's own path down the tree is appended to `text`, with the token behind it.
inline void follow(llama::Engine& engine,
                   kvcache::Sequence const& sequence,
                   llama::DraftTree const& tree,
                   Ids& text)
{
  llama::Work const work{.sequence = &sequence,
                         .tokens = tree.tokens,
                         .wanted = llama::Wanted::all,
                         .parents = tree.parents};
  (void)engine.step({&work, 1}, [&](llama::Work const&, std::span<float const> logits) {
    for (kvcache::Index at = 0;;) {
      auto const row = static_cast<std::size_t>(at);
      text.push_back(llama::greedy(logits.subspan(row * engine.vocab(), engine.vocab())));
      at = tree.child(at, text.back());
      if (at < 0) {
        return row + 1;
      }
    }
  });
}

/// How far logits behind `text` are from those of a sequence that was prefilled with it, where nobody moved a row.
/// **Pre** `sequence` holds all of `text` but the last token.
[[nodiscard]] inline double continued(Runner& runner,
                                      TreeRun const& run,
                                      llama::Engine& engine,
                                      kvcache::Sequence const& sequence,
                                      Ids text)
{
  std::mt19937_64 random(run.seed);
  Ids next{text.back()};
  for (std::int32_t const token : random_tokens(random, runner.vocab(), 7)) {
    next.push_back(token);
  }
  text.pop_back();
  auto const fresh =
    runner.engine(run.kv, llama::pages_for(text.size() + 8, run.page_tokens), run.page_tokens);
  kvcache::Sequence const prefilled = fresh->open({.tokens = text});
  llama::prefill(*fresh, prefilled, text, 64);
  llama::Work const mine{&sequence, next, llama::Wanted::all};
  llama::Work const theirs{&prefilled, next, llama::Wanted::all};
  return difference(engine.step({&mine, 1}), fresh->step({&theirs, 1}));
}

/// Continues `prompt` with trees of guesses, which must give the tokens of `expected`.
/// Where `forks`, every third step the sequence is forked, the fork goes its way, and stays for a while.
[[nodiscard]] inline TreeText generate_with_trees(
  Runner& runner, TreeRun const& run, Ids const& prompt, Ids const& expected, bool forks)
{
  CAPTURE(run.seed, run.page_tokens, forks);
  std::mt19937_64 random(run.seed);
  std::uint32_t const pages =
    5 * llama::pages_for(expected.size() + run.most_tokens, run.page_tokens);
  auto const engine = runner.engine(run.kv, pages, run.page_tokens);
  kvcache::Sequence const sequence = engine->open({.tokens = prompt});
  std::deque<kvcache::Sequence> others;
  Ids text = prompt;
  text.push_back(llama::greedy(llama::prefill(*engine, sequence, prompt, 64)));
  TreeText out;
  while (text.size() + most_guess < expected.size()) {
    auto const tree = random_guesses(random, run, text, runner.vocab());
    std::size_t const before = text.size();
    follow(*engine, sequence, tree, text);
    REQUIRE(engine->check_invariants());
    REQUIRE(static_cast<std::size_t>(sequence.length()) == text.size() - 1);
    REQUIRE(std::equal(text.begin(), text.end(), expected.begin()));
    out.steps += 1;
    out.drafted += tree.tokens.size() - 1;
    out.accepted += text.size() - before - 1;
    if (forks && out.steps % 3 == 0) {
      others.push_back(engine->fork(sequence));
      Ids said = text;
      while (said.size() < std::min(text.size() + 4, expected.size())) {
        said.push_back(llama::greedy(llama::prefill(*engine, others.back(), said, 64)));
        REQUIRE(engine->check_invariants());
      }
      REQUIRE(std::equal(said.begin(), said.end(), expected.begin()));
      if (others.size() > 2) {
        others.pop_front();
      }
    }
  }
  out.moved = engine->stats().moved_rows;
  out.copied = engine->stats().copied_pages;
  out.continued = continued(runner, run, *engine, sequence, text);
  REQUIRE(engine->check_invariants());
  return out;
}

}  // namespace llama_test
