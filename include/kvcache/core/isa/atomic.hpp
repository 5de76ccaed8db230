// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>
#include <type_traits>

/// \file Atomics between the threads of a device, in global or shared memory. Each returns what stood there before.
///
/// On a host they are atomics of the process. One difference: `atomic_add` of floats takes subnormal values as zeros of their
/// sign in a device's global memory, and keeps them in shared memory and in the twin.

namespace kvcache::inline v0_1::isa {

/// What else an atomic orders.
enum class Order : std::uint8_t {
  relaxed,  ///< nothing
  acq_rel  ///< what this thread wrote before is seen by who reads the value, and the other way round
};

namespace detail {

template <Order How>
inline constexpr int host_order = How == Order::relaxed ? __ATOMIC_RELAXED : __ATOMIC_ACQ_REL;

template <class T>
inline constexpr bool is_word = std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::uint32_t>;

}  // namespace detail

/// Adds to `*at`; integers wrap. `T` float, std::int32_t or std::uint32_t.
template <Order How = Order::relaxed, class T>
KVCACHE_HOST_DEVICE inline T atomic_add(T* at, std::type_identity_t<T> x)
{
  static_assert(std::is_same_v<T, float> || detail::is_word<T>,
                "kvcache: atomic_add adds float, std::int32_t or std::uint32_t");
#if defined(__CUDA_ARCH__)
  T before{};
  if constexpr (std::is_same_v<T, float> && How == Order::relaxed) {
    asm volatile("atom.relaxed.gpu.add.f32 %0, [%1], %2;"
                 : "=f"(before)
                 : "l"(at), "f"(x)
                 : "memory");
  } else if constexpr (std::is_same_v<T, float>) {
    asm volatile("atom.acq_rel.gpu.add.f32 %0, [%1], %2;"
                 : "=f"(before)
                 : "l"(at), "f"(x)
                 : "memory");
  } else if constexpr (How == Order::relaxed) {
    asm volatile("atom.relaxed.gpu.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(x)
                 : "memory");
  } else {
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(x)
                 : "memory");
  }
  return before;
#else
  if constexpr (std::is_same_v<T, float>) {
    auto* const word = reinterpret_cast<std::uint32_t __attribute__((may_alias))*>(at);
    std::uint32_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(
      word,
      &before,
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, before) + x),
      true,
      detail::host_order<How>,
      __ATOMIC_RELAXED)) {
    }
    return __builtin_bit_cast(float, before);
  } else {
    return __atomic_fetch_add(at, x, detail::host_order<How>);
  }
#endif
}

/// Raises `*at` to `x`. `T` std::int32_t or std::uint32_t.
template <Order How = Order::relaxed, class T>
KVCACHE_HOST_DEVICE inline T atomic_max(T* at, std::type_identity_t<T> x)
{
  static_assert(detail::is_word<T>, "kvcache: atomic_max takes std::int32_t or std::uint32_t");
#if defined(__CUDA_ARCH__)
  constexpr bool is_signed = std::is_same_v<T, std::int32_t>;
  T before{};
  if constexpr (is_signed && How == Order::relaxed) {
    asm volatile("atom.relaxed.gpu.max.s32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(x)
                 : "memory");
  } else if constexpr (is_signed) {
    asm volatile("atom.acq_rel.gpu.max.s32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(x)
                 : "memory");
  } else if constexpr (How == Order::relaxed) {
    asm volatile("atom.relaxed.gpu.max.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(x)
                 : "memory");
  } else {
    asm volatile("atom.acq_rel.gpu.max.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(x)
                 : "memory");
  }
  return before;
#else
  T before = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(
    at, &before, before < x ? x : before, true, detail::host_order<How>, __ATOMIC_RELAXED)) {
  }
  return before;
#endif
}

/// Writes `desired` if `*at` is `expected`; it was if that is returned. `T` an integer of 4 or 8 bytes.
template <Order How = Order::relaxed, class T>
KVCACHE_HOST_DEVICE inline T atomic_cas(T* at,
                                        std::type_identity_t<T> expected,
                                        std::type_identity_t<T> desired)
{
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "kvcache: atomic_cas takes an integer of 4 or 8 bytes");
#if defined(__CUDA_ARCH__)
  T before{};
  if constexpr (sizeof(T) == 4 && How == Order::relaxed) {
    asm volatile("atom.relaxed.gpu.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(at), "r"(expected), "r"(desired)
                 : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acq_rel.gpu.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(at), "r"(expected), "r"(desired)
                 : "memory");
  } else if constexpr (How == Order::relaxed) {
    asm volatile("atom.relaxed.gpu.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(at), "l"(expected), "l"(desired)
                 : "memory");
  } else {
    asm volatile("atom.acq_rel.gpu.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(at), "l"(expected), "l"(desired)
                 : "memory");
  }
  return before;
#else
  constexpr int on_failure = How == Order::relaxed ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;
  (void)__atomic_compare_exchange_n(
    at, &expected, desired, false, detail::host_order<How>, on_failure);
  return expected;
#endif
}

}  // namespace kvcache::inline v0_1::isa
