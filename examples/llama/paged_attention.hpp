// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/host.hpp>
#include <kvcache/view.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "error.hpp"
#include "forward.hpp"
#include "threads.hpp"

namespace llama {

/// Attention over the pages of a cache: the two places where an engine's kernels meet the library.
/// A kernel of one's own takes the same view; see `examples/01_plug_into_your_kernel`.
template <class Layout>
class PagedAttention final : public Attention {
 public:
  using View = kvcache::BatchView<Layout>;

  /// **Pre** `threads` outlives this.
  PagedAttention(Config const& config, Threads& threads)
      : shape_{.query_heads = config.heads, .kv_heads = config.kv_heads, .scale = 0.0F},
        dim_(static_cast<std::size_t>(config.head_dim)),
        threads_(&threads)
  {
  }

  /// Plans the work of a step, for all its layers. **Errors** `Error` naming the field.
  void begin(View const& view)
  {
    view_ = view;
    kvcache::AttentionOptions const options{.workers = static_cast<std::int32_t>(threads_->size()),
                                            .split_rows = split_rows};
    if (auto const made = plan_.make(view, shape_, options); !made) {
      throw Error(std::string("attention: ") + made.error().message().text);
    }
    scratch_.resize(plan_.scratch_floats());
  }

  void attend(int layer, float const* q, float const* k, float const* v, float* out) override
  {
    auto const kv_heads = static_cast<std::size_t>(shape_.kv_heads);
    threads_->run_short(static_cast<std::size_t>(view_.num_tokens()), [&](std::size_t t) {
      for (std::size_t head = 0; head < kv_heads; ++head) {
        std::size_t const at = (t * kv_heads + head) * dim_;
        view_.append(kvcache::Solo{},
                     layer,
                     static_cast<std::int32_t>(head),
                     static_cast<kvcache::Index>(t),
                     k + at,
                     v + at);
      }
    });
    kvcache::AttentionTensors const tensors{
      .q = q, .out = out, .lse = nullptr, .scratch = scratch_.data()};
    threads_->run(plan_.num_items(),
                  [&](std::size_t item) { kvcache::attend(view_, plan_, layer, tensors, item); });
    threads_->run(plan_.num_merges(),
                  [&](std::size_t item) { kvcache::merge(plan_, tensors, item); });
  }

 private:
  /// Cutting always at the same rows makes the bits of a token independent of the batch, the chunks and the
  /// number of threads.
  static constexpr kvcache::Index split_rows = 512;

  kvcache::AttentionShape shape_;
  std::size_t dim_;
  Threads* threads_;
  View view_{};
  kvcache::AttentionPlan plan_;
  std::vector<float> scratch_;
};

}  // namespace llama
