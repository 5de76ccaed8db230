// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/fenced_spans.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <span>

namespace kvcache::inline v0_1::detail {

/// Pages of idle spans that only steps of `stream` may still read, and that stay all the same: a step holds a page below them,
/// which it writes or copies from. `stuck` is for its use: it grows to a byte a span.
/// **Cost** O(pages that steps hold + spans above them). **Errors** `std::bad_alloc`.
template <class Tree>
[[nodiscard]] PageCount count_stuck(Tree const& tree,
                                    FencedSpans const& fenced,
                                    std::span<StepState const> steps,
                                    StreamId stream,
                                    List<bool>& stuck)
{
  if (stuck.capacity() < tree.span_id_bound()) {
    stuck.reserve(std::size_t{tree.span_id_bound()} * 2 + 1024);
  }
  stuck.clear();
  stuck.resize(tree.span_id_bound());
  PageCount sum = 0;
  auto const holds = [&](PageId page) {
    if (page == zero_page || !tree.contains(page)) {
      return;
    }
    for (SpanId at = tree.parent(tree.span_of(page)); at.value != nil && !stuck[at.value];
         at = tree.parent(at)) {
      stuck[at.value] = true;
      sum += fenced.contains(at) && fenced.list_of(at) == stream.value ? tree.size(at) : 0;
    }
  };
  for (StepState const& step : steps) {
    for (PageId const page : step.pending) {
      holds(page);
    }
    for (ChunkState const& c : step.chunks) {
      holds(c.copy_source);
    }
  }
  return sum;
}

}  // namespace kvcache::inline v0_1::detail
