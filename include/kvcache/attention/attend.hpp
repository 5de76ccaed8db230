// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Attention on the host: decode and prefill over pages, by the caller's threads.
///
///   per step    plan.make(view, shape, {.workers = n})      who computes what, valid for all layers
///   per layer   attend(view, plan, layer, io, i)            i in 0 .. num_items: any thread, any order
///               -- all items done --
///               merge(plan, io, i)                          i in 0 .. num_merges: usually none
///
/// The library starts no thread. An item takes some query rows (tokens x heads) through a range of KV rows
/// and keeps, per query row, the running maximum m, the sum l and the output o of an online softmax:
///
///   for each block of 32 rows     s = q K     m' = max(m, s)     p = exp(s - m')     o = o exp(m - m') + p V
///   ranges of one query row       O = sum exp(L_i - L) O_i       L = log sum exp(L_i)        (`merge.hpp`)
///
/// The query heads of a KV head go through a block together, up to four at a time, so each K and V is loaded
/// and widened once, while the next block comes from memory. All arithmetic is in float. Rows past the end
/// are never touched: a row of a block is reached through its own pointer, and only rows that hold tokens
/// have one; this is also why a page may have any number of tokens.
///
/// Trees of drafts: a block of 32 rows before the chunk is met as ever; from the chunk's first row on, each
/// token gets a block of its own in which the rows of other branches are left out by the same pointers. So they
/// are not read at all, a part in which a token sees no row is an empty one, and a tree that is a chain has the
/// bits of a plain chunk.
///
/// What holds of the result, bit for bit. A plan gives the same bits whichever thread runs which item, in
/// any order. Blocks start at multiples of 32 in the sequence and a query row never meets another, so with
/// `workers = 1`, or with `split_rows` set, a row has the same bits whatever the chunk boundaries, the
/// batch, `page_tokens` and the number of workers. Without `split_rows` the cuts along KV, and so the last
/// bits, depend on the whole batch and the number of workers. Instruction sets differ in the last bits.
///
/// Cost: decode reads each K and V once; one item uses about 80 KiB of stack. No allocation.
/// Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
/// "FlashAttention", 2022; "Flash-Decoding", 2023; Kwon et al., "PagedAttention", SOSP 2023.

#include <kvcache/attention/kernels.hpp>
#include <kvcache/attention/merge.hpp>
#include <kvcache/attention/plan.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1 {

/// Runs item `item` of `plan` for one layer.
/// **Pre** `view` shows the step that the plan was made for, its K and V are written, `item < num_items()`;
/// `io.scratch` holds `plan.scratch_floats()` floats. **Post** the item's rows of `io.out` and `io.lse` are
/// final, or its part of the scratch is. Padding gets zeros and -infinity.
/// **Cost** about 80 KiB of stack. **Threads** items run beside each other on any threads.
template <class Layout>
void attend(BatchView<Layout> const& view,
            AttentionPlan const& plan,
            std::int32_t layer,
            AttentionTensors const& io,
            std::size_t item) noexcept
{
  switch (plan.instructions()) {
#if defined(__x86_64__)
    case InstructionSet::avx512:
      return detail::avx512::Kernel<detail::avx512::Vector>::run(
        view, plan, layer, io, plan.item(item));
    case InstructionSet::avx2:
      return detail::avx2::Kernel<detail::avx2::Vector>::run(
        view, plan, layer, io, plan.item(item));
#endif
    default:
      return detail::portable::Kernel<detail::portable::Vector<8>>::run(
        view, plan, layer, io, plan.item(item));
  }
}

/// Joins the parts of merge `item`. **Pre** every `attend` of this layer has returned.
/// **Post** the rows of `io.out` and `io.lse` are final. **Cost** reads each part once.
/// **Threads** merges run beside each other on any threads.
inline void merge(AttentionPlan const& plan, AttentionTensors const& io, std::size_t item) noexcept
{
  AttentionPlan::Merge const& join = plan.merge(item);
  AttentionItem const& part = plan.item(join.first);
  std::size_t const rows = part.rows();
  auto const dim = static_cast<std::size_t>(plan.head_dim());
  float const* const states =
    io.scratch + part.partial;  // each part: rows x dim outputs, then rows logs
  std::size_t const stride = rows * (dim + 1);
  for (std::size_t r = 0; r < rows; ++r) {
    std::size_t const row = detail::output_row(plan.shape(), part, r);
    float const lse = merge_states(Solo{},
                                   states + r * dim,
                                   stride,
                                   states + rows * dim + r,
                                   stride,
                                   join.parts,
                                   plan.head_dim(),
                                   io.out + row * dim);
    if (io.lse != nullptr) {
      io.lse[row] = lse;
    }
  }
}

/// Runs every item and merge of `plan` for one layer: for callers with one thread.
/// **Pre** as `attend`; a plan made for one worker without `split_rows` needs no scratch.
template <class Layout>
void attend_all(BatchView<Layout> const& view,
                AttentionPlan const& plan,
                std::int32_t layer,
                AttentionTensors const& io) noexcept
{
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    attend(view, plan, layer, io, i);
  }
  for (std::size_t i = 0; i < plan.num_merges(); ++i) {
    merge(plan, io, i);
  }
}

}  // namespace kvcache::inline v0_1
