// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A pool, a page table and a step built by hand, for tests of what reads pages: no control plane, random page
/// ids, poison wherever no row was written, and a plain copy of every row as the model to compare with.

#include <kvcache/core/dtype.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvcache_test {

/// What lies in bytes that hold no row.
enum class Poison { zeros, nan, infinity, ones };

constexpr char const* name(Poison poison)
{
  return poison == Poison::zeros      ? "zeros"
         : poison == Poison::nan      ? "NaN"
         : poison == Poison::infinity ? "infinity"
                                      : "0xFF bytes";
}

/// One chunk of the step: the last `tokens` rows of `sequence`. A sequence of -1 is padding.
struct StepChunk {
  int sequence;
  kvcache::Index tokens;
};

template <class Layout>
class PagedPool {
 public:
  using T = typename Layout::element;
  using Index = kvcache::Index;

  /// Sequences of `lengths` rows in random pages; `chunks` is the step that wrote their last rows.
  PagedPool(kvcache::Geometry geometry,
            std::vector<Index> lengths,
            std::vector<StepChunk> const& chunks,
            Poison poison,
            std::uint64_t seed)
      : geometry_(geometry), lengths_(std::move(lengths))
  {
    std::mt19937_64 random(seed);
    map_ = Layout::map(geometry_);
    footprint_ = Layout::footprint(geometry_);
    std::uint32_t pages = 0;
    for (Index const length : lengths_) {
      std::uint32_t const n = pages_of(length);
      pages += n;
      row_stride_ = std::max(row_stride_, n);
    }
    row_stride_ += 2;  // entries behind a sequence's pages are no pages
    num_pages_ = pages + 3;
    bytes_ = footprint_.pool_bytes(num_pages_ - 1);
    memory_.resize(bytes_ / sizeof(Line));
    spoil(poison);
    std::memset(
      base(), 0, static_cast<std::size_t>(footprint_.page_units()) * footprint_.unit_bytes);

    std::vector<std::int32_t> ids(num_pages_ - 1);
    std::iota(ids.begin(), ids.end(), 1);
    std::shuffle(ids.begin(), ids.end(), random);
    table_.assign(lengths_.size() * row_stride_, -1);
    std::size_t used = 0;
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      for (std::uint32_t p = 0; p < pages_of(lengths_[s]); ++p) {
        table_[s * row_stride_ + p] = ids[used++];
      }
    }
    for (std::int32_t l = 0; l < geometry_.layers; ++l) {
      layer_offset_.push_back(static_cast<std::uint32_t>(l) *
                              footprint_.layer_stride(num_pages_ - 1));
    }
    fill(seed);
    step(chunks);
  }
  PagedPool(PagedPool const&) = delete;  // views point into it
  PagedPool& operator=(PagedPool const&) = delete;

  [[nodiscard]] kvcache::BatchView<Layout> view()
  {
    return {.segment = {.base = base(),
                        .table = table_.data(),
                        .layer_offset = layer_offset_.data(),
                        .num_pages = num_pages_,
                        .row_stride = row_stride_,
                        .layer_stride = 0,
                        .seq_rows = 1,
                        .head_rows = 0,
                        .page_scale = footprint_.page_units(),
                        .head_scale = footprint_.head_units,
                        .unit_bytes = footprint_.unit_bytes},
            .map = map_,
            .counts = counts_,
            .token_row = token_row_.data(),
            .token_index = token_index_.data(),
            .chunk_first = chunk_first_.data(),
            .token_mask = token_mask_.empty() ? nullptr : token_mask_.data()};
  }

  [[nodiscard]] Index num_tokens() const { return counts_[0]; }
  [[nodiscard]] kvcache::Geometry const& geometry() const { return geometry_; }
  /// The rows up to that of `token`, its own included; none for padding.
  [[nodiscard]] Index sees(Index token) const
  {
    return std::max(token_index_[static_cast<std::size_t>(token)] + 1, 0);
  }
  /// Rows of `token`'s sequence. **Pre** no padding.
  [[nodiscard]] Index length_of(Index token) const
  {
    return lengths_[token_row_[static_cast<std::size_t>(token)]];
  }
  /// Makes chunk `c` a tree: `parents[i]` is the place in the chunk of its token i's parent, -1 for none.
  void plant(Index c, std::vector<Index> const& parents)
  {
    Index const first = chunk_first_[static_cast<std::size_t>(c)];
    token_mask_.resize(token_row_.size());
    token_parent_.resize(token_row_.size(), -1);
    for (std::size_t i = 0; i < parents.size(); ++i) {
      std::size_t const token = static_cast<std::size_t>(first) + i;
      token_mask_[token] = std::uint64_t{1} << i;
      token_parent_[token] = parents[i] < 0 ? -1 : first + parents[i];
      if (parents[i] >= 0) {
        token_mask_[token] |= token_mask_[static_cast<std::size_t>(token_parent_[token])];
      }
    }
  }
  /// Whether `token` sees row `i` of its sequence: asked of the parents, not of the masks.
  [[nodiscard]] bool visible(Index token, Index i) const
  {
    if (token_mask_.empty() || token_mask_[static_cast<std::size_t>(token)] == 0) {
      return i < sees(token);
    }
    Index first = 0;  // token of the chunk
    for (Index const start : chunk_first_) {
      first = start <= token ? start : first;
    }
    bool seen = i < token_index_[static_cast<std::size_t>(first)];
    for (Index at = token; at >= 0; at = token_parent_[static_cast<std::size_t>(at)]) {
      seen |= token_index_[static_cast<std::size_t>(at)] == i;
    }
    return seen;
  }
  /// How many tokens of its text lie between `token` and row `i` that it sees, itself not counted: asked of the parents.
  [[nodiscard]] Index back(Index token, Index i) const
  {
    Index steps = 0;
    Index at = token;
    while (!token_parent_.empty() && token_parent_[static_cast<std::size_t>(at)] >= 0 &&
           token_index_[static_cast<std::size_t>(at)] > i) {
      at = token_parent_[static_cast<std::size_t>(at)];
      ++steps;
    }
    bool const tree = !token_mask_.empty() && token_mask_[static_cast<std::size_t>(at)] != 0;
    Index const index = token_index_[static_cast<std::size_t>(at)];
    if (!tree) {
      return steps + index - i;
    }
    Index first = 0;
    for (Index const start : chunk_first_) {
      first = start <= token ? start : first;
    }
    return index == i ? steps : steps + token_index_[static_cast<std::size_t>(first)] - i;
  }
  /// Makes the first `pages` pages of sequence `s` those of sequence `of`, in the table and in the model.
  void share(std::size_t s, std::size_t of, std::uint32_t pages)
  {
    for (std::uint32_t p = 0; p < pages; ++p) {
      table_[s * row_stride_ + p] = table_[of * row_stride_ + p];
    }
    auto const rows =
      std::min({static_cast<Index>(pages) * geometry_.page_tokens, lengths_[s], lengths_[of]});
    std::size_t const elements = static_cast<std::size_t>(rows) * row_elements();
    std::copy_n(keys_.data() + first_[of], elements, keys_.data() + first_[s]);
    std::copy_n(values_.data() + first_[of], elements, values_.data() + first_[s]);
  }
  /// Makes the only sequence `rows` rows long by its pages again and again: row i is row i modulo its length, and the model
  /// keeps those alone. **Pre** a step of one token; the length is whole pages.
  void repeat(Index rows)
  {
    std::uint32_t const period = pages_of(lengths_[0]);
    std::uint32_t const pages = pages_of(rows);
    table_.resize(period);
    for (std::uint32_t p = period; p < pages; ++p) {
      table_.push_back(table_[p - period]);
    }
    table_.resize(std::size_t{pages} + 2, -1);
    row_stride_ = pages + 2;
    token_index_[0] = rows - 1;
  }
  /// Overwrites the table entry of page `p` of sequence `s`.
  void set_entry(std::size_t s, std::uint32_t p, std::int32_t page)
  {
    table_[s * row_stride_ + p] = page;
  }
  [[nodiscard]] float const* key(Index token, std::int32_t layer, std::int32_t head, Index i) const
  {
    return keys_.data() + at(token, layer, head, i);
  }
  [[nodiscard]] float const* value(Index token,
                                   std::int32_t layer,
                                   std::int32_t head,
                                   Index i) const
  {
    return values_.data() + at(token, layer, head, i);
  }
  /// Makes the step that of the first `chunks` chunks.
  void set_chunks(Index chunks)
  {
    counts_[0] = chunk_first_[static_cast<std::size_t>(chunks)];
    counts_[1] = chunks;
  }
  /// Makes one row zeros in the model alone.
  void forget(Index token, std::int32_t layer, std::int32_t head, Index i)
  {
    auto const from = static_cast<std::ptrdiff_t>(at(token, layer, head, i));
    std::fill_n(keys_.begin() + from, geometry_.head_dim, 0.0F);
    std::fill_n(values_.begin() + from, geometry_.head_dim, 0.0F);
  }
  /// Overwrites one row, in the pool and in the model.
  void put(Index token, std::int32_t layer, std::int32_t head, Index i, float k, float v)
  {
    std::size_t const from = at(token, layer, head, i);
    auto const dim = static_cast<std::size_t>(geometry_.head_dim);
    std::fill_n(keys_.begin() + static_cast<std::ptrdiff_t>(from), dim, k);
    std::fill_n(values_.begin() + static_cast<std::ptrdiff_t>(from), dim, v);
    store(token_row_[static_cast<std::size_t>(token)], layer, head, i, from);
  }

 private:
  struct alignas(128) Line {
    std::byte bytes[128];
  };

  [[nodiscard]] std::byte* base() { return memory_.front().bytes; }
  [[nodiscard]] std::uint32_t pages_of(Index length) const
  {
    return static_cast<std::uint32_t>((length + geometry_.page_tokens - 1) / geometry_.page_tokens);
  }

  void spoil(Poison poison)
  {
    if (poison == Poison::zeros || poison == Poison::ones) {
      std::memset(base(), poison == Poison::zeros ? 0 : 0xff, bytes_);
      return;
    }
    T const bad = kvcache::ElementTraits<T>::from_float(poison == Poison::nan
                                                          ? std::numeric_limits<float>::quiet_NaN()
                                                          : std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; i < bytes_; i += sizeof(T)) {
      std::memcpy(base() + i, &bad, sizeof(T));
    }
  }

  /// A sequence's rows depend on its number and the seed only, not on the pages or the other sequences.
  void fill(std::uint64_t seed)
  {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      std::mt19937_64 random(seed ^ (s + 1));
      first_.push_back(keys_.size());
      std::size_t const elements = static_cast<std::size_t>(lengths_[s]) * row_elements();
      for (std::size_t i = 0; i < elements; ++i) {
        using Traits = kvcache::ElementTraits<T>;
        keys_.push_back(Traits::to_float(Traits::from_float(uniform(random))));
        values_.push_back(Traits::to_float(Traits::from_float(uniform(random))));
      }
    }
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      for (Index i = 0; i < lengths_[s]; ++i) {
        for (std::int32_t l = 0; l < geometry_.layers; ++l) {
          for (std::int32_t h = 0; h < geometry_.kv_heads; ++h) {
            store(static_cast<std::uint32_t>(s), l, h, i, row_at(s, l, h, i));
          }
        }
      }
    }
  }

  /// Through the view's own `append`, as an engine stores.
  void store(std::uint32_t s, std::int32_t layer, std::int32_t head, Index i, std::size_t from)
  {
    kvcache::BatchView<Layout> one = view();
    one.token_row = &s;
    one.token_index = &i;
    one.append(kvcache::Solo{}, layer, head, 0, keys_.data() + from, values_.data() + from);
  }

  void step(std::vector<StepChunk> const& chunks)
  {
    chunk_first_.push_back(0);
    for (StepChunk const& chunk : chunks) {
      for (Index i = 0; i < chunk.tokens; ++i) {
        bool const padding = chunk.sequence < 0;
        token_row_.push_back(padding ? kvcache::nil : static_cast<std::uint32_t>(chunk.sequence));
        token_index_.push_back(
          padding ? -1 : lengths_[static_cast<std::size_t>(chunk.sequence)] - chunk.tokens + i);
      }
      chunk_first_.push_back(static_cast<Index>(token_row_.size()));
    }
    counts_[0] = static_cast<Index>(token_row_.size());
    counts_[1] = static_cast<Index>(chunks.size());
  }

  [[nodiscard]] std::size_t row_elements() const
  {
    return static_cast<std::size_t>(geometry_.layers) *
           static_cast<std::size_t>(geometry_.kv_heads) *
           static_cast<std::size_t>(geometry_.head_dim);
  }
  [[nodiscard]] std::size_t row_at(std::size_t s,
                                   std::int32_t layer,
                                   std::int32_t head,
                                   Index i) const
  {
    return first_[s] + static_cast<std::size_t>(i) * row_elements() +
           static_cast<std::size_t>(layer * geometry_.kv_heads + head) *
             static_cast<std::size_t>(geometry_.head_dim);
  }
  [[nodiscard]] std::size_t at(Index token, std::int32_t layer, std::int32_t head, Index i) const
  {
    return row_at(token_row_[static_cast<std::size_t>(token)], layer, head, i);
  }

  kvcache::Geometry geometry_;
  std::vector<Index> lengths_;
  typename Layout::Map map_{};
  kvcache::Footprint footprint_{};
  std::uint32_t row_stride_ = 0;
  std::uint32_t num_pages_ = 0;
  std::size_t bytes_ = 0;
  std::vector<Line> memory_;
  std::vector<std::int32_t> table_;
  std::vector<std::uint32_t> layer_offset_;
  std::vector<std::size_t> first_;
  std::vector<float> keys_;
  std::vector<float> values_;
  Index counts_[2] = {0, 0};
  std::vector<std::uint32_t> token_row_;
  std::vector<Index> token_index_;
  std::vector<Index> chunk_first_;
  std::vector<std::uint64_t> token_mask_;
  std::vector<Index> token_parent_;
};

}  // namespace kvcache_test
