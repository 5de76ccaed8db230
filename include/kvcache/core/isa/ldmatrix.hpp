// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cstddef>
#include <cstdint>

/// \file Matrices of 8 x 8 elements of 16 bits from shared memory into the fragments of mma.

namespace kvcache::inline v0_1::isa {

namespace detail {

template <std::size_t Matrices, bool Transposed, class Warp>
KVCACHE_HOST_DEVICE inline void ldmatrix([[maybe_unused]] Warp& warp,
                                         std::uint32_t (&d)[Matrices],
                                         void const* row)
{
  static_assert(Matrices == 1 || Matrices == 2 || Matrices == 4,
                "kvcache: ldmatrix loads 1, 2 or 4 matrices");
#if defined(__CUDA_ARCH__)
  auto const at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Matrices == 1 && !Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(d[0])
                 : "r"(at)
                 : "memory");
  } else if constexpr (Matrices == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(d[0])
                 : "r"(at)
                 : "memory");
  } else if constexpr (Matrices == 2 && !Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(at)
                 : "memory");
  } else if constexpr (Matrices == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(at)
                 : "memory");
  } else if constexpr (!Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(at)
                 : "memory");
  }
#else
  struct Row {
    std::uint16_t element[8];
  };
  Row mine{};
  Row all[32];
  std::int32_t const lane = warp.lane();
  if (lane <
      static_cast<std::int32_t>(8 * Matrices)) {  // the addresses of the others are not looked at
    __builtin_memcpy(&mine, row, sizeof(mine));
  }
  // Rows, not addresses: no lane reads shared memory after another has left.
  warp.exchange(all_lanes, mine, all);
  std::int32_t const outer = lane / 4;
  std::int32_t const inner = lane % 4 * 2;
  for (std::size_t m = 0; m < Matrices; ++m) {
    Row const* const matrix = all + 8 * m;
    std::uint32_t const lo =
      Transposed ? matrix[inner].element[outer] : matrix[outer].element[inner];
    std::uint32_t const hi =
      Transposed ? matrix[inner + 1].element[outer] : matrix[outer].element[inner + 1];
    d[m] = hi << 16 | lo;
  }
#endif
}

}  // namespace detail

/// `ldmatrix`: register m of lane l holds elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1) of matrix m.
/// Lane 8 m + r gives the address of row r of matrix m, 16 bytes of shared memory at a multiple of 16.
/// **Pre** a sync lies between what other lanes wrote there and this call.
template <std::size_t Matrices, class Warp>
KVCACHE_HOST_DEVICE inline void ldmatrix(Warp& warp, std::uint32_t (&d)[Matrices], void const* row)
{
  detail::ldmatrix<Matrices, false>(warp, d, row);
}

/// `ldmatrix.trans`: as `ldmatrix`, with every matrix transposed on the way.
template <std::size_t Matrices, class Warp>
KVCACHE_HOST_DEVICE inline void ldmatrix_transposed(Warp& warp,
                                                    std::uint32_t (&d)[Matrices],
                                                    void const* row)
{
  detail::ldmatrix<Matrices, true>(warp, d, row);
}

}  // namespace kvcache::inline v0_1::isa
