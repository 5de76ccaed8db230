// SPDX-License-Identifier: Apache-2.0
#include "speculate.hpp"

#include "prompt_lookup.hpp"

namespace llama {

Continuation continue_text(Engine& engine,
                           kvcache::Sequence const& sequence,
                           std::span<std::int32_t const> prompt,
                           ContinueOptions const& options)
{
  Continuation out;
  if (options.tokens == 0) {
    return out;
  }
  Sampler sampler(options.sampling);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  text.push_back(sampler.pick(prefill(engine, sequence, prompt, options.chunk)));
  std::size_t const end = prompt.size() + options.tokens;
  std::vector<std::int32_t> chunk;
  while (text.size() < end) {
    // The last token of all is picked and never computed, so a draft for it would be for nothing.
    auto const draft = look_up(text, std::min(options.drafts, end - text.size() - 1));
    chunk.assign(1, text.back());
    chunk.insert(chunk.end(), draft.begin(), draft.end());
    Work const work{&sequence, chunk, Wanted::all, true};
    (void)engine.step({&work, 1}, [&](Work const&, std::span<float const> logits) {
      for (std::size_t row = 0;; ++row) {
        text.push_back(sampler.pick(logits.subspan(row * engine.vocab(), engine.vocab())));
        if (row + 1 == chunk.size() || text.back() != chunk[row + 1]) {
          out.accepted += row;
          return row + 1;
        }
      }
    });
    out.steps += 1;
    out.drafted += chunk.size() - 1;
  }
  out.tokens.assign(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end());
  return out;
}

}  // namespace llama
