// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "embedded_model.hpp"
#include "forward.hpp"
#include "model.hpp"
#include "paged_attention.hpp"
#include "threads.hpp"
#include "tokenizer.hpp"

namespace llama {

/// What an engine has before it has a cache: a model, here the one inside the program, and kernels that read and
/// write K and V through a view. Whose view that is, a `KVCache`'s or a `Pool`'s, makes no difference.
template <class Layout>
class Decoder {
 public:
  explicit Decoder(unsigned threads = 1)
      : model_(load_model(Gguf::from_bytes(embedded_model(), "the recall model"))),
        tokenizer_(model_.file),
        threads_(threads),
        forward_(model_, threads_),
        attention_(model_.config, threads_)
  {
  }

  [[nodiscard]] Tokenizer const& tokenizer() const { return tokenizer_; }
  [[nodiscard]] std::size_t vocab() const { return static_cast<std::size_t>(model_.config.vocab); }
  /// What a cache for this model is made with.
  [[nodiscard]] kvcache::Geometry geometry() const
  {
    return {.layers = model_.config.layers,
            .kv_heads = model_.config.kv_heads,
            .head_dim = model_.config.head_dim};
  }

  /// One forward pass over the step that `view` shows: stores its rows, attends, and computes all logits.
  /// **Shape** the result `(tokens, vocab)`, valid until the next call. **Pre** `tokens` are the step's, in its order.
  [[nodiscard]] std::span<float const> run(kvcache::BatchView<Layout> const& view,
                                           std::span<std::int32_t const> tokens)
  {
    positions_.resize(tokens.size());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      positions_[t] = view.position(static_cast<kvcache::Index>(t));
    }
    all_.resize(tokens.size());
    std::iota(all_.begin(), all_.end(), std::size_t{0});
    attention_.begin(view);
    return forward_.run(tokens, positions_, all_, attention_);
  }
  /// Row `row` of what `run` returned.
  [[nodiscard]] std::span<float const> row(std::span<float const> logits, std::size_t row) const
  {
    return logits.subspan(row * vocab(), vocab());
  }

 private:
  Model model_;
  Tokenizer tokenizer_;
  Threads threads_;
  Forward forward_;
  PagedAttention<Layout> attention_;
  std::vector<std::int64_t> positions_;
  std::vector<std::size_t> all_;
};

}  // namespace llama
