// SPDX-License-Identifier: Apache-2.0
// G7: page copies of a plan, as forks and compaction ask for, against one copy inside the device of the same bytes.
//
// 32 layers of 8 KV heads of 128 bfloat16, pages in random order. Page-first, a page is one extent of 2 MiB (pages of 16);
// layer-first, it has a fragment in each layer, of 4 KiB (pages of 1).

#include <kvcache/cuda.cuh>
#include <kvcache/pool/pool.hpp>

#include <memory>
#include <stdexcept>
#include <string>

#include "../harness.hpp"
#include "batch.cuh"

namespace {

using namespace kvcache_bench;
using Layout = kvcache::PagedHeads<kvcache::bfloat16, 128>;

class PageCopies {
 public:
  PageCopies(std::int32_t page_tokens, kvcache::Arrangement arrangement, std::uint32_t copies)
      : copies_(copies), pool_(make_pool(page_tokens, arrangement, copies))
  {
    std::vector<std::uint32_t> ids(2 * copies);
    std::iota(ids.begin(), ids.end(), 1U);
    std::mt19937_64 random(1);
    std::shuffle(ids.begin(), ids.end(), random);
    for (std::uint32_t i = 0; i < copies; ++i) {
      plan_.copies.push_back(
        {kvcache::PageId{ids[i]}, kvcache::PageId{ids[copies + i]}, page_tokens});
    }
    checked(pool_.reserve(ref()), "reserve");
    checked(pool_.apply({}, ref()), "apply");  // the stream follows the pool's memory
    auto* const words = reinterpret_cast<std::uint16_t*>(pool_.page(kvcache::PageId{1}));
    fill_random<<<2048, 256, 0, stream_.get()>>>(
      words, (pool_.arena_bytes() - pool_.footprint().page_bytes()) / 2, 3);
    plan_.step = kvcache::StepId{1};
    checked(pool_.apply(plan_, ref()), "apply");
    stream_.wait();
    check_pages();
    replay_ =
      std::make_unique<Replay>(stream_, [this](cudaStream_t) { pool_.launch(plan_.slot, ref()); });
  }

  [[nodiscard]] double seconds() const { return replay_->seconds(); }
  /// Read and written.
  [[nodiscard]] double bytes() const
  {
    return 2.0 * static_cast<double>(pool_.footprint().page_bytes()) * copies_;
  }

 private:
  kvcache::StreamRef ref() const { return {.handle = stream_.get()}; }
  kvcache::Pool<Layout> make_pool(std::int32_t page_tokens,
                                  kvcache::Arrangement arrangement,
                                  std::uint32_t copies)
  {
    kvcache::ControlOptions options{
      .pages = 2 * copies, .page_tokens = page_tokens, .max_sequences = 1};
    kvcache::Error error = options.complete();
    kvcache::Geometry const geometry = Layout::complete({.layers = 32,
                                                         .kv_heads = 8,
                                                         .head_dim = 128,
                                                         .page_tokens = page_tokens,
                                                         .arrangement = arrangement},
                                                        error);
    return checked(kvcache::Pool<Layout>::create(geometry, options, {}, &device_), "pool");
  }
  /// Some of the pages, all layers.
  void check_pages() const
  {
    std::size_t const bytes = pool_.footprint().layer_bytes();
    std::vector<char> source(bytes);
    std::vector<char> target(bytes);
    for (std::size_t i = 0; i < plan_.copies.size(); i += 1 + plan_.copies.size() / 16) {
      for (std::int32_t layer = 0; layer < 32; ++layer) {
        check(cudaMemcpy(source.data(),
                         pool_.page(plan_.copies[i].source, layer),
                         bytes,
                         cudaMemcpyDeviceToHost),
              "copy");
        check(cudaMemcpy(target.data(),
                         pool_.page(plan_.copies[i].target, layer),
                         bytes,
                         cudaMemcpyDeviceToHost),
              "copy");
        if (source != target) {
          throw std::runtime_error("G7: a page is not what was copied to it");
        }
      }
    }
  }

  Stream stream_;
  kvcache::CudaDevice device_;
  double copies_;
  kvcache::Pool<Layout> pool_;
  kvcache::Plan plan_;
  std::unique_ptr<Replay> replay_;
};

bool add_copies(char const* what,
                std::int32_t page_tokens,
                kvcache::Arrangement arrangement,
                std::uint32_t copies,
                double goal)
{
  return add({.bar = "G7",
              .what = what,
              .goal = goal,
              .wall = false,
              .prepare = [=]() -> std::function<Round()> {
                auto const rate = std::make_shared<CopyRate>();
                auto const data = std::make_shared<PageCopies>(page_tokens, arrangement, copies);
                return [=]() -> Round {
                  return {.reference = rate->seconds_for(data->bytes()),
                          .subject = data->seconds()};
                };
              }});
}

bool const registered = add_copies("1,024 pages of 2 MiB, random to random / device copy",
                                   16,
                                   kvcache::Arrangement::page_first,
                                   1024,
                                   0.90) &&
                        add_copies("4,096 pages of 32 fragments of 4 KiB / device copy",
                                   1,
                                   kvcache::Arrangement::layer_first,
                                   4096,
                                   0.90);

}  // namespace
