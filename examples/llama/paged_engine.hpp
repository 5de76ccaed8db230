// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "error.hpp"
#include "forward.hpp"
#include "paged_attention.hpp"

namespace llama {

/// The engine over one layout of the cache.
template <class Layout>
class PagedEngine final : public Engine {
 public:
  using Cache = kvcache::KVCache<Layout>;

  PagedEngine(Model const& model, Threads& threads, EngineOptions const& options)
      : cache_(take(Cache::create({.layers = model.config.layers,
                                   .kv_heads = model.config.kv_heads,
                                   .head_dim = model.config.head_dim,
                                   .page_tokens = options.page_tokens},
                                  {.pages = options.pages,
                                   .max_sequences = options.max_sequences,
                                   .max_step_tokens = options.max_step_tokens,
                                   .vocabulary = model.config.vocab}))),
        forward_(model, threads),
        attention_(model.config, threads)
  {
  }

  kvcache::Sequence open(kvcache::Prompt const& prompt) override
  {
    return take(cache_.open(prompt));
  }
  kvcache::Sequence fork(kvcache::Sequence const& sequence) override
  {
    return take(cache_.fork(sequence));
  }
  void truncate(kvcache::Sequence const& sequence, int length) override
  {
    (void)take(cache_.truncate(sequence, length));
  }
  void forget(kvcache::Domain const& domain) override { cache_.forget(domain); }

  std::span<float const> step(std::span<Work const> works) override
  {
    auto step = take(cache_.begin());
    tokens_.clear();
    wanted_.clear();
    for (Work const& work : works) {
      if (auto const added = step.add(*work.sequence, {work.tokens}); !added) {
        refuse(added.error());  // the step is dropped: nothing happened
      }
      tokens_.insert(tokens_.end(), work.tokens.begin(), work.tokens.end());
      std::size_t const rows = work.all_logits ? work.tokens.size() : 1;
      for (std::size_t row = tokens_.size() - rows; row < tokens_.size(); ++row) {
        wanted_.push_back(row);
      }
    }
    (void)take(step.submit());
    auto const view = step.view();
    positions_.resize(tokens_.size());
    for (std::size_t t = 0; t < tokens_.size(); ++t) {
      positions_[t] = view.index(static_cast<kvcache::Index>(t));
    }
    attention_.begin(view);
    auto const logits = forward_.run(tokens_, positions_, wanted_, attention_);
    copies_ = step.plan().copies;
    (void)take(step.commit());
    return logits;
  }

  std::span<kvcache::PageCopy const> copies() const override { return copies_; }
  std::span<kvcache::PageId const> pages(kvcache::Sequence const& sequence) const override
  {
    return cache_.pages(sequence);
  }
  std::uint32_t holders(kvcache::PageId page) const override { return cache_.holders(page); }
  kvcache::Stats stats() const override { return cache_.stats(); }
  kvcache::Footprint footprint() const override { return cache_.footprint(); }
  kvcache::Report check_invariants() const override { return cache_.check_invariants(); }

 private:
  template <class T>
  static T take(kvcache::Result<T> result)
  {
    if (!result) {
      throw Error(std::string("the cache refuses: ") + result.error().message().text);
    }
    return std::move(result).value();
  }

  [[noreturn]] static void refuse(kvcache::Shortage const& shortage)
  {
    if (shortage.why != kvcache::Why::no_pages) {
      throw Error(std::string("the cache refuses: ") + shortage.detail.message().text);
    }
    throw Error("the cache is full: the step needs " + std::to_string(shortage.need) + " pages, " +
                std::to_string(shortage.free) + " are free and " +
                std::to_string(shortage.evictable) +
                " can be evicted; give a larger --pages or close a sequence");
  }

  Cache cache_;
  Forward forward_;
  PagedAttention<Layout> attention_;
  std::vector<std::int32_t> tokens_;     // of the step
  std::vector<std::int64_t> positions_;  // of its tokens
  std::vector<std::size_t> wanted_;      // tokens whose logits the caller reads
  std::vector<kvcache::PageCopy> copies_;
};

}  // namespace llama
