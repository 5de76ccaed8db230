// SPDX-License-Identifier: Apache-2.0
// The kernels of one element type, once for all attention tests.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/attention_checks.hpp"

namespace kvcache_test {

template Attended run_plan(PagedPool<kvcache::PagedHeads<kvcache::bfloat16>>&,
                           kvcache::AttentionPlan const&,
                           std::int32_t,
                           std::vector<float> const&,
                           Path,
                           std::vector<std::size_t>);

}  // namespace kvcache_test

template void kvcache::attend(kvcache::BatchView<kvcache::PagedHeads<kvcache::bfloat16>> const&,
                              kvcache::AttentionPlan const&,
                              std::int32_t,
                              kvcache::AttentionTensors const&,
                              std::size_t,
                              kvcache::NoBias const&) noexcept;
