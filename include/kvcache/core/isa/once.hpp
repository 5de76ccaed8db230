// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstddef>
#include <cstdint>

/// \file Global memory that is read or written once: it takes no room in L1.

namespace kvcache::inline v0_1::isa {

/// `ld.global.nc.L1::no_allocate`: 1, 2 or 4 words.
/// **Pre** `global` is a multiple of their size, and nothing writes there while the kernel runs.
template <std::size_t Words>
KVCACHE_HOST_DEVICE inline void load_once(std::uint32_t (&d)[Words], void const* global)
{
  static_assert(Words == 1 || Words == 2 || Words == 4, "kvcache: a load takes 1, 2 or 4 words");
#if defined(__CUDA_ARCH__)
  auto const from = static_cast<std::uint64_t>(__cvta_generic_to_global(global));
  if constexpr (Words == 1) {
    asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(d[0]) : "l"(from));
  } else if constexpr (Words == 2) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "l"(from));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "l"(from));
  }
#else
  __builtin_memcpy(d, global, sizeof(d));
#endif
}

/// `st.global.L1::no_allocate`: 1, 2 or 4 words. **Pre** `global` is a multiple of their size.
template <std::size_t Words>
KVCACHE_HOST_DEVICE inline void store_once(void* global, std::uint32_t const (&s)[Words])
{
  static_assert(Words == 1 || Words == 2 || Words == 4, "kvcache: a store takes 1, 2 or 4 words");
#if defined(__CUDA_ARCH__)
  auto const to = static_cast<std::uint64_t>(__cvta_generic_to_global(global));
  if constexpr (Words == 1) {
    asm volatile("st.global.L1::no_allocate.b32 [%0], %1;" ::"l"(to), "r"(s[0]) : "memory");
  } else if constexpr (Words == 2) {
    asm volatile("st.global.L1::no_allocate.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(s[0]), "r"(s[1])
                 : "memory");
  } else {
    asm volatile("st.global.L1::no_allocate.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                 "r"(s[0]),
                 "r"(s[1]),
                 "r"(s[2]),
                 "r"(s[3])
                 : "memory");
  }
#else
  __builtin_memcpy(global, s, sizeof(s));
#endif
}

}  // namespace kvcache::inline v0_1::isa
