// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/first_room.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/prefix/block_pool.hpp>
#include <kvcache/prefix/span.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace kvcache::inline v0_1::detail {

/// All spans of a tree, by id; an id that was given back is the next to be used.
class SpanStore {
 public:
  /// For a tree of up to `pages`, each of which may be a span; blocks have room to grow, and gaps between them.
  SpanStore(PageCount pages, std::size_t page_tokens) noexcept
      : blocks_(first_room(pages) * (SpanBuffer::bytes_for(1, page_tokens) * 5 / 4 + unit_bytes)),
        first_room_(first_room(pages)),
        page_tokens_(page_tokens)
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
      spans_.push_reserved();
    } else {
      free_ = spans_[id].next;
    }
    spans_[id].buffer = std::move(buffer);
    spans_[id].buffer.set_owner(id);
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

  /// Memory for the next buffer, of `pages`. Buffers may move. **Errors** `std::bad_alloc`, nothing changed that shows.
  void reserve_buffer(PageCount pages)
  {
    blocks_.reserve(SpanBuffer::bytes_for(pages, page_tokens_),
                    [this](std::uint32_t id, std::byte* at) { spans_[id].buffer.follow(at); });
  }
  /// **Pre** `reserve_buffer` made room for it right before.
  [[nodiscard]] SpanBuffer make_buffer(PageCount pages) noexcept
  {
    return {blocks_, pages, page_tokens_};
  }
  /// Makes room for `count` more pages in span `id`.
  /// **Cost** amortised O(count). **Errors** `std::bad_alloc`, nothing changed that shows.
  void make_room(std::uint32_t id, PageCount count)
  {
    SpanBuffer& buffer = spans_[id].buffer;
    if (PageCount const wanted = buffer.wanted(blocks_, count, page_tokens_); wanted != 0) {
      reserve_buffer(wanted);
      buffer.move(blocks_, wanted, page_tokens_);
      buffer.set_owner(id);
    }
  }
  /// Cuts the first `count` pages off span `id` and returns them, for `use`.
  /// **Pre** `0 < count < size`. **Cost** O(size). **Errors** `std::bad_alloc`, nothing changed that shows.
  [[nodiscard]] SpanBuffer split(std::uint32_t id, PageCount count)
  {
    SpanBuffer& buffer = spans_[id].buffer;
    PageCount const rest = buffer.size() - count;
    reserve_buffer(count < rest ? count : rest);
    SpanBuffer head = buffer.split(blocks_, count, page_tokens_);
    buffer.set_owner(id);
    return head;
  }
  /// Forgets all but the first `left` pages of span `id`. **Pre** `0 < left`. **Cost** amortised O(pages forgotten).
  void pop_back(std::uint32_t id, PageCount left) noexcept
  {
    spans_[id].buffer.pop_back(blocks_, left, page_tokens_);
  }

  /// Where the memory of the buffers comes from.
  [[nodiscard]] BlockPool const& blocks() const noexcept { return blocks_; }

  [[nodiscard]] std::size_t bytes() const noexcept
  {
    return spans_.capacity() * sizeof(Span) + blocks_.bytes();
  }

 private:
  BlockPool blocks_;
  List<Span> spans_;
  std::uint32_t free_ = nil;  // the latest id given back; Span::next leads to the one before
  std::uint32_t size_ = 0;
  std::size_t first_room_;
  std::size_t page_tokens_;
};

}  // namespace kvcache::inline v0_1::detail
