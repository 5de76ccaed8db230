// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/dtype.hpp>
#include <kvcache/core/isa/mma_map.hpp>
#include <kvcache/core/isa/small_float.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cstdint>
#include <type_traits>

/// \file What `mma` is on a host: a lane fetches the registers of all and sums up its own four results.
/// **Cost** one exchange, then 64 or 128 products a lane.

namespace kvcache::inline v0_1::isa::detail {

/// Part `part` of a register, as what products are taken of.
template <class Element>
auto mma_value(std::uint32_t reg, std::int32_t part)
{
  if constexpr (std::is_same_v<Element, half> || std::is_same_v<Element, bfloat16>) {
    Float2 const pair = unpack<Element>(reg);
    return part == 0 ? pair.lo : pair.hi;
  } else if constexpr (is_fp8<Element>) {
    std::uint32_t const code = reg >> (8 * part) & 0xffU;
    return unpack<half>(half2_from_fp8<Element>(static_cast<std::uint16_t>(code))).lo;
  } else {
    return static_cast<std::int32_t>(static_cast<Element>(reg >> (8 * part) & 0xffU));
  }
}

template <class A, class B, class Sum, class Warp>
void mma_twin(Warp& warp, Sum (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2])
{
  constexpr int parts = sizeof(A) == 2 ? 2 : 4;
  constexpr int depth = 8 * parts;
  struct Registers {
    std::uint32_t a[4];
    std::uint32_t b[2];
  };
  Registers const mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  Registers all[32];
  warp.exchange(all_lanes, mine, all);
  for (std::int32_t i = 0; i < 4; ++i) {
    Place const place = place_in_d(warp.lane(), i);
    for (std::int32_t k = 0; k < depth; ++k) {
      std::int32_t const part = k % parts;
      std::int32_t const upper = k / (4 * parts);
      std::int32_t const in_group = k % (4 * parts) / parts;
      Registers const& of_row = all[place.row % 8 * 4 + in_group];
      Registers const& of_column = all[place.column * 4 + in_group];
      auto const x = mma_value<A>(of_row.a[place.row / 8 + 2 * upper], part);
      auto const y = mma_value<B>(of_column.b[upper], part);
      if constexpr (std::is_same_v<Sum, float>) {
        d[i] += x * y;
      } else {  // wraps
        d[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(d[i]) +
                                         static_cast<std::uint32_t>(x * y));
      }
    }
  }
}

}  // namespace kvcache::inline v0_1::isa::detail
