// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Decode steps over paged K and V in memory far larger than the caches, and plain reads of the same bytes.
///
/// A call reads one layer; the calls of a round go through all layers, at least 640 MiB, so that every byte comes
/// from memory. The plain reads go through the same memory with the widest vectors that the processor has.

#include <kvcache/core/dtype.hpp>
#include <kvcache/host.hpp>
#include <kvcache/layout/paged_heads.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "harness.hpp"
#include "memory.hpp"

namespace kvcache_bench {

constexpr std::size_t least_bytes = std::size_t{640} << 20;

#if defined(__x86_64__)
[[gnu::target("avx512f")]] inline std::uint64_t read_512(std::byte const* p, std::size_t bytes)
{
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
    a = _mm512_xor_si512(a, _mm512_loadu_si512(p + i));
    b = _mm512_xor_si512(b, _mm512_loadu_si512(p + i + 64));
    c = _mm512_xor_si512(c, _mm512_loadu_si512(p + i + 128));
    d = _mm512_xor_si512(d, _mm512_loadu_si512(p + i + 192));
  }
  std::uint64_t lanes[8];
  _mm512_storeu_si512(lanes, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ lanes[4] ^ lanes[5] ^ lanes[6] ^ lanes[7];
}

[[gnu::target("avx2")]] inline std::uint64_t read_256(std::byte const* p, std::size_t bytes)
{
  __m256i sum[4] = {};
  for (std::size_t i = 0; i + 128 <= bytes; i += 128) {
    for (std::size_t j = 0; j < 4; ++j) {
      sum[j] = _mm256_xor_si256(
        sum[j], _mm256_loadu_si256(reinterpret_cast<__m256i const*>(p + i + 32 * j)));
    }
  }
  std::uint64_t lanes[4];
  _mm256_storeu_si256(
    reinterpret_cast<__m256i*>(lanes),
    _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3])));
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}
#endif

