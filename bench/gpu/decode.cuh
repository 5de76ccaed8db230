// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A step's attention over all layers of a `Batch`, as a captured graph, checked against double precision.

#include <kvcache/attention/device.cuh>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "batch.cuh"
#include "timing.cuh"

namespace kvcache_bench {

/// See the file comment. The kernels that plan, once a step, and the launches of each layer are in the graph.
class DecodeStep {
 public:
  /// `shared_rows` as in `DeviceLimits`.
  explicit DecodeStep(BatchShape const& shape, kvcache::Index shared_rows = 0) : batch_(shape)
  {
    kvcache::AttentionShape const heads{.query_heads = batch_.query_heads(),
                                        .kv_heads = shape.kv_heads};
    auto const tokens = static_cast<kvcache::Index>(shape.rows.size());
    kvcache::DeviceLimits const limits{
      .tokens = tokens,
      .chunks = tokens,
      .head_dim = Batch::head_dim,
      .blocks =
        checked(kvcache::attention_blocks<GpuLayout, float, float>(Batch::head_dim), "blocks"),
      .shared_rows = shared_rows};
    memory_ = std::make_unique<DeviceArray<std::byte>>(kvcache::DeviceWork::bytes(heads, limits));
    kvcache::DeviceWork const work =
      checked(kvcache::DeviceWork::make(memory_->data(), heads, limits), "work");
    replay_ = std::make_unique<Replay>(stream_, [&](cudaStream_t stream) {
      auto const view = batch_.view();
      checked(kvcache::plan_attention(view, work, stream), "plan_attention");
      for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
        checked(
          kvcache::attend(view,
                          work,
                          layer,
                          kvcache::DeviceTensors<float, float>{batch_.q(), batch_.out(), nullptr},
                          stream),
          "attend");
      }
    });
    batch_.check_results(shape.layers - 1);
  }

  [[nodiscard]] double seconds() const { return replay_->seconds(); }
  [[nodiscard]] Batch const& batch() const { return batch_; }

 private:
  Stream stream_;
  Batch batch_;
  std::unique_ptr<DeviceArray<std::byte>> memory_;
  std::unique_ptr<Replay> replay_;
};

}  // namespace kvcache_bench
