// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A pool and one step of a random ragged batch: 0 to 70 sequences of 0 to 5,000 rows in random pages and random
/// table rows, chunks in another order, some of them trees, some behind drafts that are still open.

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "interop/foreign.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"

namespace kvcache_test {

/// What is true of one sequence, apart from any table.
struct RaggedSequence {
  std::uint32_t row = 0;      // of the native table
  kvcache::Index length = 0;  // with what the step stores
  kvcache::Index tokens = 0;  // of its chunk; 0: it is not in the step
};

template <kvcache::RowOrder Order = kvcache::RowOrder::hnd,
          class T = kvcache::half,
          std::int32_t Dim = 8>
class RaggedBatch {
 public:
  using Layout = kvcache::PagedHeads<T, Dim, kvcache::dynamic, Order>;
  using Index = kvcache::Index;
  static constexpr Index longest = 5000;
  static constexpr std::uint32_t table_rows = 90;

  RaggedBatch(std::int32_t page_tokens,
              std::uint64_t seed,
              kvcache::Arrangement arrangement = kvcache::Arrangement::page_first)
      : page_tokens_(page_tokens), arrangement_(arrangement)
  {
    Random random(seed);
    std::vector<std::uint32_t> const rows = shuffled(random, 0, table_rows);
    std::uint32_t const count = random.below(8) == 0 ? random.below(2) : random.below(71);
    for (std::uint32_t i = 0; i < count; ++i) {
      sequences_.push_back({rows[i], random_length(random), 0});
    }
    kvcache::Plan const plan = make_plan(random);
    auto made = kvcache::Pool<Layout>::create(geometry(),
                                              pool_sizes(geometry(), pages_, table_rows, 70 * 64));
    pool_.push_back(std::move(made.value()));
    std::vector<Index> const before = lengths_before_;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      pool_[0].view().lengths[sequences_[i].row] = before[i];
    }
    (void)pool_[0].apply(kvcache_test::in_order(plan)).value();
  }

  [[nodiscard]] kvcache::Geometry geometry() const
  {
    return {.layers = 2,
            .kv_heads = 3,
            .head_dim = Dim,
            .page_tokens = page_tokens_,
            .arrangement = arrangement_};
  }
  [[nodiscard]] kvcache::BatchView<Layout> view() const { return pool_[0].view(); }
  [[nodiscard]] std::size_t arena_bytes() const { return pool_[0].arena_bytes(); }
  [[nodiscard]] kvcache::Footprint const& footprint() const { return pool_[0].footprint(); }
  [[nodiscard]] std::vector<RaggedSequence> const& sequences() const { return sequences_; }
  /// The sequences of the step, in its order.
  [[nodiscard]] std::vector<RaggedSequence> const& chunks() const { return chunks_; }

  /// What another engine is told of one layer: strides of its own shape, and where the layer of page 0 begins. Pages
  /// that hold all layers have that many times the stride.
  [[nodiscard]] ForeignLayer<T> foreign(std::int32_t layer) const
  {
    auto const b = static_cast<std::size_t>(page_tokens_);
    auto const heads = static_cast<std::size_t>(geometry().kv_heads);
    constexpr std::size_t dim = Dim;
    kvcache::Footprint const& f = pool_[0].footprint();
    bool const dense = arrangement_ == kvcache::Arrangement::layer_first;
    std::size_t const page = (dense ? f.layer_bytes() : f.page_bytes()) / sizeof(T);
    auto const* const k = reinterpret_cast<T const*>(pool_[0].page(kvcache::zero_page, layer));
    switch (Order) {
      case kvcache::RowOrder::hnd:  // a tile a head, padded to 128 bytes
        return {k, k + b * dim, page, f.tile_bytes / sizeof(T), dim, page_tokens_};
      case kvcache::RowOrder::planes:  // [P, 2, H, b, D]
        return {k, k + heads * b * dim, page, b * dim, dim, page_tokens_};
      case kvcache::RowOrder::nhd:  // [P, 2, b, H, D]
        return {k, k + b * heads * dim, page, dim, heads * dim, page_tokens_};
    }
    return {};
  }

