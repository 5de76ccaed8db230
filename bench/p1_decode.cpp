// SPDX-License-Identifier: Apache-2.0
// P1: paged decode in bfloat16 against a plain read of the same bytes, two threads each.
//
// One sequence, pages of 16 tokens in random order, 32 query heads on 8 KV heads of 128. A call reads one layer; the
// calls of a round go through all layers, at least 640 MiB, so that every byte comes from memory. The plain read goes
// through the same memory in address order with the widest vectors that the processor has.

#include <kvcache/core/dtype.hpp>
#include <kvcache/host.hpp>
#include <kvcache/layout/paged_heads.hpp>

#include <sys/mman.h>

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

namespace {

using kvcache::Index;
using Layout = kvcache::PagedHeads<kvcache::bfloat16, 128, 16>;

constexpr int threads = 2;
constexpr std::int32_t kv_heads = 8;
constexpr std::int32_t query_heads = 32;
constexpr std::int32_t head_dim = 128;
constexpr std::int32_t page_tokens = 16;
constexpr std::size_t least_bytes = std::size_t{640} << 20;

#if defined(__x86_64__)
[[gnu::target("avx512f")]] std::uint64_t read_512(std::byte const* p, std::size_t bytes)
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

[[gnu::target("avx2")]] std::uint64_t read_256(std::byte const* p, std::size_t bytes)
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

std::uint64_t read_words(std::byte const* p, std::size_t bytes)
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

std::uint64_t plain_read(std::byte const* p, std::size_t bytes)
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

/// Anonymous memory on huge pages where the system has them, for both sides.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
  {
    if (data_ == MAP_FAILED) {
      throw std::runtime_error("P1: no memory for " + std::to_string(bytes >> 20) + " MiB");
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);
  }
  Memory(Memory const&) = delete;
  Memory& operator=(Memory const&) = delete;
  ~Memory() { ::munmap(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

/// One sequence over many layers, and a step that decodes its last token.
class Decode {
 public:
  explicit Decode(Index rows)
      : layers_(
          static_cast<std::int32_t>((least_bytes + layer_bytes(rows) - 1) / layer_bytes(rows))),
        pages_(static_cast<std::uint32_t>(rows / page_tokens)),
        memory_(page_bytes() * (pages_ + 1)),
        table_(pages_),
        token_index_(rows - 1),
        team_(threads)
  {
    std::mt19937_64 random(1);
    std::iota(table_.begin(), table_.end(), 1);
    std::shuffle(table_.begin(), table_.end(), random);
    for (std::int32_t l = 0; l < layers_; ++l) {
      layer_offset_.push_back(static_cast<std::uint32_t>(l * kv_heads));
    }
    fill(random);
    std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
    q_.resize(static_cast<std::size_t>(query_heads * head_dim));
    out_.resize(q_.size());
    for (float& x : q_) {
      x = round(uniform(random));
    }
    auto const made =
      plan_.make(view(), {.query_heads = query_heads, .kv_heads = kv_heads}, {.workers = threads});
    if (!made) {
      throw std::runtime_error(made.error().message().text);
    }
    scratch_.resize(plan_.scratch_floats());
    check();
  }

  [[nodiscard]] static double bytes(Index rows)
  {
    std::size_t const layers = (least_bytes + layer_bytes(rows) - 1) / layer_bytes(rows);
    return static_cast<double>(layers * layer_bytes(rows));
  }

  double read()
  {
    std::size_t const half = page_bytes() * pages_ / threads;
    return team_.run([&](int rank) {
      kvcache_bench::keep(
        plain_read(memory_.data() + page_bytes() + half * static_cast<std::size_t>(rank), half));
    });
  }

  double attend()
  {
    return kvcache_bench::seconds([&] {
      for (std::int32_t l = 0; l < layers_; ++l) {
        attend_layer(l);
      }
    });
  }

 private:
  static std::size_t layer_bytes(Index rows)
  {
    return static_cast<std::size_t>(rows) * kv_heads * head_dim * 2 * sizeof(kvcache::bfloat16);
  }
  [[nodiscard]] std::size_t page_bytes() const
  {
    return layer_bytes(page_tokens) * static_cast<std::size_t>(layers_);
  }
  static float round(float x)
  {
    using Traits = kvcache::ElementTraits<kvcache::bfloat16>;
    return Traits::to_float(Traits::from_float(x));
  }

  [[nodiscard]] kvcache::BatchView<Layout> view() const
  {
    return {.segment = {.base = memory_.data(),
                        .table = table_.data(),
                        .layer_offset = layer_offset_.data(),
                        .num_pages = pages_ + 1,
                        .row_stride = pages_,
                        .layer_stride = 0,
                        .seq_rows = 1,
                        .head_rows = 0,
                        .page_scale = static_cast<std::uint32_t>(layers_ * kv_heads),
                        .head_scale = 1,
                        .unit_bytes = Layout::Map{}.tile_bytes()},
            .map = {},
            .counts = counts_,
            .token_row = &token_row_,
            .token_index = &token_index_,
            .chunk_first = chunk_first_};
  }

  void fill(std::mt19937_64& random)
  {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<kvcache::bfloat16> pattern(1 << 20);
    for (kvcache::bfloat16& x : pattern) {
      x = kvcache::ElementTraits<kvcache::bfloat16>::from_float(uniform(random));
    }
    std::size_t const total = page_bytes() * (pages_ + 1);
    std::size_t const row = sizeof(kvcache::bfloat16) * head_dim;
    std::size_t const patterns = pattern.size() * sizeof(kvcache::bfloat16) / row;
    for (std::size_t i = 0; i < total; i += row) {  // a row of the pattern, not in step with pages
      std::memcpy(memory_.data() + i, pattern.data() + i / row * 7919 % patterns * head_dim, row);
    }
  }

  void attend_layer(std::int32_t layer)
  {
    kvcache::BatchView<Layout> const kv = view();
    kvcache::AttentionTensors const io{
      .q = q_.data(), .out = out_.data(), .lse = nullptr, .scratch = scratch_.data()};
    team_.run([&](int rank) {
      for (auto i = static_cast<std::size_t>(rank); i < plan_.num_items(); i += threads) {
        kvcache::attend(kv, plan_, layer, io, i);
      }
    });
    for (std::size_t i = 0; i < plan_.num_merges(); ++i) {
      kvcache::merge(plan_, io, i);
    }
  }

  /// Speed may not be bought with precision: the last layer against double.
  void check()
  {
    std::int32_t const layer = layers_ - 1;
    attend_layer(layer);
    kvcache::BatchView<Layout> const kv = view();
    double worst = 0;
    for (std::int32_t head = 0; head < query_heads; head += 5) {
      float const* const q = q_.data() + head * head_dim;
      std::vector<double> out(head_dim);
      double sum = 0;
      for (auto const tile : kv.tiles(layer, head / (query_heads / kv_heads), 0)) {
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
        double const got = static_cast<double>(out_[static_cast<std::size_t>(head) * head_dim + d]);
        worst = std::max(worst, std::abs(out[d] / sum - got));
      }
    }
    if (!(worst <= 1e-5)) {
      throw std::runtime_error("P1: off by " + std::to_string(worst) + " from double precision");
    }
  }

  std::int32_t layers_;
  std::uint32_t pages_;
  Memory memory_;
  std::vector<std::int32_t> table_;
  std::vector<std::uint32_t> layer_offset_;
  Index counts_[2] = {1, 1};
  std::uint32_t token_row_ = 0;
  Index token_index_;
  Index chunk_first_[2] = {0, 1};
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<float> scratch_;
  kvcache::AttentionPlan plan_;
  kvcache_bench::Team team_;
};

bool add(Index rows, double goal)
{
  std::string const set = name(kvcache::best_instruction_set());
  return kvcache_bench::add({.bar = "P1",
                             .what = "bf16 decode " + std::to_string(rows / 1024) +
                                     "k, page 16, random, 32:8x128, 2T " + set + " / plain read",
                             .goal = goal,
                             .threads = threads,
                             .bytes = Decode::bytes(rows),
                             .prepare = [rows]() -> std::function<kvcache_bench::Round()> {
                               auto const data = std::make_shared<Decode>(rows);
                               return [data]() -> kvcache_bench::Round {
                                 double const reference = data->read();
                                 return {.reference = reference, .subject = data->attend()};
                               };
                             }});
}

bool const registered = add(4096, 0.60) && add(16384, 0.60) && add(65536, 0.55);

}  // namespace
