// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Logits of trees of drafts through a whole model, against the same tokens computed as chains. That happens in an
/// engine of its own: a shared one would find the right rows of one in the prefix tree and so mend the other's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "fixture.hpp"
#include "llama/engine.hpp"
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

}  // namespace llama_test