 private:
  static std::vector<std::uint32_t> shuffled(Random& random, std::uint32_t first, std::uint32_t n)
  {
    std::vector<std::uint32_t> out(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      std::uint32_t const j = random.below(i + 1);
      out[i] = out[j];
      out[j] = first + i;
    }
    return out;
  }
  Index random_length(Random& random) const
  {
    switch (random.below(4)) {
      case 0:
        return static_cast<Index>(random.below(3));
      case 1:  // around the end of a page
        return page_tokens_ * static_cast<Index>(random.below(4)) +
               static_cast<Index>(random.below(2));
      default:
        return static_cast<Index>(random.below(longest + 1));
    }
  }

  kvcache::Plan make_plan(Random& random)
  {
    struct Planned {
      std::size_t sequence;
      Index first, tokens, slack;
    };
    std::vector<Planned> planned;
    std::vector<Index> reserved;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      RaggedSequence& s = sequences_[i];
      lengths_before_.push_back(s.length);
      reserved.push_back(s.length + static_cast<Index>(random.below(3)) * page_tokens_);
      if (s.length == 0 || random.below(5) == 0) {
        continue;
      }
      auto const most = static_cast<std::uint32_t>(s.length < 64 ? s.length : 64);
      s.tokens = static_cast<Index>(random.between(1, random.below(2) == 0 ? most : 1));
      Index const first = s.length - s.tokens;
      // Open drafts: the plan only knows how far the sequence may have come, the device how far it has.
      Index const rejected = random.below(2) == 0 ? static_cast<Index>(random.below(9)) : 0;
      planned.push_back(
        {i, first + rejected, s.tokens, rejected + static_cast<Index>(random.below(3))});
      planned.back().slack = std::min(planned.back().slack, first + rejected);
      lengths_before_.back() = first;
      reserved.back() = std::max(reserved.back(), s.length + rejected);
    }

    kvcache::Plan plan;
    std::vector<std::uint32_t> counts;
    for (Index const rows : reserved) {
      counts.push_back(static_cast<std::uint32_t>((rows + page_tokens_ - 1) / page_tokens_));
      pages_ += counts.back();
    }
    pages_ += (longest + 200) / static_cast<std::uint32_t>(page_tokens_) +
              3;  // a row is as long as the pool allows
    std::vector<std::uint32_t> const ids = shuffled(random, 1, pages_);
    std::size_t used = 0;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (counts[i] == 0) {
        continue;
      }
      plan.tables.push_back({kvcache::RowId{sequences_[i].row},
                             0,
                             counts[i],
                             static_cast<std::uint32_t>(plan.ids.size())});
      for (std::uint32_t p = 0; p < counts[i]; ++p) {
        plan.ids.push_back(kvcache::PageId{ids[used++]});
      }
    }
    for (std::uint32_t const at : shuffled(random, 0, static_cast<std::uint32_t>(planned.size()))) {
      Planned const& p = planned[at];
      add_chunk(plan, sequences_[p.sequence].row, p.first, p.tokens);
      plan.chunks.back().slack = p.slack;
      if (p.tokens > 1 && random.below(3) == 0) {
        plan.chunks.back().parents_at = static_cast<std::uint32_t>(plan.parents.size());
        for (Index i = 0; i < p.tokens; ++i) {
          plan.parents.push_back(
            static_cast<Index>(random.below(static_cast<std::uint32_t>(i) + 1)) - 1);
        }
      }
      chunks_.push_back(sequences_[p.sequence]);
    }
    return plan;
  }

  std::int32_t page_tokens_;
  kvcache::Arrangement arrangement_;
  kvcache::PageCount pages_ = 0;
  std::vector<RaggedSequence> sequences_;
  std::vector<RaggedSequence> chunks_;
  std::vector<Index> lengths_before_;
  std::vector<kvcache::Pool<Layout>> pool_;  // one; a pool is not assigned
};

}  // namespace kvcache_test
