// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Every function of core/isa.hpp in one functor of a warp: isa.cu compiles it for a device, isa_twins.cpp for a host.

#include <kvcache/core/isa.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace kvcache_test {

namespace isa = kvcache::isa;
using kvcache::bfloat16;
using kvcache::half;

inline constexpr int words_in = 32;     // a lane's random words
inline constexpr int words_exact = 96;  // its results that must agree to the bit
inline constexpr int words_close = 24;  // its sums of floats
inline constexpr int shared_bytes = 4096;

/// What a lane reads and writes.
struct Lane {
  std::uint32_t const* in;
  std::uint32_t* exact;
  std::uint32_t* close;

  KVCACHE_HOST_DEVICE void put(std::uint32_t x) { *exact++ = x; }
  KVCACHE_HOST_DEVICE void put(std::int32_t x) { put(static_cast<std::uint32_t>(x)); }
  KVCACHE_HOST_DEVICE void put(float x) { put(__builtin_bit_cast(std::uint32_t, x)); }
  KVCACHE_HOST_DEVICE void put_close(float x) { *close++ = __builtin_bit_cast(std::uint32_t, x); }
};

template <class Element>
KVCACHE_HOST_DEVICE void pairs(Lane& lane)
{
  std::uint32_t const* const in = lane.in;
  lane.put(isa::packed_fma<Element>(in[0], in[1], in[2]));
  lane.put(isa::packed_add<Element>(in[0], in[1]));
  lane.put(isa::packed_mul<Element>(in[0], in[1]));
  lane.put(isa::packed_max<Element>(in[0], in[1]));
  lane.put(isa::pack<Element>(__builtin_bit_cast(float, in[3]), __builtin_bit_cast(float, in[4])));
  isa::Float2 const wide = isa::unpack<Element>(in[5]);
  lane.put(wide.lo);
  lane.put(wide.hi);
}

template <class Format>
KVCACHE_HOST_DEVICE void fp8(Lane& lane)
{
  std::uint32_t const* const in = lane.in;
  lane.put(std::uint32_t{isa::pack_fp8<Format>(__builtin_bit_cast(float, in[0]), 300.0F)});
  lane.put(std::uint32_t{isa::fp8_from_half2<Format>(in[1])});
  lane.put(isa::half2_from_fp8<Format>(static_cast<std::uint16_t>(in[2] & 0xffffU)));
}

template <class A, class B, class Sum, class Warp>
KVCACHE_HOST_DEVICE void multiply(Warp& warp, Lane& lane)
{
  Sum d[4] = {1, 2, 3, 4};
  std::uint32_t a[4];
  std::uint32_t b[2];
  for (int i = 0; i < 6; ++i) {
    std::uint32_t word = lane.in[8 + i];
    if constexpr (std::is_same_v<Sum, float>) {  // below 2, and no NaN
      word &= sizeof(A) == 2 ? 0xbfffbfffU : 0xbfbfbfbfU;
    }
    (i < 4 ? a[i] : b[i - 4]) = word;
  }
  if constexpr (sizeof(A) == 2) {
    isa::mma_m16n8k16<A>(warp, d, a, b);
  } else {
    isa::mma_m16n8k32<A, B>(warp, d, a, b);
  }
  for (Sum const x : d) {
    if constexpr (std::is_same_v<Sum, float>) {
      lane.put_close(x);
    } else {
      lane.put(x);
    }
  }
}

template <std::size_t Matrices, class Warp>
KVCACHE_HOST_DEVICE void matrices(Warp& warp, Lane& lane, std::byte const* row)
{
  std::uint32_t d[Matrices];
  isa::ldmatrix(warp, d, row);
  for (std::uint32_t const x : d) {
    lane.put(x);
  }
  isa::ldmatrix_transposed(warp, d, row);
  for (std::uint32_t const x : d) {
    lane.put(x);
  }
}

