// SPDX-License-Identifier: Apache-2.0
// G10: what a decode step of 256 sequences costs before its kernels can run: microseconds of the host, and of the GPU.
//
// Host: prepare and commit through the facade, the step's upload and launches included, the wait between them not. GPU: the
// upload and the four launches of such a step, as a captured graph. Absolute bars: the reference is one microsecond.

#include <kvcache/cuda.cuh>
#include <kvcache/kvcache.hpp>
#include <kvcache/pool/pool.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../harness.hpp"
#include "timing.cuh"

namespace {

using namespace kvcache_bench;
using Layout = kvcache::PagedHeads<kvcache::bfloat16, 128, 16>;
using Cache = kvcache::KVCache<Layout>;

constexpr std::uint32_t sequences = 256;
constexpr int steps = 128;  // of a round
constexpr kvcache::Index prompt_rows = 64;
constexpr kvcache::Geometry geometry{.layers = 32, .kv_heads = 8};

class CacheSteps {
 public:
  CacheSteps()
      : cache_(checked(Cache::create(geometry,
                                     {.pages = sequences * 16,
                                      .max_sequences = sequences,
                                      .max_step_tokens = sequences * (prompt_rows + 16),
                                      .device = &device_})))
  {
  }

  /// Of the host, for all steps.
  double run()
  {
    restart();
    std::vector<kvcache::Token> tokens(sequences, 7);
    std::vector<Cache::SequenceChunk> chunks;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      chunks.push_back({open_[i], std::span(tokens).subspan(i, 1)});
    }
    double spent = 0;
    for (int n = 0; n < steps; ++n) {
      using Clock = std::chrono::steady_clock;
      auto const begin = Clock::now();
      auto step = cache_.prepare(chunks, stream());
      spent += std::chrono::duration<double>(Clock::now() - begin).count();
      if (!step) {
        throw std::runtime_error("G10: a step found no room");
      }
      stream_.wait();  // commit says that the kernels have run
      bool committed = false;
      spent += kvcache_bench::seconds([&] { committed = step->commit().has_value(); });
      if (!committed) {
        throw std::runtime_error("G10: a commit was refused");
      }
    }
    return spent;
  }

  /// Of the GPU, for one step.
  double replay()
  {
    if (!replay_) {
      restart();
      std::vector<kvcache::Token> const token(1, 7);
      auto step = checked(cache_.begin(stream()));
      for (kvcache::Sequence const& sequence : open_) {
        if (!step.add(sequence, {.tokens = token})) {
          throw std::runtime_error("G10: a token found no room");
        }
      }
      checked(step.submit());
      kvcache::ControlOptions options{.pages = sequences * 16,
                                      .page_tokens = 16,
                                      .max_sequences = sequences,
                                      .max_step_tokens = sequences * (prompt_rows + 16)};
      kvcache::Error error = options.complete();
      worker_ = std::make_unique<kvcache::Pool<Layout>>(checked(
        kvcache::Pool<Layout>::create(Layout::complete(geometry, error), options, {}, &device_)));
      checked(worker_->reserve(stream()));
      stream_.wait();
      replay_ = std::make_unique<Replay>(
        stream_, [&](cudaStream_t) { checked(worker_->apply(step.plan(), stream())); });
      stream_.wait();
      checked(step.commit());
    }
    return replay_->seconds();
  }

 private:
  kvcache::StreamRef stream() const { return {.handle = stream_.get()}; }
  void restart()
  {
    open_.clear();
    cache_.forget({});
    auto step = checked(cache_.begin(stream()));
    for (std::uint32_t i = 0; i < sequences; ++i) {
      std::vector<kvcache::Token> prompt(static_cast<std::size_t>(prompt_rows) + i % 16);
      std::iota(prompt.begin(), prompt.end(), static_cast<kvcache::Token>(i * 1000));
      open_.push_back(checked(cache_.open({.tokens = prompt})));
      if (!step.add(open_.back(), {.tokens = prompt})) {
        throw std::runtime_error("G10: a prompt found no room");
      }
    }
    checked(step.submit());
    stream_.wait();
    checked(step.commit());
  }

  Stream stream_;
  kvcache::CudaDevice device_;
  Cache cache_;
  std::vector<kvcache::Sequence> open_;
  std::unique_ptr<kvcache::Pool<Layout>> worker_;
  std::unique_ptr<Replay> replay_;
};

bool add_step(char const* what, double goal, double (*measure)(CacheSteps&))
{
  return add({.bar = "G10",
              .what = what,
              .goal = goal,
              .higher_is_better = false,
              .wall = false,
              .prepare = [measure]() -> std::function<Round()> {
                auto const data = std::make_shared<CacheSteps>();
                return [=]() -> Round { return {.reference = 1e-6, .subject = measure(*data)}; };
              }});
}

bool const registered = add_step("decode step of 256 sequences, the host, us",
                                 10.0,
                                 [](CacheSteps& data) { return data.run() / steps; }) &&
                        add_step("decode step of 256 sequences, upload and launches on the GPU, us",
                                 4.0,
                                 [](CacheSteps& data) { return data.replay(); });

}  // namespace
