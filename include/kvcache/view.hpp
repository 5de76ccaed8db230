// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The device side: what an engine's own kernels include. Small headers of the standard library only.

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/segment_view.hpp>
#include <kvcache/view/team.hpp>
#include <kvcache/view/tile_view.hpp>

namespace kvcache::inline v0_1 {

static_assert(std::is_trivially_copyable_v<BatchView<PagedHeads<half, 64, 16>>>);
static_assert(std::is_standard_layout_v<BatchView<PagedHeads<half, 64, 16>>>);

}  // namespace kvcache::inline v0_1
