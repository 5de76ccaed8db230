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

std::span<float const> Engine::step(std::span<Work const> works, Verdict const& verdict)
{
  auto const logits = try_step(works, verdict);
  if (!logits) {
    kvcache::Shortage const& shortage = logits.error();
    throw Error("the cache is full: the step needs " + std::to_string(shortage.need) + " pages, " +
                std::to_string(shortage.free) + " are free and " +
                std::to_string(shortage.evictable) +
                " can be evicted; give a larger --pages or close a sequence");
  }
  return *logits;
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
    bool const ends = first + tokens.size() == prompt.size();
    Work const work{&sequence,
                    tokens,
                    all_logits ? Wanted::all
                    : ends     ? Wanted::last
                               : Wanted::none};
    logits = engine.step({&work, 1});
    if (visit && !visit(first, logits)) {
      return {};
    }
    first += tokens.size();
  }
  return logits.last(engine.vocab());
}

}  // namespace llama
