// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
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
        vocab_(static_cast<std::size_t>(model.config.vocab)),
        forward_(
          model, threads, options.kv == KvType::f32 ? Arithmetic::float32 : Arithmetic::rounded),
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

  void suspend(kvcache::Sequence const& sequence) override { (void)take(cache_.suspend(sequence)); }
  void resume(kvcache::Sequence const& sequence) override { (void)take(cache_.resume(sequence)); }

  kvcache::Result<std::span<float const>, kvcache::Shortage> try_step(
    std::span<Work const> works, Verdict const& verdict) override
  {
    auto step = take(cache_.begin({}, {.attach = true}));  // equal prompts are computed once
    parts_.clear();
    for (Work const& work : works) {
      auto const added = step.add(
        *work.sequence, {.tokens = work.tokens, .draft = work.draft, .parents = work.parents});
      if (!added) {  // the step is dropped: nothing happened
        if (added.error().why == kvcache::Why::no_pages) {
          return added.error();
        }
        throw Error(std::string("the cache refuses: ") + added.error().detail.message().text);
      }
      parts_.push_back({&work, *added, rows_of(work, static_cast<std::size_t>(*added))});
    }
    (void)take(step.submit());
    note(step.tokens());
    std::span<float const> logits;
    if (!tokens_.empty()) {
      auto const view = step.view();
      positions_.resize(tokens_.size());
      for (std::size_t t = 0; t < tokens_.size(); ++t) {
        positions_[t] = view.position(static_cast<kvcache::Index>(t));
      }
      attention_.begin(view);
      logits = forward_.run(tokens_, positions_, wanted_, attention_);
    }
    auto const& copies = step.plan().copies;
    copies_.assign(copies.begin(), copies.end());
    (void)take(step.commit(judge(logits, verdict)));
    return logits;
  }

  std::span<kvcache::PageCopy const> copies() const override { return copies_; }
  std::span<kvcache::PageId const> pages(kvcache::Sequence const& sequence) const override
  {
    return cache_.pages(sequence);
  }
  std::uint32_t holders(kvcache::PageId page) const override { return cache_.holders(page); }
  std::size_t vocab() const override { return vocab_; }
  kvcache::Geometry const& geometry() const override { return cache_.geometry(); }
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

  /// How many rows of logits a work has of its `fresh` tokens that are computed: the last ones, those before were found.
  static std::size_t rows_of(Work const& work, std::size_t fresh)
  {
    std::size_t const rows = work.wanted == Wanted::all    ? fresh
                             : work.wanted == Wanted::last ? 1
                                                           : 0;
    if (rows > fresh) {
      throw Error("a work wants the logits of a token that the cache holds already");
    }
    return rows;
  }
  /// What the step computes, and of which of these tokens the logits are read.
  void note(kvcache::StepTokens const& tokens)
  {
    tokens_.clear();
    wanted_.clear();
    for (kvcache::StepToken const token : tokens) {
      Part const& part = parts_[token.chunk];
      auto const left = part.work->tokens.size() - static_cast<std::size_t>(token.place);
      if (left <= part.rows) {
        wanted_.push_back(tokens_.size());
      }
      tokens_.push_back(token.token);
    }
  }

  /// Which tokens of each chunk become real.
  std::span<kvcache::Outcome const> judge(std::span<float const> logits, Verdict const& verdict)
  {
    outcomes_.clear();
    path_.clear();
    path_.reserve(tokens_.size());  // so that what the outcomes point to stays where it is
    for (Part const& part : parts_) {
      Work const& work = *part.work;
      auto const mine = logits.first(part.rows * vocab());
      logits = logits.subspan(mine.size());
      bool const guess = (work.draft || !work.parents.empty()) && verdict;
      auto const kept = guess ? static_cast<kvcache::Index>(verdict(work, mine)) : part.tokens;
      outcomes_.push_back(work.parents.empty() ? kvcache::Outcome{.accepted = kept}
                                               : path_through(work.parents, kept - 1));
    }
    return outcomes_;
  }

  /// A token of a tree and its ancestors become real.
  kvcache::Outcome path_through(std::span<kvcache::Index const> parents, kvcache::Index token)
  {
    if (token >= static_cast<kvcache::Index>(parents.size())) {
      throw Error("a verdict keeps a token that the tree does not have");
    }
    auto const first = static_cast<std::ptrdiff_t>(path_.size());
    for (; token >= 0; token = parents[static_cast<std::size_t>(token)]) {
      path_.push_back(token);
    }
    std::reverse(path_.begin() + first, path_.end());
    auto const path = std::span(path_).subspan(static_cast<std::size_t>(first));
    return {.accepted = static_cast<kvcache::Index>(path.size()), .path = path};
  }

  /// A chunk, in the order of the adds.
  struct Part {
    Work const* work;
    kvcache::Index tokens;  // computed; 0: it was found whole
    std::size_t rows;       // of logits
  };

  Cache cache_;
  std::size_t vocab_;
  Forward forward_;
  PagedAttention<Layout> attention_;
  std::vector<std::int32_t> tokens_;     // of the step
  std::vector<std::int64_t> positions_;  // of its tokens
  std::vector<std::size_t> wanted_;      // tokens whose logits the caller reads
  std::vector<Part> parts_;
  std::vector<kvcache::Outcome> outcomes_;
  std::vector<kvcache::Index> path_;  // of the trees in the outcomes, one behind the other
  std::vector<kvcache::PageCopy> copies_;
};

}  // namespace llama
