// SPDX-License-Identifier: Apache-2.0
#include "llama/speculate.hpp"

#include <vector>

#include "fixture.hpp"
#include "llama/draft_tree.hpp"
#include "llama/prompt_lookup.hpp"
#include "support/catch.hpp"

using llama::look_up;
using llama_test::Ids;
using llama_test::recall_runner;
using llama_test::text_of;

namespace {

Ids guess(Ids const& text, std::size_t most)
{
  auto const found = look_up(text, most);
  return {found.begin(), found.end()};
}

}  // namespace

TEST_CASE("look_up: the longest run of last tokens that stood before, the latest of equals",
          "[llama][speculate]")
{
  CHECK(guess({}, 4).empty());
  CHECK(guess({1}, 4).empty());
  CHECK(guess({1, 2, 3, 4}, 4).empty());
  CHECK(guess({1, 9, 2, 9}, 4).empty());  // one token is no run
  CHECK(guess({1, 2, 3, 4, 1, 2}, 1) == Ids{3});
  CHECK(guess({1, 2, 3, 4, 1, 2}, 8) == Ids{3, 4, 1, 2});
  CHECK(guess({1, 2, 3, 4, 1, 2}, 0).empty());
  CHECK(guess({1, 2, 3, 7, 1, 2, 4, 8, 1, 2}, 1) == Ids{4});           // the latest
  CHECK(guess({0, 1, 2, 3, 7, 1, 2, 4, 8, 0, 1, 2}, 2) == Ids{3, 7});  // the longest
  CHECK(guess({5, 5, 5, 5}, 3) == Ids{5});
}

TEST_CASE("look_up_several: the guesses begin with different tokens, the best first",
          "[llama][speculate]")
{
  auto const several = [](Ids const& text, std::size_t most, std::size_t count) {
    std::vector<Ids> out;
    for (auto const guess : llama::look_up_several(text, most, count)) {
      out.emplace_back(guess.begin(), guess.end());
    }
    return out;
  };
  Ids const text{0, 1, 2, 3, 7, 1, 2, 4, 8, 1, 2, 4, 9, 0, 1, 2};
  CHECK(several(text, 2, 9) == std::vector<Ids>{{3, 7}, {4, 9}});
  CHECK(several(text, 2, 1) == std::vector<Ids>{{3, 7}});
  CHECK(several(text, 0, 2).empty());
  CHECK(several({1, 2, 3}, 2, 2).empty());
}

TEST_CASE("DraftTree: guesses share what they begin with", "[llama][speculate][tree]")
{
  llama::DraftTree tree(1);
  tree.add(Ids{2, 3, 4}, 8);
  tree.add(Ids{2, 3, 5}, 8);
  tree.add(Ids{3}, 8);
  tree.add(Ids{2, 3}, 8);
  CHECK(tree.tokens == Ids{1, 2, 3, 4, 5, 3});
  CHECK(tree.parents == std::vector<kvcache::Index>{-1, 0, 1, 2, 2, 0});
  CHECK(tree.child(0, 3) == 5);
  CHECK(tree.child(1, 3) == 2);
  CHECK(tree.child(2, 5) == 4);
  CHECK(tree.child(4, 5) == -1);
  tree.add(Ids{9, 9, 9, 9}, 8);  // as much as has room
  CHECK(tree.tokens.size() == 8);
  tree.add(Ids{2, 3, 9}, 8);
  CHECK(tree.tokens.size() == 8);
}

TEST_CASE("continue_text: drafts change the steps, never the text", "[llama][speculate]")
{
  auto runner = recall_runner();
  Ids const prompt = text_of(runner, 120);
  constexpr std::size_t tokens = 60;
  for (float const temperature : {0.0F, 0.7F}) {
    for (int const page_tokens : {1, 5, 16}) {
      llama::ContinueOptions options{.tokens = tokens,
                                     .sampling = {.temperature = temperature, .seed = 3}};
      auto const run = [&](std::size_t drafts) {
        CAPTURE(temperature, page_tokens, drafts);
        options.drafts = drafts;
        auto const engine = runner.engine(llama::KvType::f16, 400, page_tokens);
        kvcache::Sequence const sequence = engine->open({.tokens = prompt});
        auto out = llama::continue_text(*engine, sequence, prompt, options);
        CHECK(out.tokens.size() == tokens);
        CHECK(1 + out.steps + out.accepted == tokens);
        CHECK(out.accepted <= out.drafted);
        CHECK(out.drafted <= drafts * out.steps);
        // What was rolled back left no row behind.
        CHECK(static_cast<std::size_t>(sequence.length()) == prompt.size() + tokens - 1);
        CHECK(engine->stats().planned_rows == prompt.size() + out.steps + out.drafted);
        CHECK(engine->stats().committed_rows == prompt.size() + out.steps + out.accepted);
        CHECK(engine->check_invariants());
        return out;
      };
      auto const without = run(0);
      CHECK(without.drafted == 0);
      bool rolled_back = false;
      for (std::size_t const drafts : {1U, 3U, 8U}) {
        auto const with = run(drafts);
        CHECK(with.tokens == without.tokens);
        CHECK(with.steps < without.steps);
        rolled_back = rolled_back || with.accepted < with.drafted;
      }
      CHECK(rolled_back);
    }
  }
}
