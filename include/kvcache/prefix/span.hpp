// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/block_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kvcache::inline v0_1::detail {

/// The tokens and page ids of one span, in one block of a `BlockPool`. It does not know its pool: who owns both gives
/// the block back.
///
///   [ tokens of `size` pages | room | `size` page ids | room ]        room: for `capacity - size` pages more
///
/// **Cost** 4 bytes a token and 4 a page, plus room to grow and what `pop_back` leaves behind: never more than half as
/// much again as is in use, and a page.
class SpanBuffer {
 public:
  SpanBuffer() = default;
  SpanBuffer(SpanBuffer&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        capacity_(std::exchange(other.capacity_, 0)),
        size_(std::exchange(other.size_, 0))
  {
  }
  SpanBuffer& operator=(SpanBuffer&& other) noexcept
  {
    memory_ = std::exchange(other.memory_, nullptr);
    capacity_ = std::exchange(other.capacity_, 0);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  /// Room for `capacity` pages of `page_tokens`. **Pre** `pool.reserve(bytes_for(...))` went right before.
  SpanBuffer(BlockPool& pool, PageCount capacity, std::size_t page_tokens) noexcept
      : memory_(pool.take(bytes_for(capacity, page_tokens))), capacity_(capacity)
  {
  }

  [[nodiscard]] static std::size_t bytes_for(PageCount capacity, std::size_t page_tokens) noexcept
  {
    return capacity * (page_tokens * sizeof(Token) + sizeof(PageId));
  }

  [[nodiscard]] PageCount size() const noexcept { return size_; }
  [[nodiscard]] PageCount capacity() const noexcept { return capacity_; }

  [[nodiscard]] Token const* tokens() const noexcept
  {
    return reinterpret_cast<Token const*>(memory_);
  }
  [[nodiscard]] PageId const* pages(std::size_t page_tokens) const noexcept
  {
    return reinterpret_cast<PageId const*>(ids(page_tokens));
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
    std::memcpy(
      memory_ + size_ * page_tokens * sizeof(Token), tokens, count * page_tokens * sizeof(Token));
    std::memcpy(ids(page_tokens) + size_ * sizeof(PageId), pages, count * sizeof(PageId));
    size_ += count;
  }

  /// How many pages the buffer should have room for, to take `count` more; 0: it has. Made in place where what lies behind
  /// is free, then nothing is left to do either.
  [[nodiscard]] PageCount wanted(BlockPool& pool, PageCount count, std::size_t page_tokens) noexcept
  {
    if (count <= capacity_ - size_) {
      return 0;
    }
    PageCount const pages = size_ + count + (size_ + count) / 4 + 1;
    if (memory_ != nullptr && pool.extend(memory_, bytes_for(pages, page_tokens))) {
      set_capacity(pages, page_tokens);
      return 0;
    }
    return pages;
  }
  /// Moves to a block with room for `capacity`. **Pre** memory for it was reserved right before.
  void move(BlockPool& pool, PageCount capacity, std::size_t page_tokens) noexcept
  {
    SpanBuffer larger = copy(pool, 0, size_, capacity, page_tokens);
    give_back(pool);
    *this = std::move(larger);
  }
  /// Its block begins at `memory` now, as `BlockPool::reserve` says.
  void follow(std::byte* memory) noexcept { memory_ = memory + offset_of(memory_); }
  void set_owner(std::uint32_t owner) const noexcept { BlockPool::set_owner(memory_, owner); }
  [[nodiscard]] std::uint32_t owner() const noexcept { return BlockPool::owner(memory_); }

  /// Cuts the first `count` pages off and returns them. The smaller part moves, and the larger keeps what it fills of the
  /// memory. **Pre** `0 < count < size()`; memory for the smaller part was reserved right before. **Cost** O(size).
  [[nodiscard]] SpanBuffer split(BlockPool& pool, PageCount count, std::size_t page_tokens) noexcept
  {
    PageCount const rest = size_ - count;
    if (count < rest) {
      SpanBuffer head = copy(pool, 0, count, count, page_tokens);
      drop_front(pool, count, page_tokens);
      return head;
    }
    SpanBuffer tail = copy(pool, count, rest, rest, page_tokens);
    size_ = count;
    shrink(pool, page_tokens);
    return std::exchange(*this, std::move(tail));
  }

  /// Forgets all but the first `left` pages, and gives memory back when much is unused.
  /// **Pre** `0 < left`. **Cost** amortised O(pages forgotten).
  void pop_back(BlockPool& pool, PageCount left, std::size_t page_tokens) noexcept
  {
    size_ = left;
    if (capacity_ - left > left / 2) {
      shrink(pool, page_tokens);
    }
  }

  /// Holds nothing any more.
  void give_back(BlockPool& pool) noexcept
  {
    if (memory_ != nullptr) {
      pool.give(memory_);
    }
    *this = SpanBuffer{};
  }

 private:
  [[nodiscard]] std::byte* ids(std::size_t page_tokens) const noexcept
  {
    return memory_ + capacity_ * page_tokens * sizeof(Token);
  }

  /// A copy of `count` pages from `first` on. **Pre** memory for it was reserved right before.
  [[nodiscard]] SpanBuffer copy(BlockPool& pool,
                                PageCount first,
                                PageCount count,
                                PageCount capacity,
                                std::size_t page_tokens) const noexcept
  {
    SpanBuffer result(pool, capacity, page_tokens);
    result.append(tokens() + first * page_tokens, pages(page_tokens) + first, count, page_tokens);
    return result;
  }

  /// The page ids move to where they belong in a block for `capacity` pages. **Pre** both places are in the block.
  void set_capacity(PageCount capacity, std::size_t page_tokens) noexcept
  {
    std::byte* const from = ids(page_tokens);
    capacity_ = capacity;
    if (size_ != 0) {
      std::memmove(ids(page_tokens), from, size_ * sizeof(PageId));
    }
  }

  /// Keeps just the memory that is in use.
  void shrink(BlockPool& pool, std::size_t page_tokens) noexcept
  {
    set_capacity(size_, page_tokens);
    pool.trim(memory_, bytes_for(size_, page_tokens));
  }

  /// Forgets the first `count` pages, and their memory.
  void drop_front(BlockPool& pool, PageCount count, std::size_t page_tokens) noexcept
  {
    std::size_t const dropped = count * page_tokens * sizeof(Token);
    PageCount const rest = size_ - count;
    std::byte const* const from = ids(page_tokens) + count * sizeof(PageId);
    if (std::byte* const kept = pool.trim_front(memory_, dropped); kept != nullptr) {
      memory_ = kept;
    } else {
      std::memmove(memory_, memory_ + dropped, rest * page_tokens * sizeof(Token));
    }
    size_ = capacity_ = rest;
    std::memmove(ids(page_tokens), from, rest * sizeof(PageId));
    pool.trim(memory_, bytes_for(rest, page_tokens));
  }

  std::byte* memory_ = nullptr;
  PageCount capacity_ = 0;
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
