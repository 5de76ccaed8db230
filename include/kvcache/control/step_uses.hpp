// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>

/// \file What steps in flight hold of each page, counted as it changes, so that nobody walks their chunks to find out.
///
/// Cost: O(1) a hold; 8 bytes a page, of memory that is touched only where steps hold pages.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
class StepUses {
 public:
  explicit StepUses(PageCount pages) : uses_(std::size_t{pages} + 1) {}

  /// Steps hold pages at all.
  [[nodiscard]] bool any() const noexcept { return total_ != 0; }
  /// Holds of `page` that are steps': what sequences let go of, copies' sources, pending pages.
  [[nodiscard]] std::uint32_t of(PageId page) const noexcept { return uses_[page.value]; }
  void add(PageId page) noexcept
  {
    ++uses_[page.value];
    ++total_;
  }
  void remove(PageId page) noexcept
  {
    --uses_[page.value];
    --total_;
  }

 private:
  ZeroArray<std::uint32_t> uses_;  // by page
  std::uint64_t total_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
