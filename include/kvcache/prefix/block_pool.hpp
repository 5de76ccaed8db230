// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Memory for the blocks of one tree: it comes from the heap seldom, and goes round inside.
///
///   arena   [h| block ....... ][h| free .............. ][h| block ][h| block ...... ][h]     h: a header of 8 bytes
///                                  |                                                 the last one ends the arena
///   free lists by size class     [ 3 | 4 | .. | 16 to 17 | 18 to 19 | .. | 32 to 35 | .. ]   a bit each: is any there
///
/// A cache that is full evicts a page for each one that it stores, so its blocks come and go for ever, in sizes that no
/// two prompts share. Here what one span gives back the next one takes, and the heap is asked only for more than the tree
/// ever held. A block that is given back joins its free neighbours, so small ones make large ones again. A block grows
/// and shrinks where it lies if its neighbour lets it, and what it gives up in front or behind is free at once.
///
/// Memory that a tree once had it keeps: bounded by the pages of the pool, as all of the index is. A new arena is as large
/// as all before it, up to 64 KiB, and then an eighth of them, so that no more than that lies ready for nothing.
///
/// Cost: every call O(1) but for what the heap takes; 8 bytes a block and up to 7 that round its size, and what lies
/// between blocks too small for those who ask (a fifth of what is used, in a cache of prompts of all lengths).
/// Source: Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004. Departures: one row
/// of bits instead of two, the class of the wanted size itself is looked at first, and blocks are cut in front too.

#include <kvcache/core/check.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace kvcache::inline v0_1::detail {

/// See the file comment. A block is named by where its memory begins.
class BlockPool {
 public:
  BlockPool() = default;
  /// The first arena will hold `first_bytes`.
  explicit BlockPool(std::size_t first_bytes) noexcept : next_bytes_(first_bytes) {}
  BlockPool(BlockPool&& other) noexcept { swap(other); }
  BlockPool& operator=(BlockPool&& other) noexcept
  {
    swap(other);
    return *this;
  }
  BlockPool(BlockPool const&) = delete;
  BlockPool& operator=(BlockPool const&) = delete;
  /// Frees the arenas, whatever blocks are in use.
  ~BlockPool()
  {
    while (arenas_ != nullptr) {
      std::byte* const memory = reinterpret_cast<std::byte*>(std::exchange(arenas_, arenas_->next));
      delete[] memory;
    }
  }

  /// Makes sure that the next call, a `take` of up to so many bytes, cannot fail.
  /// **Cost** asks the heap where no free block is large enough. **Errors** `std::bad_alloc`, nothing changed.
  void reserve(std::size_t bytes)
  {
    std::size_t const units = units_for(bytes);
    if (find(units) == nullptr) {
      add_arena(units);
    }
  }

  /// A block of `bytes`, aligned to 8. **Pre** `reserve` made room for it just now. **Cost** O(1).
  [[nodiscard]] std::byte* take(std::size_t bytes) noexcept
  {
    std::size_t const units = units_for(bytes);
    Header* const block = find(units);
    unlist(block);
    ++blocks_;
    cut(block, units);
    return memory_of(block);
  }

  /// Gives `memory` back. **Cost** O(1).
  void give(std::byte* memory) noexcept
  {
    --blocks_;
    release(header_of(memory));
  }

  /// Makes the block hold `bytes` where it lies; false, and nothing changed, where what follows it is in use. **Cost** O(1).
  [[nodiscard]] bool extend(std::byte* memory, std::size_t bytes) noexcept
  {
    Header* const block = header_of(memory);
    std::size_t const units = units_for(bytes + offset_of(memory));
    if (units > block->units()) {
      Header* const next = after(block);
      if (!next->is_free() || block->units() + next->units() < units) {
        return false;
      }
      unlist(next);
      set_units(block, block->units() + next->units());
      cut(block, units);
    }
    return true;
  }

  /// Frees what lies behind the first `bytes` of the block. **Cost** O(1).
  void trim(std::byte* memory, std::size_t bytes) noexcept
  {
    cut(header_of(memory), units_for(bytes + offset_of(memory)));
  }

  /// Frees the first `bytes` of the block, a multiple of 4, and returns where the rest lies now, which has not moved; null,
  /// and nothing changed, where they, or the rest, are too few. The 8 bytes before the rest are written. **Cost** O(1).
  [[nodiscard]] std::byte* trim_front(std::byte* memory, std::size_t bytes) noexcept
  {
    Header* const front = header_of(memory);
    std::byte* const rest = memory + bytes;
    Header* const block = header_of(rest);
    auto const gone = static_cast<std::size_t>(block - front);
    if (block <= front || gone < fewest_units || front->units() - gone < fewest_units) {
      return nullptr;
    }
    *block = Header{static_cast<std::uint32_t>(front->units() - gone), 0};
    set_units(front, gone);
    set_units(block, block->units());
    release(front);
    return rest;
  }

