// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "demo_stage.hpp"
#include "recall_text.hpp"
#include "speculate.hpp"

namespace llama {
namespace {

constexpr std::size_t answer_tokens = 160;
constexpr std::size_t most_drafts = 8;

/// One text, continued by one token a step and with drafts.
struct Pair {
  Continuation without;
  Continuation with;

  [[nodiscard]] bool same() const { return without.tokens == with.tokens; }
};

Pair continue_twice(Stage const& stage, Tokens const& prompt, float temperature)
{
  ContinueOptions options{.tokens = answer_tokens,
                          .chunk = static_cast<std::size_t>(stage.chunk()),
                          .sampling = {.temperature = temperature, .seed = stage.args.seed}};
  auto const engine = stage.engine(2 * stage.pages(prompt.size() + answer_tokens + most_drafts));
  Pair pair;
  pair.without = continue_text(*engine, engine->open({.tokens = prompt}), prompt, options);
  if (Interrupt::requested()) {
    throw Stopped{};
  }
  options.drafts = most_drafts;
  pair.with = continue_text(*engine, engine->open({.tokens = prompt}), prompt, options);
  return pair;
}

}  // namespace

bool show_drafts(Stage const& stage)
{
  RecallText const text = make_recall_text(512, 4, stage.args.seed);
  Tokens const prompt = stage.tokenizer.encode(text.context + " " + text.questions[0].text);
  heading("4", "Drafts from the text's own past: speculation with rollback");
  std::printf(
    "   The model goes on for %zu tokens after a text of %zu. A step computes the\n"
    "   token picked last and up to %zu guesses: what followed the same words before.\n"
    "   What the model does not pick is rolled back.\n\n",
    answer_tokens,
    prompt.size(),
    most_drafts);
  Pair const greedy = continue_twice(stage, prompt, 0.0F);
  Pair const sampled = continue_twice(stage, prompt, 0.7F);
  auto const rolled_back = [](Continuation const& c) { return c.drafted - c.accepted; };
  table_row("", "greedy", "temperature 0.7");
  table_row("steps, one token each", greedy.without.steps, sampled.without.steps);
  table_row("steps with drafts", greedy.with.steps, sampled.with.steps);
  table_row("tokens drafted", greedy.with.drafted, sampled.with.drafted);
  table_row("tokens accepted", greedy.with.accepted, sampled.with.accepted);
  table_row("rows rolled back", rolled_back(greedy.with), rolled_back(sampled.with));
  auto const verdict = [](Pair const& pair) { return pair.same() ? "the same" : "DIFFERENT"; };
  table_row("text with drafts", verdict(greedy), verdict(sampled));
  std::string const said = stage.tokenizer.decode(sampled.with.tokens);
  std::printf("\n   sampled   %.60s...\n", said.c_str());
  return greedy.same() && sampled.same();
}

}  // namespace llama
