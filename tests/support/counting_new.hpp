// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Counts the heap allocations of a program, and makes one of them fail. Include it in one file of an
/// executable: it replaces the global `operator new`. Not inlined, or g++ takes `malloc` and `delete` for a mismatch.

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace kvcache_test {

inline std::uint64_t allocations = 0;
inline std::int64_t live_bytes = 0;  ///< given out and not given back
inline std::int64_t fail_in = -1;    ///< allocations until one fails; negative: never

/// Heap allocations since it was made.
class Allocations {
 public:
  [[nodiscard]] std::uint64_t count() const { return allocations - before_; }

 private:
  std::uint64_t before_ = allocations;
};

/// While it lives, the `n`-th allocation from now on fails, and only that one.
class FailAllocation {
 public:
  explicit FailAllocation(std::int64_t n) { fail_in = n; }
  FailAllocation(FailAllocation const&) = delete;
  FailAllocation& operator=(FailAllocation const&) = delete;
  ~FailAllocation() { fail_in = -1; }
  [[nodiscard]] bool struck() const { return fail_in < 0; }
};

inline void* counted(std::size_t bytes, std::align_val_t alignment = {}) noexcept
{
  ++allocations;
  if (fail_in >= 0 && fail_in-- == 0) {
    return nullptr;
  }
  std::size_t const size = bytes != 0 ? bytes : 1;
  auto const a = static_cast<std::size_t>(alignment);
  void* const memory = a == 0 ? std::malloc(size) : std::aligned_alloc(a, (size + a - 1) / a * a);
  live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}
inline void given_back(void* memory) noexcept
{
  live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace kvcache_test

[[gnu::noinline]] void* operator new(std::size_t bytes)
{
  if (void* const memory = kvcache_test::counted(bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t bytes)
{
  return operator new(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept
{
  return kvcache_test::counted(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept
{
  return kvcache_test::counted(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment)
{
  if (void* const memory = kvcache_test::counted(bytes, alignment)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes,
                                     std::align_val_t alignment,
                                     std::nothrow_t const&) noexcept
{
  return kvcache_test::counted(bytes, alignment);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept
{
  kvcache_test::given_back(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept
{
  kvcache_test::given_back(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept
{
  kvcache_test::given_back(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept
{
  kvcache_test::given_back(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept
{
  kvcache_test::given_back(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept
{
  kvcache_test::given_back(memory);
}
