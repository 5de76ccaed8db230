// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A decode step over a paged pool in device memory: 32 layers, pages in random order, one token a sequence.

#include <kvcache/core/dtype.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "timing.cuh"

namespace kvcache_bench {

using GpuLayout = kvcache::PagedHeads<kvcache::bfloat16, 128>;

/// Numbers between -2 and 2 in every row. A grid of any size.
static __global__ void fill_random(std::uint16_t* to, std::size_t n, std::uint64_t seed)
{
  std::size_t const step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    std::uint64_t x = (i + seed) * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 32;
    float const value = static_cast<float>(x & 0xffff) / 16384.0F - 2.0F;
    to[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);  // bfloat16, cut
  }
}

struct BatchShape {
  std::vector<kvcache::Index> rows;  ///< of each sequence, its new token's included
  std::int32_t kv_heads = 8;
  std::int32_t group = 4;
  std::int32_t page_tokens = 16;
  std::int32_t layers = 32;
  kvcache::Index shared = 0;  ///< leading rows in pages that all sequences share; whole pages
  bool random = true;         ///< pages in random order, or one after the other

  static BatchShape uniform(std::size_t sequences, kvcache::Index rows)
  {
    return {.rows = std::vector<kvcache::Index>(sequences, rows)};
  }
};

/// See the file comment.
class Batch {
 public:
  using Index = kvcache::Index;
  static constexpr std::int32_t head_dim = GpuLayout::head_dim;

  explicit Batch(BatchShape const& shape)
      : shape_(shape),
        tables_(shape),
        pool_(page_bytes() * (tables_.pages + 1) / sizeof(std::uint16_t)),
        table_(tables_.table),
        token_row_(tables_.row),
        token_index_(tables_.index),
        chunk_first_(tables_.first),
        layer_offset_(tables_.offset),
        counts_(std::vector<Index>(2, static_cast<Index>(shape.rows.size()))),
        lengths_(std::vector<Index>(shape.rows)),
        q_(shape.rows.size() * static_cast<std::size_t>(query_heads() * head_dim)),
        out_(q_.size())
  {
    fill_random<<<2048, 256>>>(pool_.data(), pool_.size(), 1);
    check(cudaMemset(pool_.data(), 0, page_bytes()), "page of zeros");
    std::vector<float> q(q_.size());
    std::mt19937_64 random(2);
    std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
    for (float& x : q) {
      x = uniform(random);
    }
    check(cudaMemcpy(q_.data(), q.data(), q.size() * sizeof(float), cudaMemcpyHostToDevice), "q");
    check(cudaDeviceSynchronize(), "fill");
  }

  [[nodiscard]] BatchShape const& shape() const { return shape_; }
  [[nodiscard]] std::int32_t query_heads() const { return shape_.kv_heads * shape_.group; }
  [[nodiscard]] float const* q() const { return q_.data(); }
  [[nodiscard]] float* out() const { return out_.data(); }
  /// The outputs of some query heads against double precision over the rows as they lie in the pool.
  /// **Errors** throws where one is off by more than the rounding of q and of weights to bfloat16 explains.
  void check_results(std::int32_t layer) const
  {
    std::vector<float> const q = q_.copy();
    std::vector<float> const out = out_.copy();
    auto const last = static_cast<std::int32_t>(shape_.rows.size()) - 1;
    for (std::int32_t const sequence : {0, last / 2, last}) {
      std::int32_t const kv_head = sequence % shape_.kv_heads;
      std::size_t const at =
        static_cast<std::size_t>((sequence * query_heads() + kv_head * shape_.group) * head_dim);
      std::vector<double> const want = attend(sequence, kv_head, layer, &q[at]);
      for (std::size_t d = 0; d < want.size(); ++d) {
        if (!(std::fabs(want[d] - static_cast<double>(out[at + d])) <= 4e-3)) {
          throw std::runtime_error("attention of sequence " + std::to_string(sequence) +
                                   " is wrong: " + std::to_string(out[at + d]) + " for " +
                                   std::to_string(want[d]));
        }
      }
    }
  }
  /// V of a sequence's last row.
  [[nodiscard]] std::vector<std::uint16_t> value_row(std::size_t sequence,
                                                     std::int32_t layer,
                                                     std::int32_t kv_head) const
  {
    Index const row = shape_.rows[sequence] - 1;
    auto const page = static_cast<std::size_t>(
      tables_
        .table[sequence * tables_.row_pages + static_cast<std::size_t>(row / shape_.page_tokens)]);
    std::size_t const at =
      2 * plane() * unit(page, layer, kv_head) + plane() +
      static_cast<std::size_t>(row % shape_.page_tokens) * static_cast<std::size_t>(head_dim);
    std::vector<std::uint16_t> out(head_dim);
    check(
      cudaMemcpy(
        out.data(), pool_.data() + at, out.size() * sizeof(std::uint16_t), cudaMemcpyDeviceToHost),
      "copy");
    return out;
  }
  /// Bytes of K and V that all layers read where nothing is shared.
  [[nodiscard]] double bytes() const
  {
    double const rows = std::accumulate(shape_.rows.begin(), shape_.rows.end(), 0.0);
    return rows * shape_.layers * shape_.kv_heads * head_dim * 2 * sizeof(std::uint16_t);
  }

