// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/fences.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>

/// \file Idle spans that steps in flight may still read: a list a stream, and one for what several streams may read.
///
///   stream 1   [ leaf ] -> [ its parent ] -> [ leaf ]        its own steps may evict them, after all that the policy has
///   several    [ leaf ] -> [ its parent ]                    nobody may
///
/// The policy hears of a span when the last of these steps has retired. So what it names may leave at once, and a step that
/// takes pages, or is refused them, never passes over spans that it may not have. Children stand before their parents.
///
/// Cost: every call O(1), but for `reserve`; 12 bytes a span.

namespace kvcache::inline v0_1::detail {

/// See the file comment. `list` is a stream's number, or `Fences::many`.
class FencedSpans {
 public:
  /// Room for span ids below `spans`. **Errors** `std::bad_alloc`, nothing changed.
  void reserve(std::uint32_t spans)
  {
    if (spans > links_.size()) {
      links_.resize(spans);
    }
  }

  [[nodiscard]] bool contains(SpanId span) const noexcept
  {
    return span.value < links_.size() && links_[span.value].list != nil;
  }
  /// **Pre** it is in a list.
  [[nodiscard]] std::uint32_t list_of(SpanId span) const noexcept
  {
    return links_[span.value].list;
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] PageCount pages(std::uint32_t list) const noexcept { return pages_[list]; }
  /// Of all lists.
  [[nodiscard]] PageCount pages() const noexcept
  {
    PageCount sum = 0;
    for (PageCount const pages : pages_) {
      sum += pages;
    }
    return sum;
  }
  /// The first to leave; nil where there is none.
  [[nodiscard]] SpanId oldest(std::uint32_t list) const noexcept { return SpanId{oldest_[list]}; }
  /// The one right behind `span`.
  [[nodiscard]] SpanId newer(SpanId span) const noexcept
  {
    return SpanId{links_[span.value].newer};
  }

  /// `span`, of `pages`, stands right before `newer`; nil: at the end. **Pre** it is in no list.
  void put(SpanId span, std::uint32_t list, PageCount pages, SpanId newer = SpanId{nil}) noexcept
  {
    std::uint32_t const older = newer.value == nil ? newest_[list] : links_[newer.value].older;
    links_[span.value] = Link{.older = older, .newer = newer.value, .list = list};
    (older == nil ? oldest_[list] : links_[older].newer) = span.value;
    (newer.value == nil ? newest_[list] : links_[newer.value].older) = span.value;
    pages_[list] += pages;
    size_ += 1;
  }
  /// **Pre** it is in a list, and has `pages`.
  void remove(SpanId span, PageCount pages) noexcept
  {
    Link& link = links_[span.value];
    (link.older == nil ? oldest_[link.list] : links_[link.older].newer) = link.newer;
    (link.newer == nil ? newest_[link.list] : links_[link.newer].older) = link.older;
    pages_[link.list] -= pages;
    size_ -= 1;
    link = Link{};
  }
  /// The new span `head` was cut off the front of `tail`, and leaves right after it.
  void split(SpanId head, SpanId tail) noexcept { put(head, list_of(tail), 0, newer(tail)); }
  void grow(SpanId span, PageCount more) noexcept { pages_[list_of(span)] += more; }
  void shrink(SpanId span, PageCount fewer) noexcept { pages_[list_of(span)] -= fewer; }

 private:
  struct Link {
    std::uint32_t older = nil;
    std::uint32_t newer = nil;
    std::uint32_t list = nil;  // nil: in none
  };
  static constexpr std::uint32_t lists = Fences::many + 1;

  List<Link> links_;  // by span
  std::uint32_t oldest_[lists]{nil, nil, nil, nil, nil};
  std::uint32_t newest_[lists]{nil, nil, nil, nil, nil};
  PageCount pages_[lists]{};
  std::uint32_t size_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
