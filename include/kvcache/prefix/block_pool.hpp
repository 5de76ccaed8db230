// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Memory for the blocks of one tree: it comes from the heap seldom, and goes round inside.
///
///   arena         [ block ][ free ... ][ block ][ block ][ free ][ block ]
///                              |                            |
///   free lists    [ 2 | 3 | .. | 16 to 17 | 18 to 19 | .. | 32 to 35 | .. ]     by size; a bit each: is any there
///
///   no free block is large enough: blocks move down until one is
///                 [ block ][ block ][ block ][ free ......... ][ block ]
///
/// A cache that is full evicts a page for each one that it stores, so its blocks come and go for ever, in sizes that no
/// two prompts share. Here what one span gives back the next one takes. A block that is given back joins its free
/// neighbours; a block grows and shrinks where it lies if its neighbour lets it, and what it gives up in front or behind
/// is free at once. What then lies between the blocks in pieces too small is gathered: a hand goes round, as in SIEVE,
/// and moves the blocks that it meets down into the gap before them, until the gap is large enough. So the heap is
/// asked only where less than a sixteenth of all would stay free, or too little in each arena.
///
/// Memory that a tree once had it keeps: bounded by the pages of the pool, as all of the index is.
///
/// Cost: each call O(1), but `reserve` where it gathers: up to 16 bytes move for each one that is asked for, however large
/// the tree (two, in a replayed chat trace). Memory: 16 bytes a block and up to 15 that round its size, and a sixteenth
/// to an eighth of all that is free.
/// Source: Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004, for the lists.
/// Departures: one row of bits instead of two, blocks are cut in front too, and they move.

#include <kvcache/core/check.hpp>
#include <kvcache/prefix/block_layout.hpp>
#include <kvcache/prefix/block_lists.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace kvcache::inline v0_1::detail {

