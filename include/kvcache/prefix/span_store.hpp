// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/first_room.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/block_pool.hpp>
#include <kvcache/prefix/span.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvcache::inline v0_1::detail {

/// All spans of a tree, by id; an id that was given back is the next to be used.
class SpanStore {
 public:
  /// For a tree of up to `pages`, each of which may be a span; blocks have room to grow, and gaps between them.
  SpanStore(PageCount pages, std::size_t page_tokens) noexcept
      : blocks_(2 * first_room(pages) * SpanBuffer::bytes_for(1, page_tokens)),
        first_room_(first_room(pages))
  {
  }

  [[nodiscard]] Span& operator[](std::uint32_t id) noexcept { return spans_[id]; }
  [[nodiscard]] Span const& operator[](std::uint32_t id) const noexcept { return spans_[id]; }

  /// All ids in use are below it.
  [[nodiscard]] std::uint32_t bound() const noexcept
  {
    return static_cast<std::uint32_t>(spans_.size());
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] bool in_use(std::uint32_t id) const noexcept
  {
    return spans_[id].buffer.size() != 0;
  }
  [[nodiscard]] bool in_domain(std::uint32_t id, DomainId domain) const noexcept
  {
    return in_use(id) && spans_[id].domain == domain;
  }

  /// The id that `use` will take. Until then nothing changed.
  /// **Cost** amortised O(1). **Errors** `std::bad_alloc`, nothing changed.
  [[nodiscard]] std::uint32_t reserve_one()
  {
    if (free_ == nil && spans_.size() == spans_.capacity()) {
      spans_.reserve(spans_.empty() ? first_room_ : spans_.size() + spans_.size() / 2 + 8);
    }
    return free_ != nil ? free_ : bound();
  }

  /// Takes the id that `reserve_one` named, for a span that holds `buffer`. References stay good.
  Span& use(std::uint32_t id, SpanBuffer buffer) noexcept
  {
    if (id == bound()) {
      spans_.emplace_back();
    } else {
      free_ = spans_[id].next;
    }
    spans_[id].buffer = std::move(buffer);
    ++size_;
    return spans_[id];
  }

  /// Frees the span and its memory.
  void release(std::uint32_t id) noexcept
  {
    spans_[id].buffer.give_back(blocks_);
    spans_[id] = Span{};
    spans_[id].next = free_;
    free_ = id;
    --size_;
  }

  /// Where the memory of the buffers comes from.
  [[nodiscard]] BlockPool& blocks() noexcept { return blocks_; }
  [[nodiscard]] BlockPool const& blocks() const noexcept { return blocks_; }

  [[nodiscard]] std::size_t bytes() const noexcept
  {
    return spans_.capacity() * sizeof(Span) + blocks_.bytes();
  }

 private:
  BlockPool blocks_;
  std::vector<Span> spans_;
  std::uint32_t free_ = nil;  // the latest id given back; Span::next leads to the one before
  std::uint32_t size_ = 0;
  std::size_t first_room_;
};

}  // namespace kvcache::inline v0_1::detail
