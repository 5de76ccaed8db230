// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include <algorithm>

#include "paged_engine.hpp"

namespace llama {
namespace {

template <class T>
using AnyPages = kvcache::PagedHeads<T, kvcache::dynamic, kvcache::dynamic>;

}  // namespace

std::unique_ptr<Engine> make_engine(Model const& model,
                                    Threads& threads,
                                    EngineOptions const& options)
{
  switch (options.kv) {
    case KvType::f32:
      return std::make_unique<PagedEngine<AnyPages<float>>>(model, threads, options);
    case KvType::bf16:
      return std::make_unique<PagedEngine<AnyPages<kvcache::bfloat16>>>(model, threads, options);
    case KvType::f16:
      break;
  }
  return std::make_unique<PagedEngine<AnyPages<kvcache::half>>>(model, threads, options);
}

std::span<float const> prefill(Engine& engine,
                               kvcache::Sequence const& sequence,
                               std::span<std::int32_t const> prompt,
                               std::size_t chunk,
                               bool all_logits,
                               ChunkVisitor const& visit)
{
  std::span<float const> logits;
  auto first = static_cast<std::size_t>(sequence.length());
  while (first < prompt.size()) {
    auto const tokens = prompt.subspan(first, std::min(chunk, prompt.size() - first));
    Work const work{&sequence, tokens, all_logits};
    logits = engine.step({&work, 1});
    if (visit && !visit(first, logits)) {
      return {};
    }
    first += tokens.size();
  }
  std::size_t const rows = all_logits ? (prompt.size() - 1) % chunk + 1 : 1;
  return logits.last(logits.size() / rows);
}

}  // namespace llama
