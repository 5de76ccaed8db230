// SPDX-License-Identifier: Apache-2.0
// The kernels of an element type of an engine, once for all attention tests.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/attention_checks.hpp"

namespace kvcache_test {

template Attended run_plan(PagedPool<kvcache::PagedHeads<engine::Bf16>>&,
                           kvcache::AttentionPlan const&,
                           std::int32_t,
                           std::vector<float> const&,
                           Path,
                           std::vector<std::size_t>);

}  // namespace kvcache_test
