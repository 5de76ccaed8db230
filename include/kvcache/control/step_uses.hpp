// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file What steps in flight hold of each page, counted as it changes, and who writes it, so that nobody walks their chunks
/// to find out.
///
/// Cost: O(1) a hold; 12 bytes a page, of memory that is touched only where steps hold pages.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
class StepUses {
 public:
  explicit StepUses(PageCount pages) : uses_(std::size_t{pages} + 1) {}

  /// Steps hold pages at all.
  [[nodiscard]] bool any() const noexcept { return total_ != 0; }
  /// Holds of `page` that are steps': what sequences let go of, copies' sources, pending pages.
  [[nodiscard]] std::uint32_t of(PageId page) const noexcept { return uses_[page.value].holds; }
  void add(PageId page) noexcept
  {
    ++uses_[page.value].holds;
    ++total_;
  }
  void remove(PageId page) noexcept
  {
    --uses_[page.value].holds;
    --total_;
  }

  /// A chunk, by the places of its step and of itself.
  struct Chunk {
    std::uint32_t step;
    std::uint32_t chunk;
  };
  /// The last chunk that copies into `page`, or made it pending; it may be long gone, so who asks looks whether it does.
  [[nodiscard]] Chunk writer(PageId page) const noexcept { return uses_[page.value].writer; }
  void set_writer(std::span<PageId const> pages, Chunk writer) noexcept
  {
    for (PageId const page : pages) {
      uses_[page.value].writer = writer;
    }
  }

 private:
  struct Use {
    std::uint32_t holds;
    Chunk writer;
  };
  ZeroArray<Use> uses_;  // by page
  std::uint64_t total_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
