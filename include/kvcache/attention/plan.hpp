// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/shape.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// \file Who computes what in one step.
///
///   sequence a, one token, 4,096 rows    [ item 0: rows 0..2047 ][ item 1: rows 2048..4095 ]  merge 0
///   sequence b, a chunk of 40 tokens     [ item 2: tokens 0..15, head 0 ][ item 3: tokens 16..31, .. ]
///
/// A decode item takes all KV heads over a range of rows, because the heads of a page lie side by side; a
/// prefill item takes one head and as many tokens as its state has room for, because there arithmetic
/// counts. Long rows are cut along KV where there are fewer items than workers can use, and a merge joins
/// the parts.

namespace kvcache::inline v0_1 {

/// One piece of work: some query rows against a range of KV rows.
struct AttentionItem {
  Index first_token;  ///< of the step
  Index tokens;
  Index sees;               ///< rows up to the first token's own; one more for each token after it
  std::uint32_t row;        ///< table row of the sequence
  std::int32_t first_head;  ///< KV heads
  std::int32_t heads;
  std::int32_t first_query;  ///< inside the group of a KV head
  std::int32_t queries;
  Index begin;  ///< KV rows [begin, end), begin a multiple of 32
  Index end;
  std::size_t
    partial;  ///< where the part's state lies in the scratch, in floats; `whole`: straight to `out`

  static constexpr std::size_t whole = ~std::size_t{0};
  /// Query rows, over all tokens, heads and queries.
  [[nodiscard]] constexpr std::size_t rows() const noexcept
  {
    return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads) *
           static_cast<std::size_t>(queries);
  }
};

/// The work items of one step, made once and valid for all its layers.
/// **Threads** after `make`, any number may read it.
class AttentionPlan {
 public:
  /// Divides the step that `view` shows. **Pre** the view's arrays are host memory.
  /// **Post** on success the items cover each (token, query head) once. On an error the plan is empty.
  /// **Cost** O(items); allocates only where a step has more items than any before it.
  /// **Errors** `bad_config` names the field of `shape` or `options`.
  template <class Layout>
  Result<Done> make(BatchView<Layout> const& view,
                    AttentionShape shape,
                    AttentionOptions options = {});

  /// Items that `attend` runs, in any order, each once.
  [[nodiscard]] std::size_t num_items() const noexcept { return items_.size(); }
  /// Merges that `merge` runs once every item is done; 0 in most batches.
  [[nodiscard]] std::size_t num_merges() const noexcept { return merges_.size(); }
  /// **Units** floats that one layer in work needs.
  [[nodiscard]] std::size_t scratch_floats() const noexcept { return scratch_floats_; }
  [[nodiscard]] AttentionItem const& item(std::size_t i) const noexcept { return items_[i]; }
  [[nodiscard]] AttentionShape const& shape() const noexcept { return shape_; }
  [[nodiscard]] std::int32_t head_dim() const noexcept { return head_dim_; }
  /// The set that the items run with; never `best`.
  [[nodiscard]] InstructionSet instructions() const noexcept { return instructions_; }

  /// The parts of one merge: items `first .. first + parts - 1` hold states of the same query rows.
  struct Merge {
    std::size_t first;
    std::size_t parts;
  };
  [[nodiscard]] Merge const& merge(std::size_t i) const noexcept { return merges_[i]; }

 private:
  using Cost = std::int64_t;

  static constexpr Cost load_cost = 4;  // of a KV row, in query rows that meet it
  static constexpr Cost least_cost =
    2048;  // of an item, some microseconds: below it handing out costs more
  static constexpr Index least_part = 128;  // rows
  static constexpr Cost items_per_worker = 2;

  Error start(AttentionShape shape, AttentionOptions options, std::int32_t head_dim);
  void add(ChunkView const& chunk, Cost target);
  void add_rows(AttentionItem rows, Cost target);

  /// Cost of `item` against all the rows it sees.
  static Cost cost(AttentionItem const& item) noexcept
  {
    Cost const tokens = item.tokens;
    Cost const pairs = item.queries * (tokens * item.sees + tokens * (tokens - 1) / 2);
    return item.heads * (pairs + load_cost * (item.sees + tokens - 1));
  }

  std::vector<AttentionItem> items_;
  std::vector<Merge> merges_;
  std::size_t scratch_floats_ = 0;
  AttentionShape shape_{};
  AttentionOptions options_{};
  std::int32_t head_dim_ = 0;
  InstructionSet instructions_ = InstructionSet::portable;
};

namespace detail {

/// Query rows that fit the state of one item, which lives on the stack of the thread that runs it.
struct AttentionState {
  static constexpr std::int32_t floats = 8192;  // of the queries, and of the outputs
  static constexpr std::int32_t max_rows = 128;
  static constexpr std::int32_t widest_step = 32;  // dimensions are padded to this at most

  [[nodiscard]] static constexpr std::int32_t rows(std::int32_t head_dim) noexcept
  {
    std::int32_t const fit = floats / ((head_dim + widest_step - 1) / widest_step * widest_step);
    return fit < max_rows ? fit : max_rows;
  }
};

}  // namespace detail

