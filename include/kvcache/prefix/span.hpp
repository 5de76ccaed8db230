// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace kvcache::inline v0_1::detail {

/// The tokens and page ids of one span, in one block of memory that it shares with nobody.
///
///   [ tokens of `capacity` pages | `capacity` page ids ]   the pages in use are `offset` .. `offset + size`
///
/// **Cost** 4 bytes a token and 4 a page, plus room to grow and what `split` and `pop_back` leave
/// behind: never more than four times what is in use.
class SpanBuffer {
 public:
  SpanBuffer() = default;
  SpanBuffer(SpanBuffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        capacity_(std::exchange(other.capacity_, 0)),
        offset_(std::exchange(other.offset_, 0)),
        size_(std::exchange(other.size_, 0))
  {
  }
  SpanBuffer& operator=(SpanBuffer&& other) noexcept
  {
    memory_ = std::move(other.memory_);
    capacity_ = std::exchange(other.capacity_, 0);
    offset_ = std::exchange(other.offset_, 0);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  /// Room for `capacity` pages of `page_tokens`. **Errors** `std::bad_alloc`.
  SpanBuffer(PageCount capacity, std::size_t page_tokens)
      : memory_(new std::byte[bytes_for(capacity, page_tokens)]), capacity_(capacity)
  {
  }

  [[nodiscard]] PageCount size() const noexcept { return size_; }
  [[nodiscard]] PageCount capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t bytes(std::size_t page_tokens) const noexcept
  {
    return bytes_for(capacity_, page_tokens);
  }

  [[nodiscard]] Token const* tokens(std::size_t page_tokens) const noexcept
  {
    return reinterpret_cast<Token const*>(memory_.get()) + offset_ * page_tokens;
  }
  [[nodiscard]] PageId const* pages(std::size_t page_tokens) const noexcept
  {
    return reinterpret_cast<PageId const*>(memory_.get() +
                                           capacity_ * page_tokens * sizeof(Token)) +
           offset_;
  }

  /// Appends `count` pages. **Pre** there is room.
  void append(Token const* tokens,
              PageId const* pages,
              PageCount count,
              std::size_t page_tokens) noexcept
  {
    if (count == 0) {
      return;  // a copy of nothing has no source
    }
    std::size_t const at = std::size_t{offset_} + size_;
    std::byte* const memory = memory_.get();
    std::memcpy(
      memory + at * page_tokens * sizeof(Token), tokens, count * page_tokens * sizeof(Token));
    std::memcpy(memory + capacity_ * page_tokens * sizeof(Token) + at * sizeof(PageId),
                pages,
                count * sizeof(PageId));
    size_ += count;
  }

  /// A copy of `count` pages from `first` on, with room for `capacity`. **Errors** `std::bad_alloc`.
  [[nodiscard]] SpanBuffer copy(PageCount first,
                                PageCount count,
                                PageCount capacity,
                                std::size_t page_tokens) const
  {
    SpanBuffer result(capacity, page_tokens);
    result.append(
      tokens(page_tokens) + first * page_tokens, pages(page_tokens) + first, count, page_tokens);
    return result;
  }

  /// Makes room for `count` more pages. **Cost** amortised O(count). **Errors** `std::bad_alloc`.
  void make_room(PageCount count, std::size_t page_tokens)
  {
    if (count > capacity_ - offset_ - size_) {
      *this = copy(0, size_, grown(size_ + count), page_tokens);
    }
  }

  /// Cuts the first `count` pages off and returns them. The larger part keeps the memory, unless more than
  /// half of that would lie unused. **Cost** O(size). **Errors** `std::bad_alloc`, nothing changed.
  [[nodiscard]] SpanBuffer split(PageCount count, std::size_t page_tokens)
  {
    PageCount const rest = size_ - count;
    bool const head_keeps = count > rest && count >= capacity_ / 2;
    bool const tail_keeps = !head_keeps && rest >= capacity_ / 2;
    SpanBuffer head = head_keeps ? SpanBuffer{} : copy(0, count, count, page_tokens);
    SpanBuffer tail = tail_keeps ? SpanBuffer{} : copy(count, rest, rest, page_tokens);
    if (head_keeps) {
      head = std::move(*this);
      head.size_ = count;
    }
    if (tail_keeps) {
      offset_ += count;
      size_ = rest;
    } else {
      *this = std::move(tail);
    }
    return head;
  }

  /// Forgets all but the first `left` pages, and gives memory back when little is left. Where there is no
  /// memory for the smaller copy it keeps the large one. **Cost** amortised O(pages forgotten).
  void pop_back(PageCount left, std::size_t page_tokens) noexcept
  {
    size_ = left;
    if (left <= (capacity_ - 1) / 4) {
      SpanBuffer small;
      small.memory_.reset(new (std::nothrow) std::byte[bytes_for(grown(left), page_tokens)]);
      if (small.memory_) {
        small.capacity_ = grown(left);
        small.append(tokens(page_tokens), pages(page_tokens), left, page_tokens);
        *this = std::move(small);
      }
    }
  }

 private:
  /// How large a buffer is made that holds `pages` and may grow.
  static PageCount grown(PageCount pages) noexcept { return pages + pages / 4 + 1; }

  static std::size_t bytes_for(PageCount capacity, std::size_t page_tokens) noexcept
  {
    return capacity * (page_tokens * sizeof(Token) + sizeof(PageId));
  }

  std::unique_ptr<std::byte[]> memory_;
  PageCount capacity_ = 0;
  PageCount offset_ = 0;
  PageCount size_ = 0;
};

/// A node of the tree: a run of pages that nothing branches out of. One cache line.
struct alignas(64) Span {
  SpanBuffer buffer;             // empty: the id is free
  PageCount first = 0;           // pages between the root and the span
  std::uint32_t parent = nil;    // span, nil at the root
  DomainId domain{};             //
  std::uint32_t children = 0;    // how many spans have it as parent
  std::uint32_t hash = 0;        // of the parent and the first page
  std::uint32_t next = nil;      // an older sibling with the same first token; or the next free id
  std::uint32_t previous = nil;  // a newer one
};
static_assert(sizeof(Span) == 64);

}  // namespace kvcache::inline v0_1::detail
