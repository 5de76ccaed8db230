// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/prefix/block_layout.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// The free blocks of a `BlockPool`, in a list for each class of sizes.
///
///   [ 2 | 3 | .. | 16 to 17 | 18 to 19 | .. | 32 to 35 | .. ]      a bit each: is any there
///
/// **Cost** every call O(1): `find` looks at a few blocks of the class and at 4 words of bits.
class BlockLists {
 public:
  /// Of all blocks.
  [[nodiscard]] std::size_t units() const noexcept { return units_; }

  /// A block of at least `units`, or null.
  [[nodiscard]] BlockHeader* find(std::size_t units) const noexcept
  {
    if (units > most_units) {
      return nullptr;
    }
    std::size_t const wanted = block_class(units);
    BlockHeader* block = lists_[wanted];
    for (int seen = 0; block != nullptr && seen < looks; ++seen) {
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

  /// Marks the block free, and lists it.
  void insert(BlockHeader* block) noexcept
  {
    std::size_t const c = block_class(block->units());
    units_ += block->units();
    block->size |= BlockHeader::free_bit;
    BlockLinks* const links = links_of(block);
    links->next = lists_[c];
    links->previous = nullptr;
    if (links->next != nullptr) {
      links_of(links->next)->previous = block;
    }
    lists_[c] = block;
    any_[c / 64] |= std::uint64_t{1} << c % 64;
  }
  /// Takes a block off its list: it is in use.
  void erase(BlockHeader* block) noexcept
  {
    block->size &= ~BlockHeader::free_bit;
    units_ -= block->units();
    BlockLinks const links = *links_of(block);
    if (links.next != nullptr) {
      links_of(links.next)->previous = links.previous;
    }
    if (links.previous != nullptr) {
      links_of(links.previous)->next = links.next;
    } else {
      std::size_t const c = block_class(block->units());
      lists_[c] = links.next;
      any_[c / 64] &= ~(std::uint64_t{links.next == nullptr} << c % 64);
    }
  }

  /// There are `count` blocks, each free and in its list. **Cost** O(blocks), for tests.
  [[nodiscard]] bool check(std::size_t count) const noexcept
  {
    for (std::size_t c = 0; c < num_block_classes; ++c) {
      if (((any_[c / 64] >> c % 64 & 1) != 0) != (lists_[c] != nullptr)) {
        return false;
      }
      for (BlockHeader const* at = lists_[c]; at != nullptr; at = links_of(at)->next, --count) {
        if (count == 0 || !at->is_free() || block_class(at->units()) != c) {
          return false;
        }
      }
    }
    return count == 0;
  }

 private:
  static constexpr std::size_t words = (num_block_classes + 63) / 64;
  static constexpr int looks = 4;  // at blocks of the wanted class, which may be too small

  BlockHeader* lists_[num_block_classes]{};
  std::uint64_t any_[words]{};
  std::size_t units_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
