// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Trees of drafts through a whole model, against the same tokens computed without trees in an engine of their own:
/// an engine shared would find the right rows of one in the prefix tree and so mend the other's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
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
#include "support/draft_tree.hpp"

namespace llama_test {

/// What a run with trees is made of.
struct TreeRun {
  llama::KvType kv = llama::KvType::f32;
  int page_tokens = 16;
  std::uint64_t seed = 1;
  std::size_t sequences = 3;  // that compute in one step
  std::size_t steps = 8;
  std::size_t most_tokens = 30;  // of a tree
};

/// How far logits of trees were from those of chains, and of how much.
struct TreeLogits {
  double furthest = 0;
  std::size_t trees = 0;
  std::size_t chunks = 0;  // that were no tree
  std::size_t rows = 0;    // of logits compared
  std::uint64_t moved = 0;
};

[[nodiscard]] inline std::size_t below(std::mt19937_64& random, std::size_t end)
{
  return static_cast<std::size_t>(random() % end);
}

[[nodiscard]] inline Ids random_tokens(std::mt19937_64& random, std::size_t vocab, std::size_t n)
{
  Ids out(n);
  for (std::int32_t& token : out) {
    token = static_cast<std::int32_t>(below(random, vocab));
  }
  return out;
}

/// A chunk of a step, a tree where it has parents, and where its verdict ends.
struct TreeChunk {
  std::size_t sequence = 0;
  kvcache_test::Parents parents;
  Ids tokens;
  std::size_t kept = 0;

  [[nodiscard]] kvcache_test::Parents shape() const
  {
    return parents.empty() ? kvcache_test::chain(tokens.size()) : parents;
  }
  [[nodiscard]] Ids along(std::span<kvcache::Index const> path) const
  {
    Ids out;
    for (kvcache::Index const place : path) {
      out.push_back(tokens[static_cast<std::size_t>(place)]);
    }
    return out;
  }
};

/// A few tokens in a row, a chain, a star or any tree; of trees any token is the last that is kept, or none.
[[nodiscard]] inline TreeChunk random_chunk(std::mt19937_64& random,
                                            TreeRun const& run,
                                            std::size_t sequence,
                                            std::size_t vocab)
{
  TreeChunk out{.sequence = sequence, .parents = {}, .tokens = {}};
  std::size_t const tokens = 2 + below(random, run.most_tokens - 1);
  switch (below(random, 5)) {
    case 0:
      break;
    case 1:
      out.parents = kvcache_test::chain(tokens);
      break;
    case 2:
      out.parents = kvcache_test::star(tokens);
      break;
    case 3:
      out.parents = kvcache_test::random_tree(random, tokens, true);
      break;
    default:
      out.parents = kvcache_test::random_tree(random, tokens, false);
  }
  bool const tree = !out.parents.empty();
  out.tokens = random_tokens(random, vocab, tree ? tokens : 1 + below(random, 7));
  out.kept = tree ? below(random, tokens + 1) : out.tokens.size();
  return out;
}

/// Steps of random trees and chunks, each followed by another on what it kept.
[[nodiscard]] inline TreeLogits compare_trees(Runner& runner, TreeRun const& run)
{
  using llama::Wanted;
  using llama::Work;
  CAPTURE(run.seed, run.page_tokens);
  std::mt19937_64 random(run.seed);
  std::size_t const vocab = runner.vocab();
  std::size_t const most = run.sequences * (64 + (run.steps + 1) * run.most_tokens);
  std::uint32_t const pages = llama::pages_for(2 * most, run.page_tokens);
  auto const tested = runner.engine(run.kv, pages, run.page_tokens);
  auto const plain = runner.engine(run.kv, pages, run.page_tokens);
  std::vector<kvcache::Sequence> trees;
  std::vector<kvcache::Sequence> chains;  // the same texts
  for (std::size_t i = 0; i < run.sequences; ++i) {
    Ids const text = text_of(runner, 20 + below(random, 30), run.seed + i);
    trees.push_back(tested->open({.tokens = text}));
    chains.push_back(plain->open({.tokens = text}));
    llama::prefill(*tested, trees[i], text, 16);
    llama::prefill(*plain, chains[i], text, 16);
  }

  TreeLogits out;
  for (std::size_t step = 0; step <= run.steps; ++step) {
    CAPTURE(step);
    std::vector<TreeChunk> chunks;
    for (std::size_t i = 0; i < run.sequences; ++i) {
      chunks.push_back(random_chunk(random, run, i, vocab));
    }
    std::shuffle(chunks.begin(), chunks.end(), random);
    std::vector<Work> works;
    for (TreeChunk const& c : chunks) {
      works.push_back({.sequence = &trees[c.sequence],
                       .tokens = c.tokens,
                       .wanted = Wanted::all,
                       .parents = c.parents});
    }
    auto logits = tested->step(works, [&](Work const& work, std::span<float const>) {
      return chunks[static_cast<std::size_t>(&work - works.data())].kept;
    });
    REQUIRE(tested->check_invariants());
    for (TreeChunk const& c : chunks) {
      auto const parents = c.shape();
      auto const mine = logits.first(c.tokens.size() * vocab);
      logits = logits.subspan(mine.size());
      for (kvcache::Index const leaf : kvcache_test::leaves(parents)) {
        auto const path = kvcache_test::path_to(parents, leaf);
        kvcache::Sequence const fork = plain->fork(chains[c.sequence]);
        Ids const tokens = c.along(path);
        Work const chain{&fork, tokens, Wanted::all};
        auto const expected = plain->step({&chain, 1});
        for (std::size_t row = 0; row < path.size(); ++row) {
          auto const here =
            difference(mine.subspan(static_cast<std::size_t>(path[row]) * vocab, vocab),
                       expected.subspan(row * vocab, vocab));
          out.furthest = std::max(out.furthest, here);
        }
        out.rows += path.size();
      }
      out.trees += c.parents.empty() ? 0U : 1U;
      out.chunks += c.parents.empty() ? 1U : 0U;
      Ids const kept =
        c.along(kvcache_test::path_to(parents, static_cast<kvcache::Index>(c.kept) - 1));
      if (!kept.empty()) {
        Work const chain{&chains[c.sequence], kept, Wanted::none};
        (void)plain->step({&chain, 1});
      }
      REQUIRE(trees[c.sequence].length() == chains[c.sequence].length());
    }
  }
  out.moved = tested->stats().moved_rows;
  return out;
}

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
  std::uint64_t moved = 0;
  std::uint64_t copied = 0;  // pages
  double continued =
    0;  // how far logits behind the text are from those of a sequence that was prefilled with it
};

