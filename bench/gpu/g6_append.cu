// SPDX-License-Identifier: Apache-2.0
// G6: a step's K and V, bfloat16, into their pages, K turned by RoPE: one launch a layer. 8 KV heads of 128.
//
//   4,096 tokens    bytes read and written, against a copy inside the device of as many
//   64 tokens       microseconds a launch

#include <kvcache/device/cuda_launch.cuh>
#include <kvcache/view/append_kernel.hpp>

#include <memory>
#include <stdexcept>
#include <vector>

#include "../harness.hpp"
#include "batch.cuh"

namespace {

using namespace kvcache_bench;
using Kernel = kvcache::AppendKernel<GpuLayout, kvcache::bfloat16>;
constexpr std::int32_t layers = 32;
constexpr std::int32_t kv_heads = 8;
constexpr std::int32_t threads = 256;

class Append {
 public:
  explicit Append(std::size_t tokens)
      : batch_([&] {
          BatchShape shape = BatchShape::uniform(tokens, 40);
          shape.layers = layers;
          return shape;
        }()),
        width_(2 * kv_heads * Batch::head_dim),
        kv_(static_cast<std::size_t>(layers) * tokens * static_cast<std::size_t>(width_))
  {
    fill_random<<<2048, 256>>>(kv_.data(), kv_.size(), 5);
    check(cudaDeviceSynchronize(), "fill");
    int processors = 0;
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "device");
    replay_ = std::make_unique<Replay>(stream_, [&](cudaStream_t stream) {
      for (std::int32_t layer = 0; layer < layers; ++layer) {
        auto const* const k =
          reinterpret_cast<kvcache::bfloat16 const*>(kv_.data()) +
          static_cast<std::size_t>(layer) * tokens * static_cast<std::size_t>(width_);
        Kernel const kernel{
          .kv = batch_.view(),
          .layer = layer,
          .k = {k, width_, kv_heads},
          .v = {k + width_ / 2, width_, kv_heads},
          .rope = kvcache::Rope::of(kvcache::RopeStyle::halves, Batch::head_dim, 1e4F)};
        check(kvcache::cuda_launch(
                kernel, 8 * processors, threads, kernel.shared_bytes(threads), stream),
              "append");
      }
    });
    check_values(tokens);
  }
  [[nodiscard]] double seconds() const { return replay_->seconds(); }
  [[nodiscard]] double bytes() const
  {
    return 2.0 * static_cast<double>(kv_.size()) * sizeof(std::uint16_t);
  }

 private:
  /// V is stored as it came: the last token's, of the last layer.
  void check_values(std::size_t tokens) const
  {
    std::vector<std::uint16_t> const kv = kv_.copy();
    std::vector<std::uint16_t> const stored = batch_.value_row(tokens - 1, layers - 1, 0);
    std::uint16_t const* const want = &kv[kv.size() - static_cast<std::size_t>(width_ / 2)];
    for (std::size_t d = 0; d < stored.size(); ++d) {
      if (stored[d] != want[d]) {
        throw std::runtime_error("G6: a row of V is not what was appended");
      }
    }
  }

  Stream stream_;
  Batch batch_;
  std::int64_t width_;
  DeviceArray<std::uint16_t> kv_;
  std::unique_ptr<Replay> replay_;
};

bool const registered =
  add({.bar = "G6",
       .what = "append of 4,096 tokens with RoPE / device copy",
       .goal = 0.80,
       .wall = false,
       .prepare = []() -> std::function<Round()> {
         auto const rate = std::make_shared<CopyRate>();
         auto const data = std::make_shared<Append>(4096);
         return [=]() -> Round {
           return {.reference = rate->seconds_for(data->bytes()), .subject = data->seconds()};
         };
       }}) &&
  add({.bar = "G6",
       .what = "append of 64 tokens with RoPE, us a layer",
       .goal = 3.0,
       .higher_is_better = false,
       .wall = false,
       .prepare = []() -> std::function<Round()> {
         auto const data = std::make_shared<Append>(64);
         return [=]() -> Round { return {.reference = 1e-6, .subject = data->seconds() / layers}; };
       }});

}  // namespace
