// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// \file What the executor tells AddressSanitizer and ThreadSanitizer; nothing in other builds.

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif

#if defined(SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(char const* file, int line);
void AnnotateIgnoreReadsEnd(char const* file, int line);
void AnnotateIgnoreWritesBegin(char const* file, int line);
void AnnotateIgnoreWritesEnd(char const* file, int line);
void AnnotateIgnoreSyncBegin(char const* file, int line);
void AnnotateIgnoreSyncEnd(char const* file, int line);
}
#endif

namespace simt {

#if defined(SIMT_ASAN)
inline constexpr bool has_asan = true;
#else
inline constexpr bool has_asan = false;
#endif
#if defined(SIMT_TSAN)
inline constexpr bool has_tsan = true;
#else
inline constexpr bool has_tsan = false;
#endif

/// Any touch of the bytes is an error from here on. In steps of 8 bytes: of a part of 8, only its end can be forbidden.
inline void forbid([[maybe_unused]] void const* at, [[maybe_unused]] std::size_t bytes)
{
#if defined(SIMT_ASAN)
  __asan_poison_memory_region(at, bytes);
#endif
}
inline void permit([[maybe_unused]] void const* at, [[maybe_unused]] std::size_t bytes)
{
#if defined(SIMT_ASAN)
  __asan_unpoison_memory_region(at, bytes);
#endif
}

// What stands between these two is the executor's own: its locks order nothing, its reads and writes are not looked at.
inline void begin_unseen()
{
#if defined(SIMT_TSAN)
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
}
inline void end_unseen()
{
#if defined(SIMT_TSAN)
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

/// What the caller did so far comes before what a thread does after `acquire_order` of the same key.
inline void release_order([[maybe_unused]] void* key)
{
#if defined(SIMT_TSAN)
  __tsan_release(key);
#endif
}
inline void acquire_order([[maybe_unused]] void* key)
{
#if defined(SIMT_TSAN)
  __tsan_acquire(key);
#endif
}

}  // namespace simt