/// All of it, by one warp. `counters` are three words of global memory, zero before.
template <class Warp>
KVCACHE_HOST_DEVICE void every_instruction(Warp& warp,
                                           std::byte* shared,
                                           Lane lane,
                                           std::uint32_t* counters)
{
  std::uint32_t const* const in = lane.in;
  lane.put(isa::lop3<0xe8>(in[0], in[1], in[2]));
  lane.put(isa::prmt(in[0], in[1], in[2] & 0xffffU));
  pairs<half>(lane);
  pairs<bfloat16>(lane);
  fp8<isa::E4M3>(lane);
  fp8<isa::E5M2>(lane);
  lane.put(std::uint32_t{isa::pack_fp4(__builtin_bit_cast(float, in[6]), 2.5F)});
  lane.put(isa::half2_from_fp4(static_cast<std::uint8_t>(in[7] & 0xffU)));

  lane.put(isa::reduce_sum(warp, in[0]));
  lane.put(isa::reduce_sum(warp, static_cast<std::int32_t>(in[0])));
  lane.put(isa::reduce_sum<4>(warp, in[0]));
  lane.put(isa::reduce_max(warp, in[0]));
  lane.put(isa::reduce_max(warp, static_cast<std::int32_t>(in[0])));
  float const small = static_cast<float>(in[0] & 0xffffU) * 0.001F;
  lane.put(isa::reduce_sum(warp, small));
  lane.put(isa::reduce_max(warp, small));

  multiply<half, half, float>(warp, lane);
  multiply<bfloat16, bfloat16, float>(warp, lane);
  multiply<isa::E4M3, isa::E4M3, float>(warp, lane);
  multiply<isa::E4M3, isa::E5M2, float>(warp, lane);
  multiply<isa::E5M2, isa::E4M3, float>(warp, lane);
  multiply<isa::E5M2, isa::E5M2, float>(warp, lane);
  multiply<std::int8_t, std::int8_t, std::int32_t>(warp, lane);
  multiply<std::int8_t, std::uint8_t, std::int32_t>(warp, lane);
  multiply<std::uint8_t, std::int8_t, std::int32_t>(warp, lane);
  multiply<std::uint8_t, std::uint8_t, std::int32_t>(warp, lane);

  std::byte* const row = shared + 64 * warp.lane();
  isa::cp_async<16>(warp, row, in);
  isa::cp_async_commit(warp);
  isa::cp_async<16, isa::Cache::all>(warp, row + 16, in + 4, 12);
  isa::cp_async<8>(warp, row + 32, in + 8, 5);
  isa::cp_async<4>(warp, row + 40, in + 10, 0);
  isa::cp_async_commit(warp);
  isa::cp_async_wait<1>(warp);
  isa::cp_async_wait<0>(warp);
  warp.sync();
  for (int i = 0; i < 11; ++i) {
    std::uint32_t word = 0;
    __builtin_memcpy(&word, row + 4 * i, 4);
    lane.put(word);
  }
  warp.sync();
  matrices<1>(warp, lane, row);
  matrices<2>(warp, lane, row);
  matrices<4>(warp, lane, row);

  std::uint32_t one[1];
  std::uint32_t two[2];
  std::uint32_t four[4];
  isa::load_once(one, in);
  isa::load_once(two, in + 2);
  isa::load_once(four, in + 4);
  isa::store_once(lane.exact, one);
  lane.put(*lane.exact);

  (void)isa::atomic_add(counters, in[0] & 0xffU);
  (void)isa::atomic_add<isa::Order::acq_rel>(reinterpret_cast<float*>(counters + 1), 1.0F);
  (void)isa::atomic_add(reinterpret_cast<float*>(counters + 1), 2.0F);
  (void)isa::atomic_add<isa::Order::acq_rel>(reinterpret_cast<std::int32_t*>(counters), 1);
  (void)isa::atomic_max(counters + 2, in[0]);
  (void)isa::atomic_max<isa::Order::acq_rel>(counters + 2, in[1]);
  (void)isa::atomic_max(reinterpret_cast<std::int32_t*>(counters + 3),
                        static_cast<std::int32_t>(in[0]));
  (void)isa::atomic_max<isa::Order::acq_rel>(reinterpret_cast<std::int32_t*>(counters + 3), 7);
  if (warp.lane() == 0) {
    lane.put(isa::atomic_cas(counters + 4, 0U, 5U));
    lane.put(isa::atomic_cas<isa::Order::acq_rel>(counters + 4, 5U, 6U));
    auto* const wide = reinterpret_cast<std::uint64_t*>(counters + 6);
    lane.put(static_cast<std::uint32_t>(isa::atomic_cas(wide, std::uint64_t{0}, std::uint64_t{9})));
    lane.put(static_cast<std::uint32_t>(
      isa::atomic_cas<isa::Order::acq_rel>(wide, std::uint64_t{9}, std::uint64_t{1} << 40)));
  }
}

inline constexpr std::size_t counters_words = 8;

struct Results {
  std::vector<std::uint32_t> exact = std::vector<std::uint32_t>(32 * words_exact);
  std::vector<std::uint32_t> close = std::vector<std::uint32_t>(32 * words_close);
  std::vector<std::uint32_t> counters = std::vector<std::uint32_t>(counters_words);
};

/// What the twins give.
Results on_host(std::vector<std::uint32_t> const& in);

}  // namespace kvcache_test