inline std::uint64_t read_words(std::byte const* p, std::size_t bytes)
{
  std::uint64_t sum[4] = {};
  for (std::size_t i = 0; i + 32 <= bytes; i += 32) {
    std::uint64_t words[4];
    std::memcpy(words, p + i, sizeof words);
    for (std::size_t j = 0; j < 4; ++j) {
      sum[j] ^= words[j];
    }
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

/// Reads all of `bytes`, a multiple of 256, with the widest vectors that the processor has.
inline std::uint64_t plain_read(std::byte const* p, std::size_t bytes)
{
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) {
    return read_512(p, bytes);
  }
  if (__builtin_cpu_supports("avx2") != 0) {
    return read_256(p, bytes);
  }
#endif
  return read_words(p, bytes);
}

/// A decode step: sequences of `rows` rows each, of which the first `shared` lie in pages that all of them share.
struct DecodeShape {
  kvcache::Index rows = 0;
  int sequences = 1;
  kvcache::Index shared = 0;
  std::int32_t kv_heads = 8;
  std::int32_t group = 4;
  std::int32_t page_tokens = 16;
  bool random = true;  ///< pages lie in random order, or one after the other
};

template <class T>
using DecodeLayout = kvcache::PagedHeads<T, 128>;

// The kernels of an element type, compiled once for all bars: p1_decode.cpp.
void attend_item(kvcache::BatchView<DecodeLayout<kvcache::bfloat16>> const& view,
                 kvcache::AttentionPlan const& plan,
                 std::int32_t layer,
                 kvcache::AttentionTensors const& io,
                 std::size_t item);
void attend_item(kvcache::BatchView<DecodeLayout<float>> const& view,
                 kvcache::AttentionPlan const& plan,
                 std::int32_t layer,
                 kvcache::AttentionTensors const& io,
                 std::size_t item);

/// The step of a `DecodeShape` over many layers.
template <class T>
class Decode {
 public:
  using Index = kvcache::Index;
  static constexpr std::int32_t head_dim = 128;

  /// **Pre** `rows` and `shared` are multiples of `page_tokens`. **Errors** throws where there is no memory.
  explicit Decode(DecodeShape const& shape)
      : shape_(shape),
        layers_(layers(shape)),
        own_pages_(static_cast<std::uint32_t>((shape.rows - shape.shared) / shape.page_tokens)),
        shared_pages_(static_cast<std::uint32_t>(shape.shared / shape.page_tokens)),
        pages_(shared_pages_ + own_pages_ * static_cast<std::uint32_t>(shape.sequences)),
        memory_(page_bytes() * (pages_ + 1))
  {
    std::mt19937_64 random(1);
    std::vector<std::int32_t> ids(pages_);
    std::iota(ids.begin(), ids.end(), 1);
    if (shape.random) {
      std::shuffle(ids.begin(), ids.end(), random);
    }
    for (int s = 0; s < shape.sequences; ++s) {
      table_.insert(table_.end(), ids.begin(), ids.begin() + shared_pages_);
      auto const own = ids.begin() + shared_pages_ + s * static_cast<std::ptrdiff_t>(own_pages_);
      table_.insert(table_.end(), own, own + own_pages_);
      rows_.push_back(static_cast<std::uint32_t>(s));
      index_.push_back(shape.rows - 1);
      chunk_first_.push_back(s);
    }
    chunk_first_.push_back(shape.sequences);
    counts_[0] = counts_[1] = shape.sequences;
    for (std::int32_t l = 0; l < layers_; ++l) {
      layer_offset_.push_back(static_cast<std::uint32_t>(l * shape.kv_heads));
    }
    fill(random);
    std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
    q_.resize(static_cast<std::size_t>(shape.sequences * query_heads() * head_dim));
    out_.resize(q_.size());
    for (float& x : q_) {
      x = kvcache::ElementTraits<kvcache::bfloat16>::to_float(
        kvcache::ElementTraits<kvcache::bfloat16>::from_float(uniform(random)));
    }
  }

  /// Bytes of K and V that a round's calls read where nothing is shared.
  [[nodiscard]] static double bytes(DecodeShape const& shape)
  {
    return static_cast<double>(layers(shape)) * static_cast<double>(shape.sequences) *
           static_cast<double>(shape.rows) * row_bytes(shape);
  }

  [[nodiscard]] kvcache::AttentionPlan plan(int threads, Index shared_rows = 0)
  {
    kvcache::AttentionPlan plan;
    auto const made = plan.make(view(),
                                {.query_heads = query_heads(), .kv_heads = shape_.kv_heads},
                                {.workers = threads, .shared_rows = shared_rows});
    if (!made) {
      throw std::runtime_error(made.error().message().text);
    }
    scratch_.resize(std::max(scratch_.size(), plan.scratch_floats()));
    check(plan);
    return plan;
  }

  /// Seconds that all layers take, with the threads that the plan was made for.
  double attend(Team& team, kvcache::AttentionPlan const& plan)
  {
    return seconds([&] {
      for (std::int32_t l = 0; l < layers_; ++l) {
        attend_layer(team, plan, l);
      }
    });
  }

  /// Seconds to read all pages in address order.
  double read(Team& team)
  {
    std::size_t const part = page_bytes() * pages_ / static_cast<std::size_t>(team.size());
    return team.run([&](int rank) {
      keep(plain_read(memory_.data() + page_bytes() + part * static_cast<std::size_t>(rank), part));
    });
  }

  /// Seconds to read, layer by layer, what each page has of the layer, in the order of the first table row.
  double read_fragments(Team& team)
  {
    std::size_t const bytes = page_bytes() / static_cast<std::size_t>(layers_);
    std::size_t const part = table_.size() / static_cast<std::size_t>(team.size());
    return team.run([&](int rank) {
      std::uint64_t sum = 0;
      for (std::size_t l = 0; l < static_cast<std::size_t>(layers_); ++l) {
        for (std::size_t i = 0; i < part; ++i) {
          auto const page =
            static_cast<std::size_t>(table_[part * static_cast<std::size_t>(rank) + i]);
          sum ^= plain_read(memory_.data() + page_bytes() * page + bytes * l, bytes);
        }
      }
      keep(sum);
    });
  }

 private:
  static double row_bytes(DecodeShape const& shape)
  {
    return static_cast<double>(shape.kv_heads) * head_dim * 2 * sizeof(T);
  }
  static std::int32_t layers(DecodeShape const& shape)
  {
    double const rows = static_cast<double>(shape.shared) +
                        static_cast<double>(shape.rows - shape.shared) * shape.sequences;
    return static_cast<std::int32_t>(
      std::ceil(static_cast<double>(least_bytes) / (rows * row_bytes(shape))));
  }
  [[nodiscard]] std::int32_t query_heads() const { return shape_.kv_heads * shape_.group; }
  [[nodiscard]] std::size_t page_bytes() const
  {
    return static_cast<std::size_t>(row_bytes(shape_)) *
           static_cast<std::size_t>(shape_.page_tokens) * static_cast<std::size_t>(layers_);
  }

  [[nodiscard]] kvcache::BatchView<DecodeLayout<T>> view() const
  {
    typename DecodeLayout<T>::Map const map{
      .dim = {}, .tokens = kvcache::Extent<kvcache::dynamic>{shape_.page_tokens}};
    return {.segment = {.base = memory_.data(),
                        .table = table_.data(),
                        .layer_offset = layer_offset_.data(),
                        .num_pages = pages_ + 1,
                        .row_stride = shared_pages_ + own_pages_,
                        .layer_stride = 0,
                        .seq_rows = 1,
                        .head_rows = 0,
                        .page_scale = static_cast<std::uint32_t>(layers_ * shape_.kv_heads),
                        .head_scale = 1,
                        .unit_bytes = map.tile_bytes()},
            .map = map,
            .counts = counts_,
            .token_row = rows_.data(),
            .token_index = index_.data(),
            .chunk_first = chunk_first_.data()};
  }

  void fill(std::mt19937_64& random)
  {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<T> pattern(1 << 20);
    for (T& x : pattern) {
      x = kvcache::ElementTraits<T>::from_float(uniform(random));
    }
    std::size_t const total = page_bytes() * (pages_ + 1);
    std::size_t const row = sizeof(T) * head_dim;
    std::size_t const patterns = pattern.size() * sizeof(T) / row;
    for (std::size_t i = 0; i < total; i += row) {  // a row of the pattern, not in step with pages
      std::memcpy(memory_.data() + i, pattern.data() + i / row * 7919 % patterns * head_dim, row);
    }
  }

  void attend_layer(Team& team, kvcache::AttentionPlan const& plan, std::int32_t layer)
  {
    kvcache::BatchView<DecodeLayout<T>> const kv = view();
    kvcache::AttentionTensors const io{
      .q = q_.data(), .out = out_.data(), .lse = nullptr, .scratch = scratch_.data()};
    team.run([&](int rank) {
      kvcache::AttentionPlan::Share const share = plan.share(rank);
      for (std::size_t i = share.first; i < share.last; ++i) {
        attend_item(kv, plan, layer, io, i);
      }
    });
    if (plan.num_merges() < 8) {
      for (std::size_t i = 0; i < plan.num_merges(); ++i) {
        kvcache::merge(plan, io, i);
      }
      return;
    }
    team.run([&](int rank) {
      for (auto i = static_cast<std::size_t>(rank); i < plan.num_merges();
           i += static_cast<std::size_t>(team.size())) {
        kvcache::merge(plan, io, i);
      }
    });
  }

  /// Speed may not be bought with precision: some heads of the last layer against double.
  void check(kvcache::AttentionPlan const& plan)
  {
    std::int32_t const layer = layers_ - 1;
    kvcache::BatchView<DecodeLayout<T>> const kv = view();
    kvcache::AttentionTensors const io{
      .q = q_.data(), .out = out_.data(), .lse = nullptr, .scratch = scratch_.data()};
    for (std::size_t i = 0; i < plan.num_items(); ++i) {
      attend_item(kv, plan, layer, io, i);
    }
    for (std::size_t i = 0; i < plan.num_merges(); ++i) {
      kvcache::merge(plan, io, i);
    }
    double worst = 0;
    for (std::int32_t at = 0; at < shape_.sequences * query_heads(); at += 5 + query_heads() / 3) {
      std::int32_t const head = at % query_heads();
      float const* const q = q_.data() + at * head_dim;
      std::vector<double> out(head_dim);
      double sum = 0;
      for (auto const tile : kv.tiles(layer, head / shape_.group, at / query_heads())) {
        for (Index r = 0; r < tile.rows(); ++r) {
          double dot = 0;
          for (std::int32_t d = 0; d < head_dim; ++d) {
            dot += static_cast<double>(q[d]) * static_cast<double>(tile.key(r, d));
          }
          double const p = std::exp(dot / std::sqrt(static_cast<double>(head_dim)));
          sum += p;
          for (std::int32_t d = 0; d < head_dim; ++d) {
            out[static_cast<std::size_t>(d)] += p * static_cast<double>(tile.value(r, d));
          }
        }
      }
      for (std::size_t d = 0; d < head_dim; ++d) {
        auto const got = static_cast<double>(out_[static_cast<std::size_t>(at) * head_dim + d]);
        worst = std::max(worst, std::abs(out[d] / sum - got));
      }
    }
    if (!(worst <= 1e-5)) {
      throw std::runtime_error("attention is off by " + std::to_string(worst) +
                               " from double precision");
    }
  }

  DecodeShape shape_;
  std::int32_t layers_;
  std::uint32_t own_pages_;
  std::uint32_t shared_pages_;
  std::uint32_t pages_;
  Memory memory_;
  std::vector<std::int32_t> table_;
  std::vector<std::uint32_t> layer_offset_;
  Index counts_[2] = {0, 0};
  std::vector<std::uint32_t> rows_;
  std::vector<Index> index_;
  std::vector<Index> chunk_first_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<float> scratch_;
};

}  // namespace kvcache_bench
