// SPDX-License-Identifier: Apache-2.0
// Every kernel that the library ships, one line each; tests/kernels/ceilings.txt has what each may use.

#include <kvcache/attention/device.hpp>
#include <kvcache/device/cuda_launch.cuh>
#include <kvcache/device/move_rows_kernel.hpp>
#include <kvcache/device/plan_kernels.hpp>
#include <kvcache/interop/gather_kernel.hpp>
#include <kvcache/interop/table_kernels.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/view/append_kernel.hpp>
#include <kvcache/view/zero_pages_kernel.hpp>

namespace kvcache::inline v0_1::detail {

using Bf16 = PagedHeads<bfloat16, 128, 16>;
using AnyF16 = PagedHeads<half>;

template __global__ void run_kernel(WriteWordsKernel);
template __global__ void run_kernel(CopyPagesKernel);
template __global__ void run_kernel(CountUpKernel);
template __global__ void run_kernel(MoveRowsKernel);
template __global__ void run_kernel(ZeroPagesKernel);
template __global__ void run_kernel(AppendKernel<Bf16, bfloat16>);
template __global__ void run_kernel(AppendKernel<AnyF16, float>);
template __global__ void run_kernel(GatherKernel<Bf16>);
template __global__ void run_kernel(GatherKernel<AnyF16>);
template __global__ void run_kernel(BlockTableKernel);
template __global__ void run_kernel(OffsetTableKernel);
template __global__ void run_kernel(PageListsKernel);
template __global__ void run_kernel(SlotMappingKernel<std::int32_t>);
template __global__ void run_kernel(SlotMappingKernel<std::int64_t>);

template <int HeadDim>
using Bf16By = PagedHeads<bfloat16, HeadDim, 16>;
template __global__ void run_kernel(PlanWorkKernel<Bf16By<128>>);
template __global__ void run_kernel(ShareRowsKernel<Bf16By<128>>);
template __global__ void run_kernel(MergePartsKernel<Bf16By<128>, 128, bfloat16, bfloat16>);
template __global__ void run_kernel(MergeSpansKernel<Bf16By<128>, 128, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<64>, 64, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<80>, 80, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<96>, 96, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<112>, 112, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<160>, 160, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<128>, 128, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<256>, 256, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<Bf16By<192>, 192, bfloat16, bfloat16>);
template __global__ void run_kernel(AttendKernel<AnyF16, 64, float, float>);
template __global__ void run_kernel(AttendKernel<AnyF16, 128, float, float>);

}  // namespace kvcache::inline v0_1::detail
