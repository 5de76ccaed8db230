// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file How 03_fork_and_speculate.cpp generates: several samples in one step, and one text with drafts.

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "llama/decoder.hpp"
#include "llama/prompt_lookup.hpp"
#include "llama/sampler.hpp"

using Layout = kvcache::PagedHeads<kvcache::half, kvcache::dynamic, 16>;
using Cache = kvcache::KVCache<Layout>;
using Decoder = llama::Decoder<Layout>;
using Tokens = std::vector<kvcache::Token>;

/// Computes what `sequence` lacks of `prompt`; returns the logits of the last token.
inline std::span<float const> prefill(Cache& cache,
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

/// Texts behind one prompt, and the pages that hold all of it.
struct Samples {
  std::vector<Tokens> texts;
  kvcache::Stats stats;
};

/// `streams.size()` samples of `tokens` tokens, each step for all of them.
inline Samples sample(Cache& cache,
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
    forks.push_back(cache.fork(*first).value());  // the same pages, nothing copied
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
  return {std::move(texts), cache.stats()};
}

/// A text that was continued, and what it cost behind the prefill.
struct Run {
  Tokens answer;
  std::size_t steps = 0;
  std::size_t drafted = 0;
  std::size_t accepted = 0;
  std::size_t rows = 0;  // that the cache holds at the end
};

/// Goes on for `tokens` tokens, guessing up to `guesses` of them a step.
inline Run go_on(Cache& cache,
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
    auto const draft = llama::look_up(text, std::min(guesses, left));
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
  run.rows = static_cast<std::size_t>(sequence->length());
  run.answer.assign(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end());
  return run;
}
