// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file Any function of three bits, and any choice of bytes: what unpacks codes in one instruction.

namespace kvcache::inline v0_1::isa {

/// `lop3.b32`: bit i of the result is bit `4 a_i + 2 b_i + c_i` of `Table`. The table of an expression is the
/// expression applied to 0xf0 (a), 0xcc (b) and 0xaa (c): `lop3<(0xf0 & 0xcc) | 0xaa>` is `(a & b) | c`.
template <std::uint32_t Table>
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t lop3(std::uint32_t a,
                                                            std::uint32_t b,
                                                            std::uint32_t c)
{
  static_assert(Table < 256, "kvcache: the table of lop3 has eight bits");
#if defined(__CUDA_ARCH__)
  std::uint32_t d = 0;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(Table));
  return d;
#else
  std::uint32_t d = 0;
  for (std::uint32_t i = 0; i < 8; ++i) {
    std::uint32_t const here =
      ((i & 4U) != 0 ? a : ~a) & ((i & 2U) != 0 ? b : ~b) & ((i & 1U) != 0 ? c : ~c);
    d |= (Table >> i & 1U) != 0 ? here : 0U;
  }
  return d;
#endif
}

/// `prmt.b32`: byte i of the result is the byte of {a: 0 to 3, b: 4 to 7} that the lower three bits of nibble i of
/// `selector` name; where the nibble's high bit is set, eight copies of that byte's sign bit instead.
[[nodiscard]] KVCACHE_HOST_DEVICE inline std::uint32_t prmt(std::uint32_t a,
                                                            std::uint32_t b,
                                                            std::uint32_t selector)
{
#if defined(__CUDA_ARCH__)
  std::uint32_t d = 0;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
#else
  std::uint64_t const bytes = static_cast<std::uint64_t>(b) << 32 | a;
  std::uint32_t d = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    std::uint32_t const nibble = selector >> (4 * i);
    auto const byte = static_cast<std::uint32_t>(bytes >> (8 * (nibble & 7U)) & 0xffU);
    std::uint32_t const sign = (byte & 0x80U) != 0 ? 0xffU : 0U;
    d |= ((nibble & 8U) != 0 ? sign : byte) << (8 * i);
  }
  return d;
#endif
}

}  // namespace kvcache::inline v0_1::isa
