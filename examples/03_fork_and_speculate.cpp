// SPDX-License-Identifier: Apache-2.0
// Four samples of one prompt by fork, and speculation: steps that compute several guessed tokens at once and keep
// those that the model picks too: with one guess at how the text goes on, and with a tree of several. The texts must be
// those of the slow way, else the program fails. How is in 03_generate.hpp and 03_tree.hpp; here the texts and the
// figures are shown and compared. The model is the toy Llama's.
// Read first: 02_prefix.cpp. Next: 04_scheduler_and_worker.cpp.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "03_generate.hpp"
#include "03_tree.hpp"
#include "llama/recall_text.hpp"

namespace {

bool all_as_expected = true;
void expect(char const* what, bool holds)
{
  std::printf("   %s: %s\n", what, holds ? "yes" : "NO");
  all_as_expected = all_as_expected && holds;
}

Cache make_cache(Decoder const& decoder)
{
  return Cache::create(decoder.geometry(), {.pages = 128, .max_sequences = 8}).value();
}

void show_forks(Decoder& decoder, Tokens const& prompt)
{
  std::printf("Four samples of one prompt of %zu tokens, in pages of 16\n", prompt.size());
  Cache cache = make_cache(decoder);
  auto const [texts, stats] = sample(cache, decoder, prompt, {1, 2, 3, 4}, 20);
  std::printf("   they hold %u pages, %llu of them copied when a text first differed\n",
              stats.held,
              static_cast<unsigned long long>(stats.copied_pages));
  bool same = true;
  for (std::uint64_t i = 0; i < texts.size(); ++i) {
    std::printf("   %llu %.66s\n",
                static_cast<unsigned long long>(i + 1),
                decoder.tokenizer().decode(texts[i]).c_str());
    Cache alone = make_cache(decoder);
    same = same && sample(alone, decoder, prompt, {i + 1}, texts[i].size()).texts[0] == texts[i];
  }
  expect("each the same as alone", same);
  expect("every page is accounted for", static_cast<bool>(cache.check_invariants()));
}

void show_speculation(Decoder& decoder, Tokens const& prompt, char const* what, float temperature)
{
  constexpr std::size_t tokens = 120;
  Cache slow = make_cache(decoder);
  Cache fast = make_cache(decoder);
  Run const without = go_on(slow, decoder, prompt, tokens, 0, temperature);
  Run const with = go_on(fast, decoder, prompt, tokens, 8, temperature);
  Cache wide = make_cache(decoder);
  Run const trees = go_on_in_trees(wide, decoder, prompt, tokens, 8, 2, temperature);
  std::printf("%s: %zu tokens behind a text of %zu\n", what, tokens, prompt.size());
  std::printf("   %zu steps without drafts, %zu with\n", without.steps, with.steps);
  std::printf("   %zu tokens drafted, %zu accepted (%.0f%%), %zu rows rolled back\n",
              with.drafted,
              with.accepted,
              100.0 * static_cast<double>(with.accepted) / static_cast<double>(with.drafted),
              with.drafted - with.accepted);
  std::printf(
    "   %zu steps with trees of two guesses: %zu drafted, %zu accepted, %llu rows moved\n",
    trees.steps,
    trees.drafted,
    trees.accepted,
    static_cast<unsigned long long>(wide.stats().moved_rows));
  std::printf("   ...%.70s\n", decoder.tokenizer().decode(with.answer).c_str());
  expect("same text as without", with.answer == without.answer && trees.answer == without.answer);
  expect("no row of a wrong guess is left",
         with.rows == prompt.size() + tokens - 1 && trees.rows == with.rows);
  expect("fewer steps", with.steps < without.steps);
  expect("every page is accounted for", fast.check_invariants() && wide.check_invariants());
}

}  // namespace

int main()
{
  Decoder decoder;
  auto const text = llama::make_recall_text(256, 1, 5);
  Tokens const prompt = decoder.tokenizer().encode(text.context + " " + text.questions[0].text);
  show_forks(decoder, Tokens(prompt.begin(), prompt.begin() + 90));
  show_speculation(decoder, prompt, "Speculation, greedy", 0.0F);
  show_speculation(decoder, prompt, "Speculation, temperature 0.5", 0.5F);
  return all_as_expected ? 0 : 1;
}
