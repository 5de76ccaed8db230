// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

/// \file A copy of host memory that goes past the caches.
///
/// A plain store to a line that is not in the cache reads the line first, so a copy moves three bytes where two would
/// do. `memcpy` knows that of one large call; of many calls with a page each it sees only pages, which are small.
/// Streaming stores write whole lines. What was copied is then not in a cache: right for more than a cache holds.

namespace kvcache::inline v0_1::detail {

/// Copies of so many bytes together are more than is read again soon, or than a cache keeps.
inline constexpr std::size_t least_streamed_bytes = std::size_t{8} << 20;

/// Copies `bytes` that do not overlap. `next` is what will be read after them, or `source`: the processor's own
/// prefetching does not know of it. After the last of several calls comes `stream_fence`.
inline void stream_copy(std::byte* target,
                        std::byte const* source,
                        std::size_t bytes,
                        std::byte const* next) noexcept
{
#if defined(__x86_64__) && defined(__GNUC__)
  using Vector = long long __attribute__((vector_size(16)));
  constexpr std::size_t line = 64;
  constexpr std::size_t ahead = 16 * line;  // 8 to 64 lines measure alike
  std::size_t const head = (line - reinterpret_cast<std::uintptr_t>(target) % line) % line;
  if (bytes >= head + line) {
    std::memcpy(target, source, head);
    std::size_t at = head;
    for (; at + line <= bytes; at += line) {
      std::size_t const soon = at + ahead;
      __builtin_prefetch(soon < bytes ? source + soon : next + (soon - bytes));
      Vector part[line / sizeof(Vector)];
      std::memcpy(part, source + at, line);
      for (std::size_t i = 0; i < line / sizeof(Vector); ++i) {
        auto* const to = reinterpret_cast<Vector*>(target + at) + i;
#if defined(__clang__)
        __builtin_nontemporal_store(part[i], to);
#else
        __builtin_ia32_movntdq(to, part[i]);
#endif
      }
    }
    std::memcpy(target + at, source + at, bytes - at);
    return;
  }
#endif
  (void)next;
  std::memcpy(target, source, bytes);
}

/// Makes what was streamed visible to other threads by the means that make plain stores visible.
inline void stream_fence() noexcept
{
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace kvcache::inline v0_1::detail
