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
/// The query rows of a KV head go through a block together, up to six at a time, so each K and V is loaded and widened
/// once for them, while the next block comes from memory. With AVX-512, sixteen of them, as in prefill or over a shared
/// prefix, are a group: the queries are turned round and not the block (`block_grouped.inc`).
/// All arithmetic is in float, but sums over many rows: a block's are added up first, then those of 16 blocks, and these in
/// double (`block_sums.inc`). So an output is within 2e-6 of sum(w |v|), w the weights, from one row to four million, with scores of
/// a deviation of up to 1, any number of workers and splits, and each instruction set. Rows past the end are never touched: a row of a block is reached through its own pointer, and only rows that hold tokens
/// have one; this is also why a page may have any number of tokens.
///
/// What a token sees (`sight.hpp`): a block that it sees in part, at the edge of a window or in a tree of drafts, is met
/// as a block of its own in which the other rows are left out by the same pointers. So they are not read at all,
/// blocks before a window are not even looked up, a part in which a token sees no row is an empty one, and a
/// tree that is a chain has the bits of a plain chunk.
///
/// Sequences that begin with the same pages may share the pass over them (`AttentionOptions::shared_rows`):
///
///   a, b, c: one token each    [ pages of all three: loaded once, 3 x heads query rows ][ a's rest ]
///                                                                                      [ b's rest ]
///                                                                                      [ c's rest ]
///
/// What holds of the result, bit for bit. A plan gives the same bits whichever thread runs which item, in
/// any order. Blocks start at multiples of 32 in the sequence and a query row never meets another, so with
/// `workers = 1`, or with `split_rows` set, a row has the same bits whatever the chunk boundaries, the
/// batch, `page_tokens` and the number of workers, for sums are taken together at multiples of 512; with `split_rows` also whether prefixes are shared. Without it
/// the cuts along KV, and so the last bits, depend on the whole batch and the number of workers: outputs of the size
/// of 1 then differ by less than 1e-6. Instruction sets differ in the last bits.
///
/// Cost: decode reads each K and V once; one item uses up to 250 KiB of stack. No allocation.
/// Files of one program may have different -march: this code has a name for each (KVCACHE_FLAGS), so a machine without AVX that
/// calls the files compiled without it meets none (from -O1 on; without optimization any function may be another file's).
/// Compilers: all of this also holds with -ffast-math and its parts, but that a NaN need not stay one.
/// Sources: what is shared, `shared_prefix.hpp`; soft cap and window, `shape.hpp`; Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
/// "FlashAttention", 2022; "Flash-Decoding", 2023; Kwon et al., "PagedAttention", SOSP 2023.

#include <kvcache/attention/bias.hpp>
#include <kvcache/attention/item.hpp>
#include <kvcache/attention/kernels.hpp>
#include <kvcache/attention/merge.hpp>
#include <kvcache/attention/plan.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1 {

namespace detail::inline KVCACHE_FLAGS {

/// The states of one query row, in parts, for `join_states`: plain data, so that the same body may join them anywhere.
struct RowParts {
  AttentionItem const* items;
  std::size_t const* parts;  // places in `items`
  float const* scratch;
  Index token;      // of the step
  Index shared_at;  // its place in the list of tokens of parts that are shared
  std::int32_t head;
  std::int32_t query;
  std::int32_t head_dim;

  [[nodiscard]] KVCACHE_HOST_DEVICE PartState operator()(std::size_t i) const noexcept
  {
    AttentionItem const& from = items[parts[i]];
    std::size_t const r =
      from.row_of((from.shared ? shared_at : token) - from.first_token, head, query);
    float const* const o = scratch + from.partial;  // rows x dim outputs, then rows logs
    auto const dim = static_cast<std::size_t>(head_dim);
    return {o + r * dim, o[from.rows() * dim + r]};
  }
};

}  // namespace detail::inline KVCACHE_FLAGS

inline namespace KVCACHE_FLAGS {

/// Runs item `item` of `plan` for one layer. `bias` adds to each score; see `bias.hpp`.
/// **Pre** `view` shows the step that the plan was made for, its K and V are written, `item < num_items()`;
/// `io.scratch` holds `plan.scratch_floats()` floats. **Post** the item's rows of `io.out` and `io.lse` are
/// final, or its part of the scratch is. Padding gets zeros and -infinity.
/// **Cost** up to 250 KiB of stack. **Threads** items run beside each other on any threads.
template <class Layout, ScoreBias Bias = NoBias>
void attend(BatchView<Layout> const& view,
            AttentionPlan const& plan,
            std::int32_t layer,
            AttentionTensors const& io,
            std::size_t item,
            Bias const& bias = {}) noexcept
{
  switch (plan.instructions()) {
#if defined(__x86_64__)
    case InstructionSet::avx512:
      return detail::avx512::Kernel<detail::avx512::Vector>::run(
        view, plan, layer, io, plan.item(item), bias);
    case InstructionSet::avx2:
      return detail::avx2::Kernel<detail::avx2::Vector>::run(
        view, plan, layer, io, plan.item(item), bias);
#endif
    default:
      return detail::portable::Kernel<detail::portable::Vector<8>>::run(
        view, plan, layer, io, plan.item(item), bias);
  }
}

/// Joins the parts of merge `item`. **Pre** every `attend` of this layer has returned.
/// **Post** the rows of `io.out` and `io.lse` are final. **Cost** reads each part once.
/// **Threads** merges run beside each other on any threads.
inline void merge(AttentionPlan const& plan, AttentionTensors const& io, std::size_t item) noexcept
{
  AttentionMerge const& join = plan.merge(item);
  auto const dim = static_cast<std::size_t>(plan.head_dim());
  for (std::int32_t head = join.first_head; head < join.first_head + join.heads; ++head) {
    for (Index t = 0; t < join.tokens; ++t) {
      for (std::int32_t q = join.first_query; q < join.first_query + join.queries; ++q) {
        detail::RowParts const part{.items = &plan.item(0),
                                    .parts = plan.parts(join),
                                    .scratch = io.scratch,
                                    .token = join.first_token + t,
                                    .shared_at = join.shared_at + t,
                                    .head = head,
                                    .query = q,
                                    .head_dim = plan.head_dim()};
        std::size_t const row = static_cast<std::size_t>(join.first_token + t) *
                                  static_cast<std::size_t>(plan.shape().query_heads) +
                                static_cast<std::size_t>(head * plan.shape().group() + q);
        float const lse =
          detail::join_states(Solo{}, part, join.parts, plan.head_dim(), io.out + row * dim);
        if (io.lse != nullptr) {
          io.lse[row] = lse;
        }
      }
    }
  }
}

/// Runs every item and merge of `plan` for one layer: for callers with one thread.
/// **Pre** as `attend`; a plan for one worker without `split_rows` and `shared_rows` needs no scratch.
template <class Layout, ScoreBias Bias = NoBias>
void attend_all(BatchView<Layout> const& view,
                AttentionPlan const& plan,
                std::int32_t layer,
                AttentionTensors const& io,
                Bias const& bias = {}) noexcept
{
  for (std::size_t i = 0; i < plan.num_items(); ++i) {
    attend(view, plan, layer, io, i, bias);
  }
  for (std::size_t i = 0; i < plan.num_merges(); ++i) {
    merge(plan, io, i);
  }
}

}  // namespace KVCACHE_FLAGS

}  // namespace kvcache::inline v0_1