  /// Of all arenas; how much of it is free; how many blocks are in use.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t bytes_free() const noexcept { return free_units_ * sizeof(Header); }
  [[nodiscard]] std::size_t num_blocks() const noexcept { return blocks_; }

  /// Walks all arenas and all lists. **Cost** O(blocks), for tests.
  [[nodiscard]] bool check_invariants() const noexcept
  {
    std::size_t used = 0;
    std::size_t free = 0;
    std::size_t free_units = 0;
    std::size_t bytes = 0;
    for (Arena const* arena = arenas_; arena != nullptr; arena = arena->next) {
      Header const* block = first_of(arena);
      std::size_t before = 0;
      bool free_before = false;
      for (; block->units() != 0; block += block->units()) {
        if (block->before != before || (block->is_free() && free_before) ||
            block->units() < fewest_units) {
          return false;
        }
        free_before = block->is_free();
        before = block->units();
        used += block->is_free() ? 0U : 1U;
        free += block->is_free() ? 1U : 0U;
        free_units += block->is_free() ? block->units() : 0;
      }
      bytes += arena->bytes;
      if (block->before != before || block->is_free() || end_of(arena) != block + 1) {
        return false;
      }
    }
    for (std::size_t c = 0; c < num_classes; ++c) {
      if (((any_[c / 64] >> c % 64 & 1) != 0) != (lists_[c] != nullptr)) {
        return false;
      }
      for (Header const* at = lists_[c]; at != nullptr; at = links_of(at)->next, --free) {
        if (free == 0 || !at->is_free() || class_of(at->units()) != c) {
          return false;
        }
      }
    }
    return used == blocks_ && free == 0 && free_units == free_units_ && bytes == bytes_;
  }

 private:
  /// Sizes are counted in headers: units of 8 bytes.
  struct Header {
    std::uint32_t size;  // in units, the header included, and as the highest bit whether it is free
    std::uint32_t before;  // units of the block before it, 0 for the first of an arena

    [[nodiscard]] std::size_t units() const noexcept { return size & ~free_bit; }
    [[nodiscard]] bool is_free() const noexcept { return (size & free_bit) != 0; }
  };
  /// What a free block holds.
  struct Links {
    Header* next;
    Header* previous;
  };
  struct Arena {
    Arena* next;
    std::size_t bytes;
  };
  static constexpr std::uint32_t free_bit = 1U << 31;
  static constexpr std::size_t fewest_units = (sizeof(Header) + sizeof(Links)) / sizeof(Header);
  static constexpr std::size_t most_units = (std::size_t{1} << 30) - 1;
  static constexpr std::size_t many_bytes = 1 << 16;  // up to which they double
  static constexpr std::size_t num_classes = 224;
  static constexpr std::size_t looks = 4;  // at blocks of the wanted class that may be too small
  static_assert(sizeof(Header) == 8 && sizeof(Arena) % sizeof(Header) == 0);

  /// Up to 15 units each size has its class; above, each doubling has 8.
  [[nodiscard]] static std::size_t class_of(std::size_t units) noexcept
  {
    if (units < 16) {
      return units;
    }
    auto const shift = static_cast<std::size_t>(std::bit_width(units)) - 4;
    return 8 * (shift + 1) + (units >> shift) - 8;
  }
  [[nodiscard]] static std::size_t units_for(std::size_t bytes) noexcept
  {
    std::size_t const units = 1 + (bytes + sizeof(Header) - 1) / sizeof(Header);
    return units < fewest_units ? fewest_units : units;
  }

  /// A block whose front was freed may begin 4 bytes behind its header's end.
  [[nodiscard]] static std::size_t offset_of(std::byte const* memory) noexcept
  {
    return reinterpret_cast<std::uintptr_t>(memory) % sizeof(Header);
  }
  [[nodiscard]] static Header* header_of(std::byte* memory) noexcept
  {
    return reinterpret_cast<Header*>(memory - offset_of(memory)) - 1;
  }
  [[nodiscard]] static std::byte* memory_of(Header* block) noexcept
  {
    return reinterpret_cast<std::byte*>(block + 1);
  }
  [[nodiscard]] static Links* links_of(Header* block) noexcept
  {
    return reinterpret_cast<Links*>(block + 1);
  }
  [[nodiscard]] static Links const* links_of(Header const* block) noexcept
  {
    return reinterpret_cast<Links const*>(block + 1);
  }
  [[nodiscard]] static Header* after(Header* block) noexcept { return block + block->units(); }
  [[nodiscard]] static Header const* first_of(Arena const* arena) noexcept
  {
    return reinterpret_cast<Header const*>(arena + 1);
  }
  [[nodiscard]] static Header const* end_of(Arena const* arena) noexcept
  {
    return reinterpret_cast<Header const*>(reinterpret_cast<std::byte const*>(arena) +
                                           arena->bytes);
  }

