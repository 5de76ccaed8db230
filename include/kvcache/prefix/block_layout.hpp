// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

/// \file What an arena of a `BlockPool` looks like.
///
///   [h| block ....... ][h| free .............. ][h| block ][h| block ...... ][h] arena      h: a header of 16 bytes
///                                                                            the last one has no units
///
/// Sizes are counted in units of 16 bytes, headers included. What lies behind a block is found by its size, what lies
/// before it by the size that its header knows of the block before.

namespace kvcache::inline v0_1::detail {

/// Stands before each block, and at the end of each arena.
struct BlockHeader {
  static constexpr std::uint32_t free_bit = 1U << 31;

  std::uint32_t size;    // in units, and as the highest bit whether the block is free
  std::uint32_t before;  // units of the block before it, 0 for the first of an arena
  std::uint32_t owner;   // of a block in use
  std::uint32_t unused;

  [[nodiscard]] std::size_t units() const noexcept { return size & ~free_bit; }
  [[nodiscard]] bool is_free() const noexcept { return (size & free_bit) != 0; }
  [[nodiscard]] bool is_end() const noexcept { return size == 0; }
};
static_assert(sizeof(BlockHeader) == 16);

inline constexpr std::size_t unit_bytes = sizeof(BlockHeader);

/// What a free block holds.
struct BlockLinks {
  BlockHeader* next;
  BlockHeader* previous;
};
static_assert(sizeof(BlockLinks) <= unit_bytes);

inline constexpr std::size_t fewest_units = 2;
inline constexpr std::size_t most_units = (std::size_t{1} << 30) - 1;

/// Lies behind the blocks, so that who comes to their end finds it.
struct BlockArena {
  BlockArena* next;
  std::byte* memory;
  std::size_t bytes;

  [[nodiscard]] BlockHeader* first() noexcept { return reinterpret_cast<BlockHeader*>(memory); }
  [[nodiscard]] BlockHeader const* first() const noexcept
  {
    return reinterpret_cast<BlockHeader const*>(memory);
  }
};

[[nodiscard]] inline BlockHeader* after(BlockHeader* block) noexcept
{
  return block + block->units();
}
/// The arena of a last header.
[[nodiscard]] inline BlockArena* arena_of(BlockHeader* end) noexcept
{
  return reinterpret_cast<BlockArena*>(end + 1);
}
[[nodiscard]] inline BlockLinks* links_of(BlockHeader* block) noexcept
{
  return reinterpret_cast<BlockLinks*>(block + 1);
}
[[nodiscard]] inline BlockLinks const* links_of(BlockHeader const* block) noexcept
{
  return reinterpret_cast<BlockLinks const*>(block + 1);
}

[[nodiscard]] inline std::byte* memory_of(BlockHeader* block) noexcept
{
  return reinterpret_cast<std::byte*>(block + 1);
}
/// A block whose front was cut off may begin up to 12 bytes behind its header's end.
[[nodiscard]] inline std::size_t offset_of(std::byte const* memory) noexcept
{
  return reinterpret_cast<std::uintptr_t>(memory) % unit_bytes;
}
[[nodiscard]] inline BlockHeader* header_of(std::byte* memory) noexcept
{
  return reinterpret_cast<BlockHeader*>(memory - offset_of(memory)) - 1;
}

/// A block in use has this size now, and its neighbour knows it.
inline void set_units(BlockHeader* block, std::size_t units) noexcept
{
  block->size = static_cast<std::uint32_t>(units);
  after(block)->before = block->size;
}

/// Of a block that holds `bytes`.
[[nodiscard]] inline std::size_t units_for(std::size_t bytes) noexcept
{
  std::size_t const units = 1 + (bytes + unit_bytes - 1) / unit_bytes;
  return units < fewest_units ? fewest_units : units;
}

inline constexpr std::size_t num_block_classes = 224;

/// Up to 15 units each size has its class; above, each doubling has 8.
[[nodiscard]] inline std::size_t block_class(std::size_t units) noexcept
{
  if (units < 16) {
    return units;
  }
  auto const shift = static_cast<std::size_t>(std::bit_width(units)) - 4;
  return 8 * (shift + 1) + (units >> shift) - 8;
}

}  // namespace kvcache::inline v0_1::detail
