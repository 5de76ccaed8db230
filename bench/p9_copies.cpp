// SPDX-License-Identifier: Apache-2.0
// P9: page copies against memcpy of the same bytes, one thread each.
//
// A pool of 64 KiB pages (8 heads of 16 rows of 128 bfloat16) on caller's memory, at least 640 MiB. A plan of copies is
// applied as a worker applies it: checked, laid out, uploaded, launched on the host device. The memcpy is one call over
// the same memory, in address order.
//   copy     random pages to random pages: forks, compaction
//   gather   random pages to consecutive ones, which are contiguous bytes: what an export sends
//   dense    rows of a sequence in random pages to K and V of [heads][rows][head_dim], by `DenseRows`

#include <kvcache/core/dtype.hpp>
#include <kvcache/interop/dense.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "memory.hpp"

namespace {

using Layout = kvcache::PagedHeads<kvcache::bfloat16, 128, 16>;

constexpr std::size_t page_bytes = std::size_t{64} << 10;
constexpr std::int32_t heads = 8;
constexpr kvcache::Index page_tokens = 16;
constexpr std::size_t row_elements = 128;
constexpr std::uint32_t copies = 5120;  // 320 MiB are read, 320 MiB written

using kvcache_bench::Memory;

class Copies {
 public:
  /// Pages of the lower half go to the upper half, which is in order for a gather.
  explicit Copies(bool gather)
      : memory_(page_bytes * (2 * copies + 1)), pool_(make_pool(memory_.data()))
  {
    std::vector<std::uint32_t> sources(copies);
    std::vector<std::uint32_t> targets(copies);
    std::iota(sources.begin(), sources.end(), 1U);
    std::iota(targets.begin(), targets.end(), copies + 1);
    std::mt19937_64 random(1);
    std::shuffle(sources.begin(), sources.end(), random);
    if (!gather) {
      std::shuffle(targets.begin(), targets.end(), random);
    }
    for (std::size_t i = 0; i < copies; ++i) {
      plan_.copies.push_back(
        {kvcache::PageId{sources[i]}, kvcache::PageId{targets[i]}, page_tokens});
    }
    std::vector<std::uint64_t> words(page_bytes / sizeof(std::uint64_t));
    for (std::uint32_t page = 1; page <= 2 * copies; ++page) {
      for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = page * 0x9e3779b97f4a7c15ULL + i;
      }
      std::memcpy(page_at(page), words.data(), page_bytes);
    }
    plan_.tables.push_back({kvcache::RowId{0}, 0, copies, 0});
    for (std::uint32_t const source : sources) {
      plan_.ids.push_back(kvcache::PageId{source});
    }
    apply();
    for (kvcache::PageCopy const& copy : plan_.copies) {
      if (std::memcmp(page_at(copy.source.value), page_at(copy.target.value), page_bytes) != 0) {
        throw std::runtime_error("P9: page " + std::to_string(copy.target.value) +
                                 " is not what was copied to it");
      }
    }
  }

  double plain()
  {
    return kvcache_bench::seconds(
      [&] { std::memcpy(page_at(copies + 1), page_at(1), page_bytes * copies); });
  }
  double apply()
  {
    plan_.step.value += 1;
    return kvcache_bench::seconds([&] {
      if (!pool_.apply(plan_)) {
        throw std::runtime_error("P9: the pool refused the plan");
      }
    });
  }

  /// To the upper half as well: all K, then all V.
  double dense()
  {
    auto* const first = reinterpret_cast<kvcache::bfloat16*>(page_at(copies + 1));
    std::size_t const each = page_bytes * copies / (2 * sizeof *first);
    return kvcache_bench::seconds([&] {
      if (!kvcache::fill({.k = std::span(first, each),
                          .v = std::span(first + each, each),
                          .rows = copies * page_tokens},
                         pool_.view(),
                         0,
                         heads,
                         0)) {
        throw std::runtime_error("P9: the rows were refused");
      }
    });
  }
  void check_dense()
  {
    dense();
    std::size_t const run = page_bytes / (2 * heads);  // of K or V, in a page and in the copy
    for (std::size_t p = 0; p < copies; p += 7) {
      std::byte const* const page = page_at(plan_.ids[p].value);
      for (std::size_t i = 0; i < 2 * heads; ++i) {
        std::size_t const plane = (i % 2 * heads + i / 2) * copies * run;
        if (std::memcmp(page_at(copies + 1) + plane + p * run, page + i * run, run) != 0) {
          throw std::runtime_error("P9: rows of page " + std::to_string(p) + " are not the pool's");
        }
      }
    }
  }

 private:
  static kvcache::Pool<Layout> make_pool(std::byte* memory)
  {
    kvcache::ControlOptions options{
      .pages = 2 * copies, .page_tokens = page_tokens, .max_sequences = 1};
    kvcache::Error error = options.complete();
    kvcache::Geometry const geometry = Layout::complete(
      {.layers = 1, .kv_heads = heads, .head_dim = row_elements, .page_tokens = page_tokens},
      error);
    auto made = kvcache::Pool<Layout>::create(
      geometry, options, {.data = memory, .bytes = page_bytes * (2 * copies + 1)});
    if (!made || made->footprint().page_bytes() != page_bytes) {
      throw std::runtime_error("P9: there is no pool of pages of 64 KiB");
    }
    return std::move(*made);
  }
  [[nodiscard]] std::byte* page_at(std::uint32_t page) const
  {
    return memory_.data() + page_bytes * page;
  }

  Memory memory_;
  kvcache::Pool<Layout> pool_;
  kvcache::Plan plan_;
};

bool add(char const* what, bool gather, double goal)
{
  return kvcache_bench::add({.bar = "P9",
                             .what = what,
                             .goal = goal,
                             .bytes = 2.0 * page_bytes * copies,
                             .prepare = [gather]() -> std::function<kvcache_bench::Round()> {
                               auto const data = std::make_shared<Copies>(gather);
                               return [data]() -> kvcache_bench::Round {
                                 double const reference = data->plain();
                                 return {.reference = reference, .subject = data->apply()};
                               };
                             }});
}

bool add_dense()
{
  return kvcache_bench::add({.bar = "P9",
                             .what = "rows in random 64 KiB pages into dense K and V / memcpy",
                             .goal = 0.80,
                             .bytes = 2.0 * page_bytes * copies,
                             .prepare = []() -> std::function<kvcache_bench::Round()> {
                               auto const data = std::make_shared<Copies>(false);
                               data->check_dense();
                               return [data]() -> kvcache_bench::Round {
                                 double const reference = data->plain();
                                 return {.reference = reference, .subject = data->dense()};
                               };
                             }});
}

bool const registered =
  add("copy of 64 KiB pages, random to random / memcpy", false, 0.90) &&
  add("gather of random 64 KiB pages into contiguous bytes / memcpy", true, 0.80) && add_dense();

}  // namespace