/// See the file comment. A block is named by where its memory begins; its owner hears where it moves.
class BlockPool {
 public:
  /// The first arena will hold `first_bytes`.
  explicit BlockPool(std::size_t first_bytes = 0) noexcept : first_bytes_(first_bytes) {}
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
      delete[] std::exchange(arenas_, arenas_->next)->memory;
    }
  }

  /// Makes sure that the next call, a `take` of up to so many bytes, cannot fail. Calls `moved(owner, memory)` for each
  /// block whose header ends at `memory` now.
  /// **Cost** see the file comment. **Errors** `std::bad_alloc`, nothing changed.
  template <class Moved>
  void reserve(std::size_t bytes, Moved&& moved)
  {
    std::size_t const units = units_for(bytes);
    if (lists_.find(units) == nullptr && !gather(units, moved)) {
      add_arena(units, moved);
    }
  }

  /// A block of `bytes`, aligned to 16. **Pre** `reserve` made room for it just now. **Cost** O(1).
  [[nodiscard]] std::byte* take(std::size_t bytes) noexcept
  {
    std::size_t const units = units_for(bytes);
    BlockHeader* const block = lists_.find(units);
    lists_.erase(block);
    ++blocks_;
    cut(block, units);
    return memory_of(block);
  }
  /// Who hears of its moves. **Pre** it is said of each block before the next `reserve`.
  static void set_owner(std::byte* memory, std::uint32_t owner) noexcept
  {
    header_of(memory)->owner = owner;
  }
  [[nodiscard]] static std::uint32_t owner(std::byte* memory) noexcept
  {
    return header_of(memory)->owner;
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
    BlockHeader* const block = header_of(memory);
    std::size_t const units = units_for(bytes + offset_of(memory));
    if (units > block->units()) {
      BlockHeader* const next = after(block);
      if (!next->is_free() || block->units() + next->units() < units) {
        return false;
      }
      lists_.erase(next);
      join(block, next);
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
  /// and nothing changed, where they, or the rest, are too few. The 28 bytes before the rest are written. **Cost** O(1).
  [[nodiscard]] std::byte* trim_front(std::byte* memory, std::size_t bytes) noexcept
  {
    BlockHeader* const front = header_of(memory);
    std::byte* const rest = memory + bytes;
    BlockHeader* const block = header_of(rest);
    auto const gone = static_cast<std::size_t>(block - front);
    if (block <= front || gone < fewest_units || front->units() - gone < fewest_units) {
      return nullptr;
    }
    *block = BlockHeader{static_cast<std::uint32_t>(front->units() - gone), 0, front->owner, 0};
    set_units(block, block->units());
    set_units(front, gone);
    release(front);
    return rest;
  }

  /// Of all arenas; how much of it is free; how many blocks are in use; how often one was moved.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t bytes_free() const noexcept { return lists_.units() * unit_bytes; }
  [[nodiscard]] std::size_t num_blocks() const noexcept { return blocks_; }
  [[nodiscard]] std::uint64_t num_moves() const noexcept { return moves_; }

  /// Walks all arenas and all lists. **Cost** O(blocks), for tests.
  [[nodiscard]] bool check_invariants() const noexcept
  {
    std::size_t used = 0;
    std::size_t free = 0;
    std::size_t free_units = 0;
    std::size_t bytes = 0;
    bool hand = hand_ == nullptr;
    for (BlockArena const* arena = arenas_; arena != nullptr; arena = arena->next) {
      BlockHeader const* block = arena->first();
      std::size_t before = 0;
      bool free_before = false;
      for (; !block->is_end(); block += block->units()) {
        if (block->before != before || (block->is_free() && free_before) ||
            block->units() < fewest_units) {
          return false;
        }
        free_before = block->is_free();
        before = block->units();
        used += block->is_free() ? 0U : 1U;
        free += block->is_free() ? 1U : 0U;
        free_units += block->is_free() ? block->units() : 0;
        hand = hand || block == hand_;
      }
      bytes += arena->bytes;
      if (block->before != before || static_cast<void const*>(block + 1) != arena) {
        return false;
      }
    }
    return hand && used == blocks_ && bytes == bytes_ && free_units == lists_.units() &&
           lists_.check(free);
  }

 private:
  static constexpr std::size_t most_arenas = 8;  // so that each is a large part of the whole

  /// Moves blocks down, from the hand on and round, until a free block has at least `units`. False where too little is
  /// free, or it lies in too many arenas.
  template <class Moved>
  [[nodiscard]] bool gather(std::size_t units, Moved& moved) noexcept
  {
    if (arenas_ == nullptr || lists_.units() < units + bytes_ / 16 / unit_bytes) {
      return false;
    }
    BlockHeader* at = hand_ != nullptr ? hand_ : arenas_->first();
    for (std::size_t ends = 0; ends <= num_arenas_;) {
      if (at->is_end()) {
        BlockArena* const next = arena_of(at)->next;
        at = (next != nullptr ? next : arenas_)->first();
        ++ends;
      } else if (at->is_free()) {
        lists_.erase(at);
        while (at->units() < units && !after(at)->is_end()) {
          at = move_down(at, moved);
        }
        lists_.insert(at);
        hand_ = at;
        if (at->units() >= units) {
          return true;
        }
        at = after(at);
      } else {
        at = after(at);
      }
    }
    return false;
  }
  /// The block behind the gap, which is on no list, moves to its beginning. Returns the gap, with what is free behind it.
  template <class Moved>
  BlockHeader* move_down(BlockHeader* gap, Moved& moved) noexcept
  {
    std::size_t const gap_units = gap->units();
    std::uint32_t const before = gap->before;
    BlockHeader* const from = after(gap);
    std::size_t const units = from->units();
    replace_hand(from, gap);
    std::memmove(static_cast<void*>(gap), from, units * unit_bytes);
    gap->before = before;
    BlockHeader* const rest = gap + units;
    *rest =
      BlockHeader{static_cast<std::uint32_t>(gap_units), static_cast<std::uint32_t>(units), 0, 0};
    set_units(rest, gap_units);
    if (BlockHeader* const next = after(rest); next->is_free()) {
      lists_.erase(next);
      join(rest, next);
    }
    ++moves_;
    moved(gap->owner, memory_of(gap));
    return rest;
  }

  /// Gives the block, which is in use, just `units`; what is too much of it is free.
  void cut(BlockHeader* block, std::size_t units) noexcept
  {
    std::size_t const has = block->units();
    if (has >= units + fewest_units) {
      set_units(block, units);
      BlockHeader* const rest = after(block);
      rest->size = static_cast<std::uint32_t>(has - units);
      after(rest)->before = rest->size;
      release(rest);
    }
  }
  /// The block is free, with its free neighbours.
  void release(BlockHeader* block) noexcept
  {
    if (BlockHeader* const next = after(block); next->is_free()) {
      lists_.erase(next);
      join(block, next);
    }
    if (BlockHeader* const before = block - block->before;
        block->before != 0 && before->is_free()) {
      lists_.erase(before);
      join(before, block);
      block = before;
    }
    lists_.insert(block);
  }
  /// The block takes over the one behind it. **Pre** neither is on a list.
  void join(BlockHeader* block, BlockHeader* next) noexcept
  {
    replace_hand(next, block);
    set_units(block, block->units() + next->units());
  }
  void replace_hand(BlockHeader const* gone, BlockHeader* by) noexcept
  {
    hand_ = hand_ == gone ? by : hand_;
  }

  /// A new arena with a free block of at least `units`. Where there are many, it takes over the smallest of them.
  template <class Moved>
  void add_arena(std::size_t units, Moved& moved)
  {
    BlockArena** const old = num_arenas_ < most_arenas ? nullptr : smallest();
    // Two of what it is made for: else what a trimmed block leaves is too little for one like it.
    std::size_t body = 2 * (units < most_units ? units : most_units);
    std::size_t const least = (arenas_ == nullptr ? first_bytes_ : bytes_ / 16) / unit_bytes;
    body = (body < least ? least : body) + (old == nullptr ? 0 : (*old)->bytes / unit_bytes);
    body = body < most_units ? body : most_units;
    std::size_t const bytes = body * unit_bytes + sizeof(BlockHeader) + sizeof(BlockArena);
    auto* const memory = units > most_units ? nullptr : new (std::nothrow) std::byte[bytes];
    if (memory == nullptr) {
      out_of_memory();
    }
    auto* block = new (memory) BlockHeader{static_cast<std::uint32_t>(body), 0, 0, 0};
    auto* const end = new (after(block)) BlockHeader{0, block->size, 0, 0};
    BlockArena* const gone = old == nullptr ? nullptr : std::exchange(*old, (*old)->next);
    arenas_ = new (end + 1) BlockArena{.next = arenas_, .memory = memory, .bytes = bytes};
    bytes_ += bytes;
    ++num_arenas_;
    if (gone != nullptr) {
      block = take_over(*gone, block, moved);
      bytes_ -= gone->bytes;
      --num_arenas_;
      delete[] gone->memory;
    }
    lists_.insert(block);
  }
  [[nodiscard]] BlockArena** smallest() noexcept
  {
    BlockArena** found = &arenas_;
    for (BlockArena** at = &arenas_; *at != nullptr; at = &(*at)->next) {
      found = (*at)->bytes < (*found)->bytes ? at : found;
    }
    return found;
  }
  /// All blocks of `gone` move to the gap, which is on no list. Returns what is left of it.
  template <class Moved>
  BlockHeader* take_over(BlockArena& gone, BlockHeader* gap, Moved& moved) noexcept
  {
    hand_ = nullptr;
    for (BlockHeader* from = gone.first(); !from->is_end(); from = after(from)) {
      if (from->is_free()) {
        lists_.erase(from);
        continue;
      }
      std::size_t const left = gap->units() - from->units();
      std::uint32_t const before = gap->before;
      std::memcpy(static_cast<void*>(gap), from, from->units() * unit_bytes);
      gap->before = before;
      BlockHeader* const rest = after(gap);
      *rest = BlockHeader{0, gap->size, 0, 0};
      set_units(rest, left);
      ++moves_;
      moved(gap->owner, memory_of(gap));
      gap = rest;
    }
    return gap;
  }

  void swap(BlockPool& other) noexcept
  {
    std::swap(arenas_, other.arenas_);
    std::swap(lists_, other.lists_);
    std::swap(hand_, other.hand_);
    std::swap(num_arenas_, other.num_arenas_);
    std::swap(bytes_, other.bytes_);
    std::swap(first_bytes_, other.first_bytes_);
    std::swap(blocks_, other.blocks_);
    std::swap(moves_, other.moves_);
  }

  BlockArena* arenas_ = nullptr;
  BlockLists lists_;
  BlockHeader* hand_ = nullptr;  // where blocks were moved last
  std::size_t num_arenas_ = 0;
  std::size_t bytes_ = 0;
  std::size_t first_bytes_ = 0;
  std::size_t blocks_ = 0;
  std::uint64_t moves_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
