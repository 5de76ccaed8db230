// SPDX-License-Identifier: Apache-2.0
// Four samples of one prompt by fork, and speculation: steps that compute several guessed tokens at once and keep
// those that the model picks too. The texts must be those of the slow way, else the program fails.
// The model is the toy Llama's (llama/); all that is about the cache stands here.
// Read first: 02_prefix.cpp. Next: 04_scheduler_and_worker.cpp.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llama/decoder.hpp"
#include "llama/prompt_lookup.hpp"
#include "llama/recall_text.hpp"
#include "llama/sampler.hpp"

namespace {

using Layout = kvcache::PagedHeads<kvcache::half, kvcache::dynamic, 16>;
using Cache = kvcache::KVCache<Layout>;
using Decoder = llama::Decoder<Layout>;
using Tokens = std::vector<kvcache::Token>;

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

/// Computes what `sequence` lacks of `prompt`; returns the logits of the last token.
std::span<float const> prefill(Cache& cache,
                               Decoder& decoder,
                               kvcache::Sequence const& sequence,
                               Tokens const& prompt)
{
  auto const rest = std::span(prompt).subspan(static_cast<std::size_t>(sequence.length()));
  auto step = cache.prepare({{sequence, rest}});
  auto const logits = decoder.run(step->view(), rest);
  step->commit();
  return decoder.row(logits, rest.size() - 1);
}

// ---- fork

/// `streams.size()` samples of `tokens` tokens, one step for all of them.
std::vector<Tokens> sample(Cache& cache,
                           Decoder& decoder,
                           Tokens const& prompt,
                           std::vector<std::uint64_t> const& streams,
                           std::size_t tokens)
{
  auto first = cache.open({.tokens = prompt});
  auto logits = prefill(cache, decoder, *first, prompt);
  std::vector<llama::Sampler> samplers;
  std::vector<kvcache::Sequence> forks;
  std::vector<Tokens> texts;
  for (std::uint64_t const stream : streams) {
    samplers.emplace_back(llama::SamplerOptions{.temperature = 1.0F, .seed = 5, .stream = stream});
    texts.push_back({samplers.back().pick(logits)});
    forks.push_back(
      cache.fork(*first).value());  // the same pages: nothing is computed, nothing copied
  }
  first->close();
  while (texts[0].size() < tokens) {
    Tokens inputs;
    std::vector<Cache::SequenceChunk> chunks;
    for (std::size_t i = 0; i < forks.size(); ++i) {
      inputs.push_back(texts[i].back());
      chunks.push_back({forks[i], {&texts[i].back(), 1}});
    }
    auto step = cache.prepare(chunks);  // who writes into a page that others hold gets a copy of it
    logits = decoder.run(step->view(), inputs);
    for (std::size_t i = 0; i < forks.size(); ++i) {
      texts[i].push_back(samplers[i].pick(decoder.row(logits, i)));
    }
    step->commit();
  }
  if (forks.size() > 1) {
    kvcache::Stats const stats = cache.stats();
    std::printf("   %zu samples of %zu tokens hold %u pages, %llu of them copies\n",
                forks.size(),
                tokens,
                stats.held,
                static_cast<unsigned long long>(stats.copied_pages));
  }
  return texts;
}

void show_forks(Decoder& decoder, Tokens const& prompt)
{
  std::printf("Four samples of one prompt of %zu tokens, in pages of 16\n", prompt.size());
  Cache cache = make_cache(decoder);
  auto const texts = sample(cache, decoder, prompt, {1, 2, 3, 4}, 20);
  bool same = true;
  for (std::uint64_t i = 0; i < texts.size(); ++i) {
    std::printf("   %llu %.66s\n",
                static_cast<unsigned long long>(i + 1),
                decoder.tokenizer().decode(texts[i]).c_str());
    Cache alone = make_cache(decoder);
    same = same && sample(alone, decoder, prompt, {i + 1}, texts[i].size())[0] == texts[i];
  }
  expect("each the same as alone", same);
  expect("every page is accounted for", static_cast<bool>(cache.check_invariants()));
}

// ---- speculation

struct Run {
  Tokens answer;
  std::size_t steps = 0;
  std::size_t drafted = 0;
  std::size_t accepted = 0;
};

/// Goes on for `tokens` tokens, guessing up to `guesses` of them a step.
Run go_on(Cache& cache,
          Decoder& decoder,
          Tokens const& prompt,
          std::size_t tokens,
          std::size_t guesses,
          float temperature)
{
  Run run;
  auto const sequence = cache.open({.tokens = prompt});
  llama::Sampler sampler({.temperature = temperature, .seed = 5});
  Tokens text = prompt;
  text.push_back(sampler.pick(prefill(cache, decoder, *sequence, prompt)));
  while (text.size() < prompt.size() + tokens) {
    // What followed the last words of the text when they stood there before.
    auto const left = prompt.size() + tokens - text.size() - 1;
    auto const draft = llama::look_up(text, guesses < left ? guesses : left);
    Tokens chunk{text.back()};
    chunk.insert(chunk.end(), draft.begin(), draft.end());

    // One pass over all of them: a token sees the rows of those before it, guessed or not.
    auto step = cache.prepare({{.sequence = *sequence, .tokens = chunk, .draft = true}});
    auto const logits = decoder.run(step->view(), chunk);

    // As long as a guess is what the model picks, the logits behind it are right as well.
    kvcache::Index real = 0;
    do {
      text.push_back(sampler.pick(decoder.row(logits, static_cast<std::size_t>(real++))));
    } while (static_cast<std::size_t>(real) < chunk.size() &&
             text.back() == chunk[static_cast<std::size_t>(real)]);
    step->commit({&real, 1});  // the rows of the other guesses never existed

    run.steps += 1;
    run.drafted += draft.size();
    run.accepted += static_cast<std::size_t>(real) - 1;
  }
  run.answer.assign(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end());
  return run;
}

void show_speculation(Decoder& decoder, Tokens const& prompt, char const* what, float temperature)
{
  constexpr std::size_t tokens = 120;
  Cache slow = make_cache(decoder);
  Cache fast = make_cache(decoder);
  Run const without = go_on(slow, decoder, prompt, tokens, 0, temperature);
  Run const with = go_on(fast, decoder, prompt, tokens, 8, temperature);
  std::printf("%s: %zu tokens behind a text of %zu\n", what, tokens, prompt.size());
  std::printf("   %zu steps without drafts, %zu with\n", without.steps, with.steps);
  std::printf("   %zu tokens drafted, %zu accepted (%.0f%%), %zu rows rolled back\n",
              with.drafted,
              with.accepted,
              100.0 * static_cast<double>(with.accepted) / static_cast<double>(with.drafted),
              with.drafted - with.accepted);
  std::printf("   ...%.70s\n", decoder.tokenizer().decode(with.answer).c_str());
  expect("same text as without", with.answer == without.answer);
  expect("fewer steps", with.steps < without.steps);
  expect("every page is accounted for", static_cast<bool>(fast.check_invariants()));
}

}  // namespace

int main()
{
  Decoder decoder;
  auto const text = llama::make_recall_text(256, 1, 5);
  Tokens const prompt = decoder.tokenizer().encode(text.context + " " + text.questions[0].text);
  show_forks(decoder, Tokens(prompt.begin(), prompt.begin() + 90));
  show_speculation(decoder, prompt, "Speculation, greedy", 0.0F);
  show_speculation(decoder, prompt, "Speculation, temperature 0.7", 0.7F);
  return all_as_expected ? 0 : 1;
}
