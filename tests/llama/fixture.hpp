// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What the tests of the decoder share: the recall model, logits of a whole text by different ways.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "contiguous_attention.hpp"
#include "llama/embedded_model.hpp"
#include "llama/engine.hpp"
#include "llama/forward.hpp"
#include "llama/model.hpp"
#include "llama/recall_text.hpp"
#include "llama/tokenizer.hpp"

namespace llama_test {

using Ids = std::vector<std::int32_t>;
using Logits = std::vector<float>;  // (tokens, vocab)

/// A model with what it needs to run.
struct Runner {
  llama::Model model;
  llama::Tokenizer tokenizer;
  llama::Threads threads;

  explicit Runner(llama::Gguf file, unsigned num_threads = 2)
      : model(llama::load_model(std::move(file))), tokenizer(model.file), threads(num_threads)
  {
  }

  [[nodiscard]] std::size_t vocab() const { return static_cast<std::size_t>(model.config.vocab); }

  [[nodiscard]] std::unique_ptr<llama::Engine> engine(llama::KvType kv,
                                                      std::uint32_t pages = 256,
                                                      int page_tokens = 16)
  {
    return llama::make_engine(
      model, threads, {.kv = kv, .page_tokens = page_tokens, .pages = pages});
  }
};

/// The embedded recall model.
[[nodiscard]] inline Runner recall_runner(unsigned num_threads = 2)
{
  return Runner(llama::Gguf::from_bytes(llama::embedded_model(), "the recall model"), num_threads);
}

/// A text of the recall model with `tokens` tokens exactly.
[[nodiscard]] inline Ids text_of(Runner const& runner, std::size_t tokens, std::uint64_t seed = 7)
{
  Ids ids = runner.tokenizer.encode(llama::make_recall_text(tokens + 16, 0, seed).context);
  if (ids.size() < tokens) {
    throw std::logic_error("the recall text is too short");
  }
  ids.resize(tokens);
  return ids;
}

/// Logits of what `sequence` lacks of `text`, all its positions, computed in chunks.
[[nodiscard]] inline Logits paged_logits(llama::Engine& engine,
                                         kvcache::Sequence const& sequence,
                                         Ids const& text,
                                         std::size_t chunk)
{
  Logits all;
  llama::prefill(
    engine, sequence, text, chunk, true, [&](std::size_t, std::span<float const> logits) {
      all.insert(all.end(), logits.begin(), logits.end());
      return true;
    });
  return all;
}

/// The same from a cache that holds nothing.
[[nodiscard]] inline Logits cold_logits(llama::Engine& engine, Ids const& text, std::size_t chunk)
{
  kvcache::Domain const nobody;
  engine.forget(nobody);
  return paged_logits(engine, engine.open({.tokens = text}), text, chunk);
}

/// What the pages must equal: no cache, no chunks, plain arrays.
[[nodiscard]] inline Logits contiguous_logits(Runner& runner, Ids const& text)
{
  llama::Forward forward(runner.model, runner.threads);
  ContiguousAttention attention(runner.model.config);
  std::vector<std::int64_t> positions(text.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<std::size_t> wanted(text.size());
  std::iota(wanted.begin(), wanted.end(), std::size_t{0});
  attention.begin(text.size());
  auto const logits = forward.run(text, positions, wanted, attention);
  return {logits.begin(), logits.end()};
}

/// Whether two runs gave the same floats, bit for bit.
[[nodiscard]] inline bool same_bits(std::span<float const> a, std::span<float const> b)
{
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// The largest difference; infinite where the sizes differ or a number is none.
[[nodiscard]] inline double difference(std::span<float const> a, std::span<float const> b)
{
  double most = a.size() == b.size() ? 0.0 : HUGE_VAL;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    double const here = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = here <= most ? most : std::isnan(here) ? HUGE_VAL : here;
  }
  return most;
}

}  // namespace llama_test
