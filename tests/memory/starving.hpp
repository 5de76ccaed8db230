// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Memory that runs out: which allocation of the program fails, and whether more is refused after it.
///
/// `control_test.cpp` replaces the global `operator new` for all tests of this folder, and the linker sends `calloc`
/// (of which large tables are made) through `allocate` too. Nothing fails until a test says so.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace kvcache_test {

inline std::int64_t allocations_left = -1;  ///< negative: as many as there are
inline bool stays_out = true;               ///< once it ran out, until the test says otherwise
inline bool ran_out = false;
inline std::uint64_t allocations = 0;   ///< asked for, in all
inline std::int64_t blocks_in_use = 0;  ///< from `operator new`, not freed yet

inline bool may_allocate() noexcept
{
  ++allocations;
  if (allocations_left < 0 || allocations_left-- > 0) {
    return true;
  }
  allocations_left = stays_out ? 0 : -1;
  ran_out = true;
  return false;
}

inline void* allocate(std::size_t bytes, std::size_t alignment = 0) noexcept
{
  if (!may_allocate()) {
    return nullptr;
  }
  std::size_t const size = bytes == 0 ? 1 : bytes;
  void* const memory =
    alignment == 0 ? std::malloc(size)
                   : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  blocks_in_use += memory != nullptr ? 1 : 0;
  return memory;
}

}  // namespace kvcache_test
