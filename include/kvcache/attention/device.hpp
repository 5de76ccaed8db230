// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Attention on a GPU: decode, drafts and chunks of prefill, in three kernels over a view, five with shared prefixes.
///
///   once                memory of `DeviceWork::bytes(shape, limits)`, `DeviceWork::make`
///   once a step         ShareRowsKernel    one block: which chunks begin with the same pages; where `limits.shared_rows` is set
///                       PlanWorkKernel     one block: chunks and lengths to a list of work
///   for each layer      AttendKernel       `limits.blocks` blocks, equal shares of the list
///                       MergePartsKernel   one block fewer: joins what the shares' borders cut
///                       MergeSpansKernel   any grid: joins shared rows and what each chunk has besides; where they are
///
/// Launch them with `device.cuh`, or call the functors from a kernel of your own. Grids and arguments depend on `limits` alone,
/// all that changes from step to step is read on the device: a captured graph runs any step within its limits. Empty
/// chunks and padding are harmless. The same grid gives the same bits, whatever else the GPU does.
///
/// How an item is divided: `device_work.hpp`. Who shares rows: `device_share.hpp`. How its rows come: `device_rows.hpp`. What a step of it is: `device_step.hpp`.
/// What tokens see, and what a score is, is that of the host: window, soft cap, token trees, bias (`shape.hpp`, `bias.hpp`).
/// Two-way spans are the host's alone: a work has none, and a view cannot say them.
///
/// **Element** half or bfloat16, or a type of their bits (`matrix_element.hpp`); others do not compile, and say why.
/// **In a kernel of your own** a block has `max_threads` threads, no more and no fewer; `shared_bytes` above 48 KiB are asked for
/// first (`cudaFuncAttributeMaxDynamicSharedMemorySize`); and that kernel writes no queries: they are read past the cache that
/// would see it.
/// **Head sizes** `DeviceWork::head_dims`; the largest needs 77 KiB of shared memory a block, of the 99 that sm_86, sm_89 and sm_120 have.
/// **Accuracy** within 1e-3 of attention in double precision for values of the size
/// of 1 and queries that are exact in the element; `-use_fast_math` makes a soft cap's tanh worse than that. The sums of a share
/// run in float from its first row to its last; up to 65,536 rows this adds nothing that shows beside the rounding of weights.

#include <kvcache/attention/device_attend.hpp>
#include <kvcache/attention/device_merge.hpp>
#include <kvcache/attention/device_plan.hpp>
#include <kvcache/attention/device_share.hpp>
#include <kvcache/attention/device_work.hpp>
