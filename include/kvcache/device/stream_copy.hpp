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

/// A stretch of a copy, and what will be read after it.
struct Strip {
  std::byte* target;
  std::byte const* source;
  std::byte const* next;
};

/// So many strips go side by side, two lines of each in turn: more pages of the machine are open at a time, which takes P9 from
/// 0.80 of `memcpy` to 0.94 on a Xeon.
inline constexpr std::size_t strips = 8;
inline constexpr std::size_t line_bytes = 64;
inline constexpr std::size_t turn_bytes = 2 * line_bytes;

/// Whether a strip of `bytes` to `target` can go beside others.
inline bool makes_strip(void const* target, std::size_t bytes) noexcept
{
  return reinterpret_cast<std::uintptr_t>(target) % line_bytes == 0 && bytes % turn_bytes == 0;
}

#if defined(__x86_64__) && defined(__GNUC__)

/// Copies `Lines` lines. **Pre** `target` begins one.
template <std::size_t Lines>
inline void stream_lines(std::byte* target, std::byte const* source) noexcept
{
  using Vector = long long __attribute__((vector_size(16)));
  constexpr std::size_t parts = Lines * line_bytes / sizeof(Vector);
  Vector part[parts];
  std::memcpy(part, source, sizeof part);
  for (std::size_t i = 0; i < parts; ++i) {
    auto* const to = reinterpret_cast<Vector*>(target) + i;
#if defined(__clang__)
    __builtin_nontemporal_store(part[i], to);
#else
    __builtin_ia32_movntdq(to, part[i]);
#endif
  }
}

/// Copies `bytes` of each. **Pre** each `makes_strip`.
inline void stream_strips(Strip const (&all)[strips], std::size_t bytes) noexcept
{
  constexpr std::size_t ahead = 8 * line_bytes;
  for (std::size_t at = 0; at < bytes; at += turn_bytes) {
    for (Strip const& strip : all) {
      std::byte const* const soon =
        at + ahead < bytes ? strip.source + at + ahead : strip.next + (at + ahead - bytes);
      __builtin_prefetch(soon);
      __builtin_prefetch(soon + line_bytes);
      stream_lines<2>(strip.target + at, strip.source + at);
    }
  }
}

inline constexpr std::size_t strip_bytes = 4096;
inline constexpr std::size_t stretch_bytes = strips * strip_bytes;

/// Copies `stretch_bytes`. **Pre** `target` begins a line.
inline void stream_stretch(std::byte* target,
                           std::byte const* source,
                           std::byte const* next) noexcept
{
  Strip all[strips];
  for (std::size_t i = 0; i < strips; ++i) {
    all[i] = {target + i * strip_bytes, source + i * strip_bytes, next + i * strip_bytes};
  }
  stream_strips(all, strip_bytes);
}

#else

inline void stream_strips(Strip const (&all)[strips], std::size_t bytes) noexcept
{
  for (Strip const& strip : all) {
    std::memcpy(strip.target, strip.source, bytes);
  }
}

#endif

/// Copies `bytes` that do not overlap. `next` is what will be read after them, or `source`: the processor's own
/// prefetching does not know of it. After the last of several calls comes `stream_fence`.
inline void stream_copy(std::byte* target,
                        std::byte const* source,
                        std::size_t bytes,
                        std::byte const* next) noexcept
{
#if defined(__x86_64__) && defined(__GNUC__)
  constexpr std::size_t ahead = 16 * line_bytes;  // 8 to 64 lines measure alike
  std::size_t const head =
    (line_bytes - reinterpret_cast<std::uintptr_t>(target) % line_bytes) % line_bytes;
  if (bytes >= head + line_bytes) {
    std::memcpy(target, source, head);
    std::size_t at = head;
    for (; at + stretch_bytes <= bytes; at += stretch_bytes) {
      bool const last = at + 2 * stretch_bytes > bytes;
      stream_stretch(target + at, source + at, last ? next : source + at + stretch_bytes);
    }
    for (; at + line_bytes <= bytes; at += line_bytes) {
      std::size_t const soon = at + ahead;
      __builtin_prefetch(soon < bytes ? source + soon : next + (soon - bytes));
      stream_lines<1>(target + at, source + at);
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