  [[nodiscard]] kvcache::BatchView<GpuLayout> view() const
  {
    typename GpuLayout::Map const map{
      .dim = {}, .tokens = kvcache::Extent<kvcache::dynamic>{shape_.page_tokens}};
    return {.segment = {.base = reinterpret_cast<std::byte*>(pool_.data()),
                        .table = table_.data(),
                        .layer_offset = layer_offset_.data(),
                        .num_pages = tables_.pages + 1,
                        .row_stride = tables_.row_pages,
                        .layer_stride = 0,
                        .seq_rows = 1,
                        .head_rows = 0,
                        .page_scale = static_cast<std::uint32_t>(shape_.layers * shape_.kv_heads),
                        .head_scale = 1,
                        .unit_bytes = map.tile_bytes()},
            .map = map,
            .counts = counts_.data(),
            .token_row = token_row_.data(),
            .token_index = token_index_.data(),
            .chunk_first = chunk_first_.data(),
            .lengths = lengths_.data()};
  }

 private:
  /// The arrays of the step, made on the host.
  struct Tables {
    explicit Tables(BatchShape const& shape)
    {
      auto const pages_of = [&](Index rows) {
        return static_cast<std::uint32_t>((rows + shape.page_tokens - 1) / shape.page_tokens);
      };
      std::uint32_t const common = pages_of(shape.shared);
      pages = common;
      for (Index const rows : shape.rows) {
        row_pages = std::max(row_pages, pages_of(rows));
        pages += pages_of(rows) - common;
      }
      std::vector<std::int32_t> ids(pages);
      std::iota(ids.begin(), ids.end(), 1);
      if (shape.random) {
        std::mt19937_64 random(1);
        std::shuffle(ids.begin(), ids.end(), random);
      }
      table.assign(std::size_t{row_pages} * shape.rows.size(), 0);
      std::size_t next = common;
      for (std::size_t s = 0; s < shape.rows.size(); ++s) {
        for (std::uint32_t p = 0; p < pages_of(shape.rows[s]); ++p) {
          table[s * row_pages + p] = p < common ? ids[p] : ids[next++];
        }
        row.push_back(static_cast<std::uint32_t>(s));
        index.push_back(shape.rows[s] - 1);
        first.push_back(static_cast<Index>(s));
      }
      first.push_back(static_cast<Index>(shape.rows.size()));
      for (std::int32_t l = 0; l < shape.layers; ++l) {
        offset.push_back(static_cast<std::uint32_t>(l * shape.kv_heads));
      }
    }
    std::uint32_t pages = 0;
    std::uint32_t row_pages = 0;
    std::vector<std::int32_t> table;
    std::vector<std::uint32_t> row;
    std::vector<Index> index;
    std::vector<Index> first;
    std::vector<std::uint32_t> offset;
  };

  /// Elements of a tile's K, and of its V.
  [[nodiscard]] std::size_t plane() const
  {
    return static_cast<std::size_t>(shape_.page_tokens * head_dim);
  }
  [[nodiscard]] std::size_t unit(std::size_t page, std::int32_t layer, std::int32_t kv_head) const
  {
    std::size_t const of_layer =
      page * static_cast<std::size_t>(shape_.layers) + static_cast<std::size_t>(layer);
    return of_layer * static_cast<std::size_t>(shape_.kv_heads) + static_cast<std::size_t>(kv_head);
  }
  static double widened(std::uint16_t x)
  {
    return static_cast<double>(kvcache::ElementTraits<kvcache::bfloat16>::to_float({x}));
  }
  static double rounded(float x)
  {
    return static_cast<double>(kvcache::ElementTraits<kvcache::bfloat16>::to_float(
      kvcache::ElementTraits<kvcache::bfloat16>::from_float(x)));
  }
  [[nodiscard]] std::vector<double> attend(std::int32_t sequence,
                                           std::int32_t kv_head,
                                           std::int32_t layer,
                                           float const* q) const
  {
    Index const rows = shape_.rows[static_cast<std::size_t>(sequence)];
    std::vector<std::uint16_t> tile(2 * plane());
    std::vector<double> out(head_dim, 0.0);
    double sum = 0.0;
    for (Index first = 0; first < rows; first += shape_.page_tokens) {
      auto const page = static_cast<std::size_t>(
        tables_.table[static_cast<std::size_t>(sequence) * tables_.row_pages +
                      static_cast<std::size_t>(first / shape_.page_tokens)]);
      check(cudaMemcpy(tile.data(),
                       pool_.data() + unit(page, layer, kv_head) * 2 * plane(),
                       tile.size() * sizeof(std::uint16_t),
                       cudaMemcpyDeviceToHost),
            "copy");
      for (Index r = 0; r < shape_.page_tokens && first + r < rows; ++r) {
        std::uint16_t const* const row = &tile[static_cast<std::size_t>(r * head_dim)];
        double dot = 0.0;
        for (std::size_t d = 0; d < out.size(); ++d) {
          dot += rounded(q[d]) * widened(row[d]);
        }
        double const weight = std::exp(dot / std::sqrt(static_cast<double>(head_dim)));
        sum += weight;
        for (std::size_t d = 0; d < out.size(); ++d) {
          out[d] += weight * widened(row[plane() + d]);
        }
      }
    }
    for (double& x : out) {
      x /= sum;
    }
    return out;
  }
  [[nodiscard]] std::size_t page_bytes() const
  {
    return static_cast<std::size_t>(shape_.layers) * static_cast<std::size_t>(shape_.kv_heads) *
           static_cast<std::size_t>(shape_.page_tokens) * head_dim * 2 * sizeof(std::uint16_t);
  }

  BatchShape shape_;
  Tables tables_;
  DeviceArray<std::uint16_t> pool_;
  DeviceArray<std::int32_t> table_;
  DeviceArray<std::uint32_t> token_row_;
  DeviceArray<Index> token_index_;
  DeviceArray<Index> chunk_first_;
  DeviceArray<std::uint32_t> layer_offset_;
  DeviceArray<Index> counts_;
  DeviceArray<Index> lengths_;
  DeviceArray<float> q_;
  DeviceArray<float> out_;
};

}  // namespace kvcache_bench
