// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "batch.hpp"
#include "demo_stage.hpp"
#include "recall_text.hpp"

namespace llama {
namespace {

constexpr std::size_t num_requests = 8;
constexpr std::size_t prompt_tokens = 256;
constexpr std::size_t answer_tokens = 64;

}  // namespace

bool show_small_pool(Stage const& stage)
{
  heading("5", "A pool too small for all: suspend, resume, and the same text");
  std::printf(
    "   Eight requests, each over a text of its own, want %zu tokens each. Where a\n"
    "   step lacks pages, the youngest request gives up its own and waits.\n\n",
    answer_tokens);
  std::vector<Tokens> prompts;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < num_requests; ++i) {
    RecallText const text = make_recall_text(prompt_tokens, 1, stage.args.seed + i);
    prompts.push_back(stage.tokenizer.encode(text.context + " " + text.questions[0].text));
    rows = std::max(rows, prompts.back().size() + answer_tokens);
  }
  BatchOptions const options{.tokens = answer_tokens,
                             .step_tokens = static_cast<std::size_t>(stage.chunk())};
  auto const run = [&](std::size_t pages, std::uint64_t& computed) {
    auto const engine = stage.engine(pages);
    Batch batch = run_batch(*engine, prompts, options);
    computed = engine->stats().planned_rows;
    return batch;
  };
  std::size_t const room = num_requests * (stage.pages(rows) + 1);
  // Four texts find room, but not all that will be said about them.
  std::size_t const little = 4 * (stage.pages(rows - answer_tokens) + 1) + 1;
  std::uint64_t computed_large = 0;
  std::uint64_t computed_small = 0;
  Batch const large = run(room, computed_large);
  if (Interrupt::requested()) {
    throw Stopped{};
  }
  Batch const small = run(little, computed_small);
  bool const same = small.answers == large.answers;
  table_row("", "room for all", "too small");
  table_row("pages of the pool", room, little);
  table_row("most requests at a time", large.most_running, small.most_running);
  table_row("steps", large.steps, small.steps);
  table_row("suspensions", large.suspensions, small.suspensions);
  table_row("rows computed", computed_large, computed_small);
  table_row("of these again, after a resume", large.rows_recomputed, small.rows_recomputed);
  table_row("rows still cached at a resume", large.rows_kept, small.rows_kept);
  table_row("text", "", same ? "the same" : "DIFFERENT");
  if (small.first.why != kvcache::Why::ok) {
    std::printf("\n   The first shortage: need %u, free %u, evictable %u pages.\n",
                small.first.need,
                small.first.free,
                small.first.evictable);
  }
  return same;
}

}  // namespace llama
