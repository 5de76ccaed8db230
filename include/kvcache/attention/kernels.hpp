// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/bias.hpp>
#include <kvcache/attention/block_rows.hpp>
#include <kvcache/attention/item.hpp>
#include <kvcache/attention/left_out.hpp>
#include <kvcache/attention/plan.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/attention/vector_avx2.hpp>
#include <kvcache/attention/vector_avx512.hpp>
#include <kvcache/attention/vector_portable.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/layout/extent.hpp>
#include <kvcache/view/batch_view.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

/// \file The kernel of `kernel.inc`, once for each instruction set.

namespace kvcache::inline v0_1::detail::portable::inline KVCACHE_FLAGS {
#include <kvcache/attention/block.inc>
#include <kvcache/attention/block_grouped.inc>
#include <kvcache/attention/block_sums.inc>
#include <kvcache/attention/kernel.inc>
}  // namespace kvcache::inline v0_1::detail::portable::inline KVCACHE_FLAGS

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace kvcache::inline v0_1::detail::avx2::inline KVCACHE_FLAGS {
#include <kvcache/attention/block.inc>
#include <kvcache/attention/block_grouped.inc>
#include <kvcache/attention/block_sums.inc>
#include <kvcache/attention/kernel.inc>
}  // namespace kvcache::inline v0_1::detail::avx2::inline KVCACHE_FLAGS
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                  \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
  apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
namespace kvcache::inline v0_1::detail::avx512::inline KVCACHE_FLAGS {
#include <kvcache/attention/block.inc>
#include <kvcache/attention/block_grouped.inc>
#include <kvcache/attention/block_sums.inc>
#include <kvcache/attention/kernel.inc>
}  // namespace kvcache::inline v0_1::detail::avx512::inline KVCACHE_FLAGS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
