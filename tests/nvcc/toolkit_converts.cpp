// SPDX-License-Identifier: Apache-2.0
// The twins of the converts against the toolkit's own host functions, which state what the instructions give.

#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/small_float.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "../support/random.hpp"

namespace {

namespace isa = kvcache::isa;

std::uint32_t wrong = 0;

void expect(char const* what, std::uint32_t from, std::uint32_t got, std::uint32_t want)
{
  if (got != want && wrong++ < 10) {
    std::printf("%s of %08x is %x, the toolkit says %x\n", what, from, got, want);
  }
}

void check_float(std::uint32_t bits)
{
  auto const x = std::bit_cast<float>(bits);
  // The sign of a zero that follows, so that the two places of a pair are seen.
  float const y = -x;
  auto const fp8 = [&](__nv_fp8_interpretation_t kind) {
    return std::uint32_t{__nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, kind)};
  };
  expect("e4m3", bits, isa::pack_fp8<isa::E4M3>(x, y), fp8(__NV_E4M3));
  expect("e5m2", bits, isa::pack_fp8<isa::E5M2>(x, y), fp8(__NV_E5M2));
  expect("e2m1",
         bits,
         isa::pack_fp4(x, y),
         __nv_cvt_float2_to_fp4x2(make_float2(x, y), __NV_E2M1, cudaRoundNearest));
  auto const halves = std::bit_cast<std::uint32_t>(__half2_raw(__floats2half2_rn(x, y)));
  expect("f16", bits, isa::pack<kvcache::half>(x, y), halves);
  auto const pair = std::bit_cast<std::uint32_t>(__nv_bfloat162_raw(__floats2bfloat162_rn(x, y)));
  expect("bf16", bits, isa::pack<kvcache::bfloat16>(x, y), pair);
}

void check_half(std::uint32_t bits)
{
  __half2_raw raw;
  raw.x = static_cast<unsigned short>(bits);
  raw.y = static_cast<unsigned short>(bits ^ 0x8000U);
  std::uint32_t const pair = (bits ^ 0x8000U) << 16 | bits;
  expect("e4m3 of f16",
         bits,
         isa::fp8_from_half2<isa::E4M3>(pair),
         __nv_cvt_halfraw2_to_fp8x2(raw, __NV_SATFINITE, __NV_E4M3));
  expect("e5m2 of f16",
         bits,
         isa::fp8_from_half2<isa::E5M2>(pair),
         __nv_cvt_halfraw2_to_fp8x2(raw, __NV_SATFINITE, __NV_E5M2));
  float const wide = __half2float(__half(__half_raw{static_cast<unsigned short>(bits)}));
  expect("f32 of f16",
         bits,
         std::bit_cast<std::uint32_t>(isa::unpack<kvcache::half>(bits).lo),
         std::bit_cast<std::uint32_t>(wide));
}

void check_codes(std::uint32_t codes)
{
  auto const fp8 = static_cast<std::uint16_t>(codes);
  expect("f16 of e4m3",
         codes,
         isa::half2_from_fp8<isa::E4M3>(fp8),
         std::bit_cast<std::uint32_t>(__nv_cvt_fp8x2_to_halfraw2(fp8, __NV_E4M3)));
  expect("f16 of e5m2",
         codes,
         isa::half2_from_fp8<isa::E5M2>(fp8),
         std::bit_cast<std::uint32_t>(__nv_cvt_fp8x2_to_halfraw2(fp8, __NV_E5M2)));
  auto const fp4 = static_cast<std::uint8_t>(codes);
  expect("f16 of e2m1",
         codes,
         isa::half2_from_fp4(fp4),
         std::bit_cast<std::uint32_t>(__nv_cvt_fp4x2_to_halfraw2(fp4, __NV_E2M1)));
}

}  // namespace

int main()
{
  for (std::uint32_t code = 0; code < 65536; ++code) {
    check_codes(code);
    check_half(code);
    check_float(code << 16);
    check_float(std::bit_cast<std::uint32_t>(isa::unpack<kvcache::half>(code).lo));
  }
  kvcache_test::Random random(1);
  for (int i = 0; i < 1000000; ++i) {
    check_float(static_cast<std::uint32_t>(random.next()));
  }
  std::printf("converts: %u results differ from the toolkit's\n", wrong);
  return wrong == 0 ? 0 : 1;
}
