// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/device/cuda_elements.hpp>
#include <kvcache/device/cuda_error.hpp>
#include <kvcache/device/cuda_launch.cuh>
#include <kvcache/layout/extent.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file Launches of the kernels of `device.hpp`. Every call is ordered on its stream, may be captured, and does not wait.
///
///   auto const blocks = kvcache::attention_blocks<Layout, __nv_bfloat16, __nv_bfloat16>(head_dim);
///   auto work = kvcache::DeviceWork::make(memory, shape, {tokens, chunks, head_dim, blocks.value()});
///   kvcache::plan_attention(view, work.value(), stream);                      // once a step
///   kvcache::attend(view, work.value(), layer, io, stream);                   // each layer

namespace kvcache::inline v0_1 {

template <>
struct MatrixElement<__half> {
  using type = half;
};

template <>
struct MatrixElement<__nv_bfloat16> {
  using type = bfloat16;
};

namespace detail {

/// Calls `f` with the head size as a constant: the layout's, or where that is dynamic each of `DeviceWork::head_dims`, so that
/// eight kernels are compiled. **Pre** `head_dim` is one of these, as `DeviceWork::make` checks.
template <class Layout, class F>
cudaError_t with_head_dim(std::int32_t head_dim, F const& f)
{
  if constexpr (Layout::head_dim != dynamic) {
    return head_dim == Layout::head_dim
             ? f(std::integral_constant<std::int32_t, Layout::head_dim>{})
             : cudaErrorInvalidValue;
  } else {
    switch (head_dim) {
      case 64:
        return f(std::integral_constant<std::int32_t, 64>{});
      case 80:
        return f(std::integral_constant<std::int32_t, 80>{});
      case 96:
        return f(std::integral_constant<std::int32_t, 96>{});
      case 112:
        return f(std::integral_constant<std::int32_t, 112>{});
      case 128:
        return f(std::integral_constant<std::int32_t, 128>{});
      case 160:
        return f(std::integral_constant<std::int32_t, 160>{});
      case 192:
        return f(std::integral_constant<std::int32_t, 192>{});
      case 256:
        return f(std::integral_constant<std::int32_t, 256>{});
      default:
        return cudaErrorInvalidValue;
    }
  }
}

/// Lets `Kernel` have its shared memory, more than a kernel may have unasked.
template <class Kernel>
cudaError_t allow_shared()
{
  return cudaFuncSetAttribute(reinterpret_cast<void const*>(&run_kernel<Kernel>),
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(Kernel::shared_bytes));
}

[[nodiscard]] inline Result<Done> done_or(cudaError_t code, char const* call)
{
  if (code == cudaSuccess) {
    return Done{};
  }
  forget_last(code);
  return cuda_error(code, call);
}

}  // namespace detail

/// How many blocks of attention the current device holds at once: `DeviceLimits::blocks` for its whole use.
/// **Errors** `bad_config` where a block may not have the shared memory that the head size needs, with the figures; what the
/// runtime says; a head size that has no kernel is an invalid value.
template <class Layout, class Query, class Out, DeviceScoreBias Bias = NoBias>
[[nodiscard]] Result<std::int32_t> attention_blocks(std::int32_t head_dim)
{
  int blocks = 0;
  int needed = 0;
  int most = 0;
  cudaError_t const code = detail::with_head_dim<Layout>(head_dim, [&](auto dim) {
    using Kernel = AttendKernel<Layout, decltype(dim)::value, Query, Out, Bias>;
    int device = 0;
    int processors = 0;
    int each = 0;
    needed = static_cast<int>(Kernel::shared_bytes);
    cudaError_t error = cudaGetDevice(&device);
    error = error != cudaSuccess
              ? error
              : cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess && needed > most) {
      return error;
    }
    error = error != cudaSuccess ? error : detail::allow_shared<Kernel>();
    error = error != cudaSuccess
              ? error
              : cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    error = error != cudaSuccess ? error
                                 : cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                     &each,
                                     reinterpret_cast<void const*>(&detail::run_kernel<Kernel>),
                                     Kernel::max_threads,
                                     Kernel::shared_bytes);
    blocks = processors * each;
    return error;
  });
  if (code != cudaSuccess) {
    detail::forget_last(code);
    return cuda_error(code, "attention_blocks");
  }
  if (needed > most) {
    return Error{Why::bad_config,
                 "head_dim",
                 head_dim,
                 "needs more shared memory than a block of this device may have, bytes",
                 most};
  }
  return blocks;
}

/// Makes the work list of the step that `view` shows: a launch, two where chunks may share rows. **Pre** see `PlanWorkKernel`.
/// **Stream** the step's layers follow on this stream; see `DeviceWork`.
template <class Layout>
[[nodiscard]] Result<Done> plan_attention(BatchView<Layout> const& view,
                                          DeviceWork const& work,
                                          cudaStream_t stream)
{
  using ShareRows = ShareRowsKernel<Layout>;
  using PlanWork = PlanWorkKernel<Layout>;
  work.plan_on(stream);
  cudaError_t error = cudaSuccess;
  if (work.limits.shared_rows > 0) {
    error = cuda_launch(
      ShareRows{view, work}, 1, ShareRows::max_threads, ShareRows::shared_bytes, stream);
  }
  if (error == cudaSuccess) {
    error =
      cuda_launch(PlanWork{view, work}, 1, PlanWork::max_threads, PlanWork::shared_bytes, stream);
  }
  return detail::done_or(error, "plan_attention");
}

/// Attention of one layer: two launches, three where chunks may share rows. **Pre** see `AttendKernel`; `stream` is that of
/// `plan_attention`, which is checked.
template <class Layout, class Query, class Out, DeviceScoreBias Bias = NoBias>
[[nodiscard]] Result<Done> attend(BatchView<Layout> const& view,
                                  DeviceWork const& work,
                                  std::int32_t layer,
                                  DeviceTensors<Query, Out> const& io,
                                  cudaStream_t stream,
                                  Bias const& bias = {})
{
  work.expect_on(stream);
  cudaError_t const code = detail::with_head_dim<Layout>(work.limits.head_dim, [&](auto dim) {
    constexpr std::int32_t head_dim = decltype(dim)::value;
    using Attend = AttendKernel<Layout, head_dim, Query, Out, Bias>;
    using Merge = MergePartsKernel<Layout, head_dim, Query, Out>;
    using MergeSpans = MergeSpansKernel<Layout, head_dim, Query, Out>;
    cudaError_t error = detail::allow_shared<Attend>();
    if (error == cudaSuccess) {
      error = cuda_launch(Attend{view, work, layer, io, bias},
                          work.limits.blocks,
                          Attend::max_threads,
                          Attend::shared_bytes,
                          stream);
    }
    Merge const merge{view, work, io};
    if (error == cudaSuccess && merge.blocks() > 0) {
      error = cuda_launch(merge, merge.blocks(), Merge::max_threads, Merge::shared_bytes, stream);
    }
    if (error == cudaSuccess && work.limits.shared_rows > 0) {
      error = cuda_launch(MergeSpans{work, io},
                          work.limits.blocks,
                          MergeSpans::max_threads,
                          MergeSpans::shared_bytes,
                          stream);
    }
    return error;
  });
  return detail::done_or(code, "attend");
}

}  // namespace kvcache::inline v0_1
