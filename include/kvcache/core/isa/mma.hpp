// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/mma_twin.hpp>
#include <kvcache/core/isa/small_float.hpp>
#include <kvcache/core/isa/target.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file Tensor cores: d += a b by one warp, a of 16 rows, b of 8 columns.
///
/// **Shape** a (16, K) row-major, b (K, 8) column-major, d (16, 8); K is 16 for half and bfloat16, 32 for bytes. A lane holds
/// four registers of a, two of b, four values of d; `mma_map.hpp` says which elements they are.
/// **Rounding** Products are exact, but for bfloat16 where they leave float's range. Integers wrap at 32 bits on both sides.
/// The order in which tensor cores add floats is not specified, and they cut off bits instead of rounding (Fasi et al.,
/// "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021). The twin starts at d and adds products in ascending k, each
/// sum rounded to float. Take both to lie within (K + 1) 2^-22 (|d| + sum |a b|) of the exact value; fp8 on a device
/// within 2^-12 of that sum, for some keep 14 bits between additions (DeepSeek-AI, DeepSeek-V3 report, 2024, section 3.3.2).

namespace kvcache::inline v0_1::isa {

/// `mma.sync.m16n8k16`, `Element` half or bfloat16.
template <class Element, class Warp>
KVCACHE_HOST_DEVICE inline void mma_m16n8k16([[maybe_unused]] Warp& warp,
                                             float (&d)[4],
                                             std::uint32_t const (&a)[4],
                                             std::uint32_t const (&b)[2])
{
  static_assert(detail::is_pair_element<Element>,
                "kvcache: m16n8k16 multiplies half or bfloat16; bytes go to m16n8k32");
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Element, half>) {
    asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  detail::mma_twin<Element, Element>(warp, d, a, b);
#endif
}

/// `mma.sync.m16n8k32`, `A` and `B` each std::int8_t or std::uint8_t.
template <class A, class B, class Warp>
KVCACHE_HOST_DEVICE inline void mma_m16n8k32([[maybe_unused]] Warp& warp,
                                             std::int32_t (&d)[4],
                                             std::uint32_t const (&a)[4],
                                             std::uint32_t const (&b)[2])
{
  constexpr bool a_signed = std::is_same_v<A, std::int8_t>;
  constexpr bool b_signed = std::is_same_v<B, std::int8_t>;
  static_assert(
    (a_signed || std::is_same_v<A, std::uint8_t>) && (b_signed || std::is_same_v<B, std::uint8_t>),
    "kvcache: m16n8k32 into integers multiplies std::int8_t and std::uint8_t");
#if defined(__CUDA_ARCH__)
  if constexpr (a_signed && b_signed) {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (a_signed) {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (b_signed) {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  detail::mma_twin<A, B>(warp, d, a, b);
#endif
}

namespace detail {

/// fp8 by two mma of halves: a lane's bytes 0 and 1 of a register go to the first eight k of the one, bytes 2 and 3 to
/// the last. That is another order of k than the bytes', but the same for a and b.
template <class A, class B, class Warp>
KVCACHE_HOST_DEVICE inline void mma_fp8_by_half(Warp& warp,
                                                float (&d)[4],
                                                std::uint32_t const (&a)[4],
                                                std::uint32_t const (&b)[2])
{
  for (std::size_t part = 0; part < 2; ++part) {
    std::uint32_t const a0 = a[2 * part];
    std::uint32_t const a1 = a[2 * part + 1];
    std::uint32_t const b0 = b[part];
    std::uint32_t const wide_a[4] = {half2_from_fp8<A>(static_cast<std::uint16_t>(a0 & 0xffffU)),
                                     half2_from_fp8<A>(static_cast<std::uint16_t>(a1 & 0xffffU)),
                                     half2_from_fp8<A>(static_cast<std::uint16_t>(a0 >> 16)),
                                     half2_from_fp8<A>(static_cast<std::uint16_t>(a1 >> 16))};
    std::uint32_t const wide_b[2] = {half2_from_fp8<B>(static_cast<std::uint16_t>(b0 & 0xffffU)),
                                     half2_from_fp8<B>(static_cast<std::uint16_t>(b0 >> 16))};
    mma_m16n8k16<half>(warp, d, wide_a, wide_b);
  }
}

}  // namespace detail

/// `mma.sync.m16n8k32`, `A` and `B` each E4M3 or E5M2.
/// **Cost** one instruction where `has_fp8` says so; else two of half and the converts of twelve pairs.
template <class A, class B, class Warp>
KVCACHE_HOST_DEVICE inline void mma_m16n8k32(Warp& warp,
                                             float (&d)[4],
                                             std::uint32_t const (&a)[4],
                                             std::uint32_t const (&b)[2])
{
  static_assert(detail::is_fp8<A> && detail::is_fp8<B>,
                "kvcache: m16n8k32 into floats multiplies E4M3 and E5M2");
#if defined(__CUDA_ARCH__)
  if constexpr (!has_fp8) {
    detail::mma_fp8_by_half<A, B>(warp, d, a, b);
  } else if constexpr (std::is_same_v<A, E4M3> && std::is_same_v<B, E4M3>) {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (std::is_same_v<A, E4M3>) {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (std::is_same_v<B, E4M3>) {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  detail::mma_twin<A, B>(warp, d, a, b);
#endif
}

}  // namespace kvcache::inline v0_1::isa