  /// A block in use has this size now, and its neighbour knows it.
  static void set_units(Header* block, std::size_t units) noexcept
  {
    block->size = static_cast<std::uint32_t>(units);
    after(block)->before = block->size;
  }

  /// A free block of at least `units`, or null.
  [[nodiscard]] Header* find(std::size_t units) const noexcept
  {
    if (units > most_units) {
      return nullptr;
    }
    std::size_t const wanted = class_of(units);
    Header* block = lists_[wanted];
    for (std::size_t seen = 0; block != nullptr && seen < looks; ++seen) {
      if (block->units() >= units) {
        return block;
      }
      block = links_of(block)->next;
    }
    std::size_t word = (wanted + 1) / 64;
    std::uint64_t bits = word < words ? any_[word] >> (wanted + 1) % 64 << (wanted + 1) % 64 : 0;
    while (bits == 0 && ++word < words) {
      bits = any_[word];
    }
    return bits == 0 ? nullptr
                     : lists_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
  }

  /// Gives the block, which is in use, just `units`; what is too much of it is free.
  void cut(Header* block, std::size_t units) noexcept
  {
    std::size_t const has = block->units();
    if (has >= units + fewest_units) {
      set_units(block, units);
      Header* const rest = after(block);
      rest->size = static_cast<std::uint32_t>(has - units);
      after(rest)->before = rest->size;
      release(rest);
    }
  }

  /// The block is free, with its free neighbours.
  void release(Header* block) noexcept
  {
    std::size_t units = block->units();
    if (Header* const next = after(block); next->is_free()) {
      unlist(next);
      units += next->units();
    }
    if (Header* const before = block - block->before; block->before != 0 && before->is_free()) {
      unlist(before);
      units += before->units();
      block = before;
    }
    set_units(block, units);
    list(block);
  }

  /// Marks the block free, and lists it.
  void list(Header* block) noexcept
  {
    std::size_t const c = class_of(block->units());
    free_units_ += block->units();
    block->size |= free_bit;
    Links* const links = links_of(block);
    links->next = lists_[c];
    links->previous = nullptr;
    if (links->next != nullptr) {
      links_of(links->next)->previous = block;
    }
    lists_[c] = block;
    any_[c / 64] |= std::uint64_t{1} << c % 64;
  }
  /// Takes a free block off its list: it is in use.
  void unlist(Header* block) noexcept
  {
    block->size &= ~free_bit;
    free_units_ -= block->units();
    Links const links = *links_of(block);
    if (links.next != nullptr) {
      links_of(links.next)->previous = links.previous;
    }
    if (links.previous != nullptr) {
      links_of(links.previous)->next = links.next;
    } else {
      std::size_t const c = class_of(block->units());
      lists_[c] = links.next;
      any_[c / 64] &= ~(std::uint64_t{links.next == nullptr} << c % 64);
    }
  }

  /// A new arena with one free block of at least `units`.
  void add_arena(std::size_t units)
  {
    constexpr std::size_t ends = sizeof(Arena) + sizeof(Header);
    if (units > most_units) {
      out_of_memory();
    }
    // Twice: else what a trimmed block leaves is too little for one like it.
    std::size_t body = 2 * units * sizeof(Header);
    body = (body < next_bytes_ ? next_bytes_ : body) / sizeof(Header) * sizeof(Header);
    body = body < most_units * sizeof(Header) ? body : most_units * sizeof(Header);
    auto* const memory = new (std::nothrow) std::byte[body + ends];
    if (memory == nullptr) {
      out_of_memory();
    }
    arenas_ = new (memory) Arena{.next = arenas_, .bytes = body + ends};
    auto* const block = reinterpret_cast<Header*>(arenas_ + 1);
    *block = Header{static_cast<std::uint32_t>(body / sizeof(Header)), 0};
    *after(block) = Header{0, block->size};
    bytes_ += body + ends;
    next_bytes_ = bytes_ < many_bytes ? bytes_ : many_bytes < bytes_ / 8 ? bytes_ / 8 : many_bytes;
    list(block);
  }

  void swap(BlockPool& other) noexcept
  {
    std::swap(arenas_, other.arenas_);
    std::swap(lists_, other.lists_);
    std::swap(any_, other.any_);
    std::swap(bytes_, other.bytes_);
    std::swap(next_bytes_, other.next_bytes_);
    std::swap(free_units_, other.free_units_);
    std::swap(blocks_, other.blocks_);
  }

  static constexpr std::size_t words = (num_classes + 63) / 64;

  Arena* arenas_ = nullptr;
  Header* lists_[num_classes]{};  // the free blocks of each class
  std::uint64_t any_[words]{};    // which of these hold any
  std::size_t bytes_ = 0;
  std::size_t next_bytes_ = 1024;  // of the next arena, at least
  std::size_t free_units_ = 0;
  std::size_t blocks_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
