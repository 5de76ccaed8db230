// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The device's attention kernels on the executor, beside attention in double precision.

#include <kvcache/attention/device_attend.hpp>
#include <kvcache/attention/device_merge.hpp>
#include <kvcache/attention/device_plan.hpp>
#include <kvcache/attention/device_share.hpp>
#include <kvcache/core/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/catch.hpp"
#include "support/paged_pool.hpp"
#include "support/simt/simt.hpp"

namespace kvcache_test {

/// A `DeviceWork` in memory that held anything.
class WorkMemory {
 public:
  WorkMemory(kvcache::AttentionShape shape, kvcache::DeviceLimits limits)
      : lines_(kvcache::DeviceWork::bytes(shape, limits) / sizeof(Line))
  {
    std::memset(lines_.data(), 0xff, lines_.size() * sizeof(Line));
    auto made = kvcache::DeviceWork::make(lines_.front().bytes, shape, limits);
    REQUIRE(made.has_value());
    work_ = made.value();
  }
  [[nodiscard]] kvcache::DeviceWork const& work() const { return work_; }

 private:
  struct alignas(256) Line {
    std::byte bytes[256];
  };
  std::vector<Line> lines_;
  kvcache::DeviceWork work_{};
};

template <class Layout>
kvcache::DeviceLimits limits_of(PagedPool<Layout>& pool,
                                std::int32_t blocks,
                                kvcache::Index shared_rows = 0)
{
  return {.tokens = std::max(pool.num_tokens(), 1),
          .chunks = std::max(pool.view().num_chunks(), 1),
          .head_dim = pool.geometry().head_dim,
          .blocks = blocks,
          .shared_rows = shared_rows};
}

template <class Layout>
void plan_on_device(PagedPool<Layout>& pool,
                    kvcache::DeviceWork const& work,
                    simt::Options const& options)
{
  if (work.limits.shared_rows > 0) {
    using Share = kvcache::ShareRowsKernel<Layout>;
    simt::launch(1, Share::max_threads, Share::shared_bytes, Share{pool.view(), work}, options);
  }
  using Plan = kvcache::PlanWorkKernel<Layout>;
  simt::launch(1, Plan::max_threads, Plan::shared_bytes, Plan{pool.view(), work}, options);
}

/// Plan, attention and merge of one layer, with `q` in `Query` and results in `Out`.
template <int HeadDim, class Query, class Out, class Layout, class Bias = kvcache::NoBias>
Attended run_on_device(PagedPool<Layout>& pool,
                       kvcache::AttentionShape shape,
                       std::int32_t layer,
                       std::vector<float> const& q,
                       kvcache::DeviceLimits const& limits,
                       simt::Options const& options = {},
                       Bias const& bias = {})
{
  WorkMemory const memory(shape, limits);
  kvcache::DeviceWork const& work = memory.work();
  plan_on_device(pool, work, options);

  struct alignas(16) Piece {
    Query at[16 / sizeof(Query)];
  };
  struct alignas(16) OutPiece {
    Out at[16 / sizeof(Out)];
  };
  constexpr float unset = 77.0F;
  std::vector<Piece> queries(q.size() * sizeof(Query) / sizeof(Piece) + 1);
  std::vector<OutPiece> out(q.size() * sizeof(Out) / sizeof(OutPiece) + 1);
  Query* const query = queries.front().at;
  Out* const results = out.front().at;
  for (std::size_t i = 0; i < q.size(); ++i) {
    query[i] = kvcache::ElementTraits<Query>::from_float(q[i]);
    results[i] = kvcache::ElementTraits<Out>::from_float(unset);
  }
  Attended got{{}, std::vector<float>(q.size() / static_cast<std::size_t>(HeadDim), unset)};
  kvcache::DeviceTensors<Query, Out> const io{query, results, got.lse.data()};

  using Attend = kvcache::AttendKernel<Layout, HeadDim, Query, Out, Bias>;
  simt::launch(limits.blocks,
               Attend::max_threads,
               Attend::shared_bytes,
               Attend{pool.view(), work, layer, io, bias},
               options);
  using Merge = kvcache::MergePartsKernel<Layout, HeadDim, Query, Out>;
  Merge const merge{pool.view(), work, io};
  simt::launch(merge.blocks(), Merge::max_threads, Merge::shared_bytes, merge, options);
  if (limits.shared_rows > 0) {
    using Spans = kvcache::MergeSpansKernel<Layout, HeadDim, Query, Out>;
    simt::launch(limits.blocks, Spans::max_threads, Spans::shared_bytes, Spans{work, io}, options);
  }
  for (std::size_t i = 0; i < q.size(); ++i) {
    got.out.push_back(kvcache::ElementTraits<Out>::to_float(results[i]));
  }
  return got;
}

}  // namespace kvcache_test
