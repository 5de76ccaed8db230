// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What a fault scenario is told on: a small cache whose rows are stamps.
///
/// A scenario is a function of a subject that says whether all went right. It must hold for the real cache and for
/// a naive one (`naive_cache.hpp`), and must fail for the naive one with the fault switched on: a test that the
/// fault does not turn red proves nothing.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/stamp.hpp"

namespace kvcache_test {

using Text = std::vector<kvcache::Token>;

/// Tokens `first .. last`.
inline Text range(kvcache::Token first, kvcache::Token last)
{
  Text text(static_cast<std::size_t>(last - first + 1));
  std::iota(text.begin(), text.end(), first);
  return text;
}
inline Text joined(Text text, Text const& more)
{
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

/// `KVCache` with pages of 4 tokens, 2 layers, 2 heads, head_dim 8, f16. Sequences are numbers; tenants are domains.
class RealCache {
 public:
  using Cache = kvcache::KVCache<kvcache::PagedHeads<kvcache::half, 8, 4>>;

  explicit RealCache(kvcache::PageCount pages = 8) : cache_(make(pages)) {}

  /// A new sequence with the longest hit of the prompt; -1: refused.
  int open(Text const& text, int tenant = 0, kvcache::Index fresh_tail = 1)
  {
    kvcache::Domain const domain = domain_of(tenant);
    auto opened = cache_.open({.tokens = text, .domain = &domain, .fresh_tail = fresh_tail});
    if (!opened) {
      return -1;
    }
    auto const hit = static_cast<std::size_t>(opened->length());
    Text const rows(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(hit));
    return enter(std::move(*opened), tenant, rows);
  }
  int fork(int s)
  {
    auto forked = cache_.fork(handle(s));
    Known const known = known_[at(s)];
    return forked ? enter(std::move(*forked), known.tenant, known.rows) : -1;
  }
  bool truncate(int s, kvcache::Index length)
  {
    auto const kept = cache_.truncate(handle(s), length);
    if (kept && *kept == length) {
      known_[at(s)].rows.resize(static_cast<std::size_t>(length));
    }
    return kept.has_value();
  }
  /// False: it was closed before.
  bool close(int s)
  {
    bool const was_open = handle(s).id().generation != 0;
    known_[at(s)].sequence.close();
    known_[at(s)].rows.clear();
    return was_open;
  }
  void forget(int tenant) { cache_.forget(domain_of(tenant)); }

  /// Plans the rows of one more chunk in an open step, which begins where there is none. False: refused.
  bool reserve(int s, Text const& text, bool draft = false)
  {
    if (!step_) {
      auto begun = cache_.begin();
      step_.emplace(std::move(*begun));
    }
    auto const added = step_->add(handle(s), {.tokens = text, .draft = draft});
    if (added) {
      chunks_.push_back({s, text});
    }
    return added.has_value();
  }
  void drop()
  {
    step_.reset();
    chunks_.clear();
  }
  /// Submits the open step and runs it: every layer stores its rows.
  void run()
  {
    (void)step_->submit();
    auto const view = step_->view();
    auto const plan = step_->plan();
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      std::size_t const i = chunk_of(plan.chunks[c].sequence);
      Known const& known = known_[at(chunks_[i].first)];
      auto const stamps = stamps_of(
        static_cast<std::uint64_t>(known.tenant), 0, joined(known.rows, chunks_[i].second));
      kvcache::ChunkView const chunk = view.chunk(static_cast<kvcache::Index>(c));
      for (kvcache::Index t = 0; t < chunk.tokens; ++t) {
        for (std::int32_t lh = 0; lh < 4; ++lh) {
          append_stamp(view,
                       lh / 2,
                       lh % 2,
                       chunk.first_token + t,
                       stamps[static_cast<std::size_t>(chunk.first_index + t)]);
        }
      }
    }
  }
  /// The first `accepted` tokens of each chunk are real (-1: all).
  void commit(kvcache::Index accepted = -1)
  {
    std::vector<kvcache::Index> counts;
    for (kvcache::PlannedChunk const& chunk : step_->plan().chunks) {
      counts.push_back(accepted < 0 ? chunk.tokens : accepted);
    }
    for (auto const& [s, text] : chunks_) {
      if (handle(s).id().generation != 0) {
        auto const end = accepted < 0 ? text.end() : text.begin() + accepted;
        known_[at(s)].rows.insert(known_[at(s)].rows.end(), text.begin(), end);
      }
    }
    (void)step_->commit(counts);
    drop();
  }
  void fail() { drop(); }
  /// A whole step for one sequence.
  bool append(int s, Text const& text)
  {
    if (!reserve(s, text)) {
      drop();
      return false;
    }
    run();
    commit();
    return true;
  }
  /// Opens, computes what the hit leaves, and closes: afterwards the whole pages are cached.
  void cache(Text const& text, int tenant = 0)
  {
    int const s = open(text, tenant);
    append(s, Text(text.begin() + length(s), text.end()));
    close(s);
  }

  /// As a stream sees it that runs after no other: what is committed.
  [[nodiscard]] kvcache::Index hit(Text const& text, int tenant = 0) const
  {
    kvcache::Domain const domain = domain_of(tenant);
    return cache_.probe({.tokens = text, .domain = &domain, .stream = kvcache::StreamId{3}}).rows;
  }
  [[nodiscard]] kvcache::Index length(int s) const { return handle(s).length(); }
  [[nodiscard]] std::vector<std::uint32_t> table(int s) const
  {
    std::vector<std::uint32_t> out;
    for (kvcache::PageId const page : cache_.pages(handle(s))) {
      out.push_back(page.value);
    }
    return out;
  }
  [[nodiscard]] std::uint32_t free() const { return cache_.stats().free; }
  [[nodiscard]] std::uint32_t cached() const { return cache_.stats().cached; }

  /// Every committed row of the sequence holds its stamp.
  [[nodiscard]] bool reads(int s) const
  {
    Known const& known = known_[at(s)];
    auto const stamps = stamps_of(static_cast<std::uint64_t>(known.tenant), 0, known.rows);
    auto const pages = cache_.pages(known.sequence);
    for (std::size_t i = 0; i < stamps.size(); ++i) {
      if (i / 4 >= pages.size() ||
          !rows_.row_is(pages[i / 4], static_cast<std::int32_t>(i % 4), stamps[i])) {
        return false;
      }
    }
    return known.rows.size() == static_cast<std::size_t>(known.sequence.length());
  }
  /// The invariants, and the rows of everything that is open.
  [[nodiscard]] bool check() const
  {
    for (std::size_t s = 0; s < known_.size(); ++s) {
      if (!reads(static_cast<int>(s))) {
        return false;
      }
    }
    return static_cast<bool>(cache_.check_invariants());
  }

  [[nodiscard]] Cache& cache() { return cache_; }

 private:
  struct Known {
    kvcache::Sequence sequence;
    int tenant = 0;
    Text rows;
    Known(kvcache::Sequence s, int t, Text r)
        : sequence(std::move(s)), tenant(t), rows(std::move(r))
    {
    }
    Known(Known&&) = default;
    Known(Known const& other) : tenant(other.tenant), rows(other.rows) {}
    Known& operator=(Known const&) = delete;
    ~Known() = default;
  };

  static kvcache::Domain domain_of(int tenant)
  {
    std::string const salt = std::to_string(tenant);
    return kvcache::Domain({.model = "m", .weights = {}, .salt = salt, .adapters = {}});
  }
  Cache make(kvcache::PageCount pages)
  {
    kvcache::Options<kvcache::Policies<>> options;
    options.pages = pages;
    memory_.resize((pages + 1) * 4U * 128U + 128U, std::byte{0xff});  // 0xffff is a NaN
    std::byte* const data =
      memory_.data() + (128U - reinterpret_cast<std::uintptr_t>(memory_.data()) % 128U);
    options.storage = {.data = data, .bytes = (pages + 1) * 4U * 128U};
    rows_ = {.base = data, .layers = 2, .heads = 2, .dim = 8, .page_tokens = 4};
    auto made = Cache::create({.layers = 2, .kv_heads = 2}, options);
    return std::move(*made);
  }
  static std::size_t at(int s) { return static_cast<std::size_t>(s); }
  [[nodiscard]] kvcache::Sequence const& handle(int s) const { return known_[at(s)].sequence; }
  int enter(kvcache::Sequence sequence, int tenant, Text const& rows)
  {
    known_.emplace_back(std::move(sequence), tenant, rows);
    return static_cast<int>(known_.size()) - 1;
  }
  [[nodiscard]] std::size_t chunk_of(kvcache::SequenceId id) const
  {
    std::size_t i = 0;
    while (handle(chunks_[i].first).id() != id) {
      ++i;
    }
    return i;
  }

  std::vector<std::byte> memory_;
  RawRows<kvcache::half> rows_;
  Cache cache_;
  std::vector<Known> known_;
  std::optional<Cache::Step> step_;
  std::vector<std::pair<int, Text>> chunks_;
};

}  // namespace kvcache_test
