// SPDX-License-Identifier: Apache-2.0
// Every kernel that the library ships, one line each; tests/kernels/ceilings.txt has what each may use.

#include <kvcache/device/cuda_launch.cuh>
#include <kvcache/device/move_rows_kernel.hpp>
#include <kvcache/device/plan_kernels.hpp>

namespace kvcache::inline v0_1::detail {

template __global__ void run_kernel(WriteWordsKernel);
template __global__ void run_kernel(CopyPagesKernel);
template __global__ void run_kernel(CountUpKernel);
template __global__ void run_kernel(MoveRowsKernel);

}  // namespace kvcache::inline v0_1::detail
