// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/gather.hpp>
#include <kvcache/view/segment_view.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>

/// \file Fills pages with zeros, in stream order: for kernels that load whole pages and multiply what they mask by 0.

namespace kvcache::inline v0_1 {

/// All layers and heads of `pages[0 .. count[0] - 1]`, in pieces of 16 bytes. Ids that are no page of the pool are skipped,
/// and so is page 0, which is zeros. **Cost** each byte written once. Any grid; no shared memory.
/// **Pre** all heads share the segment's pages; `layer_bytes` is `Footprint::layer_bytes()`.
struct ZeroPagesKernel {
  SegmentView segment;
  std::int32_t layers;
  std::uint64_t layer_bytes;
  std::int32_t const* pages;
  Index const* count;  ///< on the device, so that a captured launch serves any list
  Index most;          ///< places of `pages`; a larger count is cut

  static constexpr std::int32_t max_threads = 256;  ///< of a block

  [[nodiscard]] static constexpr std::size_t shared_bytes(std::int32_t) { return 0; }
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    Lanes const team{block.thread(), block.threads()};
    std::int64_t const listed = *count < most ? *count : most;
    for (std::int64_t i = block.index(); i < listed * layers; i += block.blocks()) {
      auto const page = static_cast<std::uint32_t>(pages[i / layers]);
      if (page == 0 || page >= segment.num_pages) {
        continue;
      }
      auto* const to = reinterpret_cast<detail::Fragment*>(
        segment.tile(static_cast<std::uint32_t>(i % layers), 0, page));
      for (auto f = static_cast<std::uint64_t>(team.rank()); f < layer_bytes / sizeof *to;
           f += static_cast<std::uint64_t>(team.size())) {
        to[f] = {};
      }
    }
  }
};

}  // namespace kvcache::inline v0_1