/// Continues `prompt` with trees of guesses, right and wrong ones in any order, which must give the tokens of `expected`.
/// Where `forks`, every third step the sequence is forked, the fork goes its way, and stays for a while.
[[nodiscard]] inline TreeText generate_with_trees(
  Runner& runner, TreeRun const& run, Ids const& prompt, Ids const& expected, bool forks)
{
  using llama::Wanted;
  using llama::Work;
  constexpr std::size_t most_guess = 6;
  CAPTURE(run.seed, run.page_tokens, forks);
  std::mt19937_64 random(run.seed);
  std::size_t const vocab = runner.vocab();
  std::uint32_t const pages =
    5 * llama::pages_for(expected.size() + run.most_tokens, run.page_tokens);
  auto const engine = runner.engine(run.kv, pages, run.page_tokens);
  kvcache::Sequence const sequence = engine->open({.tokens = prompt});
  std::deque<kvcache::Sequence> others;
  Ids text = prompt;
  text.push_back(llama::greedy(llama::prefill(*engine, sequence, prompt, 64)));
  TreeText out;
  while (text.size() + most_guess < expected.size()) {
    auto const found = llama::look_up_several(text, most_guess, 3);
    std::vector<Ids> guesses;
    for (auto const guess : found) {
      guesses.emplace_back(guess.begin(), guess.end());
      // And one that leaves it somewhere.
      Ids wrong(guess.begin(),
                guess.begin() + static_cast<std::ptrdiff_t>(below(random, guess.size())));
      for (std::int32_t const token : random_tokens(random, vocab, 2)) {
        wrong.push_back(token);
      }
      guesses.push_back(std::move(wrong));
    }
    std::shuffle(guesses.begin(), guesses.end(), random);
    llama::DraftTree tree(text.back());
    for (Ids const& guess : guesses) {
      tree.add(guess, run.most_tokens);
    }
    Work const work{
      .sequence = &sequence, .tokens = tree.tokens, .wanted = Wanted::all, .parents = tree.parents};
    std::size_t const before = text.size();
    (void)engine->step({&work, 1}, [&](Work const&, std::span<float const> logits) {
      for (kvcache::Index at = 0;;) {
        auto const row = static_cast<std::size_t>(at);
        text.push_back(llama::greedy(logits.subspan(row * vocab, vocab)));
        at = tree.child(at, text.back());
        if (at < 0) {
          return row + 1;
        }
      }
    });
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

  // Behind the text, from rows that trees left and from rows that nobody moved.
  Ids next{text.back()};
  for (std::int32_t const token : random_tokens(random, vocab, 7)) {
    next.push_back(token);
  }
  text.pop_back();
  auto const fresh = runner.engine(run.kv, pages, run.page_tokens);
  kvcache::Sequence const prefilled = fresh->open({.tokens = text});
  llama::prefill(*fresh, prefilled, text, 64);
  Work const mine{&sequence, next, Wanted::all};
  Work const theirs{&prefilled, next, Wanted::all};
  out.continued = difference(engine->step({&mine, 1}), fresh->step({&theirs, 1}));
  REQUIRE(engine->check_invariants());
  return out;
}

}  // namespace llama_test
