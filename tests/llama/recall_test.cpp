// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <set>
#include <string>

#include "fixture.hpp"
#include "llama/recall_text.hpp"
#include "llama/sampler.hpp"
#include "support/catch.hpp"

using llama_test::Ids;
using llama_test::recall_runner;

namespace {

/// Asks the questions of a text one after the other, answers staying in the context. Returns how many were right.
std::size_t ask_all(llama_test::Runner const& runner,
                    llama::Engine& engine,
                    llama::RecallText const& text)
{
  Ids tokens = runner.tokenizer.encode(text.context);
  kvcache::Sequence const sequence = engine.open({.tokens = tokens});
  std::size_t right = 0;
  for (llama::RecallQuestion const& question : text.questions) {
    Ids const asked = runner.tokenizer.encode(question.text);
    tokens.insert(tokens.end(), asked.begin(), asked.end());
    for (int token = 0; token < 5; ++token) {  // four digits and the full stop
      tokens.push_back(llama::greedy(llama::prefill(engine, sequence, tokens, 256)));
    }
    Ids const said(tokens.end() - 5, tokens.end());
    if (runner.tokenizer.decode(said) == question.answer + ".") {
      ++right;
    }
  }
  return right;
}

}  // namespace

TEST_CASE("RecallText: a text of the length asked for, with answers that stand in it",
          "[llama][recall]")
{
  auto const runner = recall_runner();
  for (std::size_t tokens : {256U, 700U, 2048U}) {
    llama::RecallText const text = llama::make_recall_text(tokens, 8, 3);
    std::size_t const length = runner.tokenizer.encode(text.context).size() + 8 * 12;
    CHECK(length <= tokens);
    CHECK(length + 12 > tokens);  // less than one sentence short
    CHECK(text.facts == tokens * 3 / 128);
    REQUIRE(text.questions.size() == 8);
    for (llama::RecallQuestion const& question : text.questions) {
      // "what is the room of zoe?" -> "the room of zoe is 1142."
      std::string fact = question.text.substr(std::string("what is ").size());
      fact.pop_back();
      fact += " is ";
      std::size_t const at = text.context.find(fact);
      REQUIRE(at != std::string::npos);
      CHECK(text.context.substr(at + fact.size(), 5) == question.answer + ".");
      CHECK(text.context.find(fact, at + 1) == std::string::npos);  // stated once
      CHECK(runner.tokenizer.encode(question.text + " " + question.answer + ".").size() == 12);
    }
  }
  CHECK(llama::make_recall_text(512, 8, 1).context == llama::make_recall_text(512, 8, 1).context);
  CHECK(llama::make_recall_text(512, 8, 1).context != llama::make_recall_text(512, 8, 2).context);
  // More questions than facts: they come again.
  CHECK(llama::make_recall_text(256, 8, 4).facts == 6);
}

TEST_CASE("Recall model: every fact of 256 to 2,048 tokens is recalled", "[llama][recall]")
{
  // Its training measured 100 % at each of these lengths.
  struct Case {
    std::size_t tokens;
    std::uint64_t texts;
  };
  auto runner = recall_runner();
  for (Case const& c : {Case{256, 6}, Case{512, 6}, Case{1024, 4}, Case{2048, 3}}) {
    std::size_t right = 0;
    for (std::uint64_t seed = 1; seed <= c.texts; ++seed) {
      auto const engine = runner.engine(llama::KvType::f16);
      right += ask_all(runner, *engine, llama::make_recall_text(c.tokens, 8, seed));
    }
    INFO("seeds 1 to " << c.texts << ", " << c.tokens << " tokens");
    CHECK(right == 8 * c.texts);
  }
}

TEST_CASE("Recall model: the answer is in the context and nowhere else", "[llama][recall]")
{
  // The counter-test: without its rows there is nothing to recall.
  auto runner = recall_runner();
  llama::RecallText text = llama::make_recall_text(512, 8, 1);
  text.context = llama::make_recall_text(512, 8, 2).context;
  CHECK(ask_all(runner, *runner.engine(llama::KvType::f16), text) <= 1);
}
