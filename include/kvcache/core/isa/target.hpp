// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

/// \file What the target of this compilation does by one instruction. Functions work without it, at the cost they state.

namespace kvcache::inline v0_1::isa {

#if defined(__CUDA_ARCH__)
/// fp8: converts and mma (sm_89 and later).
inline constexpr bool has_fp8 = __CUDA_ARCH__ >= 890;
/// add and mul of packed bfloat16 (sm_90 and later).
inline constexpr bool has_bfloat16_add = __CUDA_ARCH__ >= 900;
#if __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
/// fp4 converts (sm_100f, sm_100a and their like; plain sm_100 has none).
inline constexpr bool has_fp4 = true;
#else
inline constexpr bool has_fp4 = false;
#endif
#else
inline constexpr bool has_fp8 = false;
inline constexpr bool has_bfloat16_add = false;
inline constexpr bool has_fp4 = false;
#endif

}  // namespace kvcache::inline v0_1::isa
