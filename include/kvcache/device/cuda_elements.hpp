// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

/// \file The toolkit's own element types, so that an engine may name them in a layout: `PagedHeads<__half, 64, 16>`.
///
/// Conversions are the toolkit's: to nearest, ties to even; those to fp8 stop at the largest finite value.

namespace kvcache::inline v0_1 {

template <>
struct ElementTraits<__half> {
  static constexpr char const* name = "f16";
  KVCACHE_HOST_DEVICE static float to_float(__half x) { return __half2float(x); }
  KVCACHE_HOST_DEVICE static __half from_float(float x) { return __float2half_rn(x); }
};

template <>
struct ElementTraits<__nv_bfloat16> {
  static constexpr char const* name = "bf16";
  KVCACHE_HOST_DEVICE static float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
  KVCACHE_HOST_DEVICE static __nv_bfloat16 from_float(float x) { return __float2bfloat16_rn(x); }
};

template <>
struct ElementTraits<__nv_fp8_e4m3> {
  static constexpr char const* name = "fp8_e4m3";
  KVCACHE_HOST_DEVICE static float to_float(__nv_fp8_e4m3 x) { return static_cast<float>(x); }
  KVCACHE_HOST_DEVICE static __nv_fp8_e4m3 from_float(float x) { return __nv_fp8_e4m3(x); }
};

template <>
struct ElementTraits<__nv_fp8_e5m2> {
  static constexpr char const* name = "fp8_e5m2";
  KVCACHE_HOST_DEVICE static float to_float(__nv_fp8_e5m2 x) { return static_cast<float>(x); }
  KVCACHE_HOST_DEVICE static __nv_fp8_e5m2 from_float(float x) { return __nv_fp8_e5m2(x); }
};

}  // namespace kvcache::inline v0_1