inline Error AttentionPlan::start(AttentionShape shape,
                                  AttentionOptions options,
                                  std::int32_t head_dim)
{
  items_.clear();
  merges_.clear();
  scratch_floats_ = 0;
  Error error = shape.validate();
  if (error.why == Why::ok) {
    error = options.validate();
  }
  if (error.why != Why::ok) {
    return error;
  }
  InstructionSet const best = best_instruction_set();
  instructions_ = options.instructions == InstructionSet::best ? best : options.instructions;
  if (instructions_ > best) {
    return {Why::bad_config,
            "instructions",
            static_cast<std::int64_t>(instructions_),
            "this processor offers no set beyond number",
            static_cast<std::int64_t>(best)};
  }
  shape_ = shape;
  options_ = options;
  head_dim_ = head_dim;
  return {};
}

/// Cuts one set of query rows along KV, and along heads where that is not enough.
inline void AttentionPlan::add_rows(AttentionItem rows, Cost target)
{
  Index const seen = rows.end;
  Cost const all = cost(rows);
  Index part = seen;
  if (options_.split_rows > 0) {
    part = options_.split_rows;
  } else if (options_.workers > 1 && all > target) {
    Cost parts = (all + target - 1) / target;
    parts = parts < seen / least_part ? parts : seen / least_part;
    if (parts > options_.workers) {
      parts -= parts % options_.workers;  // equal shares for callers that hand out in turn
    }
    if (parts > 1) {
      constexpr Index block = AttentionOptions::rows_per_block;
      part = (seen + static_cast<Index>(parts) * block - 1) / (static_cast<Index>(parts) * block) *
             block;
    }
  }
  std::size_t const parts = seen > part ? static_cast<std::size_t>((seen - 1) / part + 1) : 1;
  Cost const share = all / static_cast<Cost>(parts);
  Cost const ways = (share + target - 1) / target;
  std::int32_t const heads = rows.heads;
  std::int32_t const step =
    ways == 0      ? heads
    : ways < heads ? (heads + static_cast<std::int32_t>(ways) - 1) / static_cast<std::int32_t>(ways)
                   : 1;
  std::int32_t const first_head = rows.first_head;
  for (std::int32_t h = 0; h < heads; h += step) {
    rows.first_head = first_head + h;
    rows.heads = step < heads - h ? step : heads - h;
    if (parts > 1) {
      merges_.push_back({items_.size(), parts});
    }
    for (std::size_t i = 0; i < parts; ++i) {
      rows.begin = static_cast<Index>(i) * part;
      rows.end = seen - rows.begin < part ? seen : rows.begin + part;
      rows.partial = parts > 1 ? scratch_floats_ : AttentionItem::whole;
      items_.push_back(rows);
      if (parts > 1) {
        scratch_floats_ += rows.rows() * (static_cast<std::size_t>(head_dim_) + 1);
      }
    }
  }
}

/// Cuts one chunk into sets of query rows that fit the state of an item.
inline void AttentionPlan::add(ChunkView const& chunk, Cost target)
{
  std::int32_t const room = detail::AttentionState::rows(head_dim_);
  std::int32_t const group = shape_.group();
  Index tokens = chunk.tokens;
  std::int32_t queries = group;
  std::int32_t heads = 1;
  if (group > room) {
    tokens = 1;
    std::int32_t const pieces = (group + room - 1) / room;
    queries = (group + pieces - 1) / pieces;
  } else if (tokens > room / group) {
    tokens = room / group;
  } else {
    heads = room / (tokens * group);
  }
  bool const padding = chunk.first_index < 0;
  for (std::int32_t h = 0; h < shape_.kv_heads; h += heads) {
    for (Index t = 0; t < chunk.tokens; t += tokens) {
      for (std::int32_t q = 0; q < group; q += queries) {
        AttentionItem rows{.first_token = chunk.first_token + t,
                           .tokens = tokens < chunk.tokens - t ? tokens : chunk.tokens - t,
                           .sees = padding ? 0 : chunk.first_index + t + 1,
                           .row = chunk.row,
                           .first_head = h,
                           .heads = heads < shape_.kv_heads - h ? heads : shape_.kv_heads - h,
                           .first_query = q,
                           .queries = queries < group - q ? queries : group - q,
                           .begin = 0,
                           .end = 0,
                           .partial = AttentionItem::whole};
        rows.end = padding ? 0 : rows.sees + rows.tokens - 1;
        add_rows(rows, target);
      }
    }
  }
}

template <class Layout>
Result<Done> AttentionPlan::make(BatchView<Layout> const& view,
                                 AttentionShape shape,
                                 AttentionOptions options)
{
  if (Error const error = start(shape, options, view.map.dim.get()); error.why != Why::ok) {
    return error;
  }
  Cost total = 0;
  for (Index c = 0; c < view.num_chunks(); ++c) {
    ChunkView const chunk = view.chunk(c);
    total += cost({.first_token = 0,
                   .tokens = chunk.tokens,
                   .sees = chunk.first_index < 0 ? 0 : chunk.first_index + 1,
                   .row = 0,
                   .first_head = 0,
                   .heads = shape.kv_heads,
                   .first_query = 0,
                   .queries = shape.group(),
                   .begin = 0,
                   .end = 0,
                   .partial = 0});
  }
  Cost const share = options.workers == 1 ? total : total / (items_per_worker * options.workers);
  for (Index c = 0; c < view.num_chunks(); ++c) {
    add(view.chunk(c), share < least_cost ? least_cost : share);
  }
  return Done{};
}

}  // namespace kvcache::inline v0_1
