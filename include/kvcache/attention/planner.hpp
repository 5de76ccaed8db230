// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/item.hpp>
#include <kvcache/attention/sets.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/work.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// \file Who computes what in one step.
///
///   sets    a: 1 token, 4,096 rows [----------------]  b: 1 token [--]  c: 40 tokens [-][-][-]   each its cost long
///   bounds  |           |            |           |            |            |            |        two a worker
///   items   [    0     ][     1     ][    2     ] [    3     ] [   4  ][ 5 ]                     cut at bounds
///   shares  worker 0 ............... worker 1 ............... worker 2 ..                         in advance, or any
///
/// A decode set takes all KV heads, because the heads of a page lie side by side; a prefill set takes one head and
/// as many tokens as its state has room for, because there arithmetic counts; a shared set takes the tokens of
/// many sequences over the pages that all of them begin with. The sets in a row are cut along KV where equal shares
/// end, so that lengths from 1 to 100,000 in one step keep every worker busy with few cuts; short ones are cut along
/// heads. A merge joins what was cut.
///
/// Source: one line of work cut into equal shares is the stream-K decomposition, Osama et al., PPoPP 2023.

namespace kvcache::inline v0_1::detail {

/// See the file comment. Keeps its memory from step to step.
class AttentionPlanner {
 public:
  /// Fills `work`. **Errors** names the field; `work` is then in part.
  template <class Layout>
  Error make(BatchView<Layout> const& view,
             AttentionShape const& shape,
             AttentionOptions const& options,
             AttentionWork& work)
  {
    Error const error = sets_.make(view, shape, options, work);
    if (error.why == Why::ok) {
      cut_all(options, work);
    }
    return error;
  }

 private:
  using Cost = std::int64_t;

  static constexpr Cost least_cost =
    2048;  // of an item, some microseconds: below it handing out costs more
  static constexpr Cost items_per_worker = 2;
  static constexpr Index least_part = 64;  // rows; an item may reach that far into another share
  static constexpr Index block = AttentionOptions::rows_per_block;
  static constexpr std::size_t none = AttentionSet::none;

  /// Sequences over the same prefix: `shared_items_[first .. last - 1]`.
  struct Piece {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  struct SharedItems {
    std::int32_t first_head;
    std::int32_t heads;
    std::size_t first;
    std::size_t items;
  };

  void cut_all(AttentionOptions const& options, AttentionWork& work)
  {
    pieces_.assign(sets_.pieces(), Piece{});
    shared_items_.clear();
    Cost total = 0;
    for (AttentionSet const& set : sets_.sets()) {
      total += work.cost(set.rows);
    }
    Cost const even = options.workers == 1 ? total : total / (items_per_worker * options.workers);
    target_ = even < least_cost ? least_cost : even;
    position_ = 0;
    for (AttentionSet const& set : sets_.sets()) {
      cut(set, options, work);
    }
    // An item belongs to the worker in whose share its middle lies.
    work.shares.push_back(0);
    Cost at = 0;
    for (std::size_t i = 0; i < work.items.size(); ++i) {
      Cost const cost = work.cost(work.items[i]);
      Cost const worker = total == 0 ? 0 : (2 * at + cost) * options.workers / (2 * total);
      while (static_cast<Cost>(work.shares.size()) <= worker &&
             work.shares.size() < static_cast<std::size_t>(options.workers)) {
        work.shares.push_back(i);
      }
      at += cost;
    }
    work.shares.resize(static_cast<std::size_t>(options.workers) + 1, work.items.size());
  }

  void cut(AttentionSet const& set, AttentionOptions const& options, AttentionWork& work)
  {
    std::int32_t const heads = heads_together(set.rows, options, work);
    AttentionItem rows = set.rows;
    for (std::int32_t h = 0; h < set.rows.heads; h += heads) {
      rows.first_head = set.rows.first_head + h;
      rows.heads = least(heads, set.rows.heads - h);
      rows.begin = set.rows.begin;
      std::size_t const first = work.items.size();
      do {
        rows.end = set.rows.end;
        rows.end = next_cut(rows, options, work);
        position_ += work.cost(rows);
        work.items.push_back(rows);
        rows.begin = rows.end;
      } while (rows.end < set.rows.end);
      finish(set, rows, first, work);
    }
  }

  /// How many heads go together, so that a set too short for its cuts along KV still makes work for all.
  std::int32_t heads_together(AttentionItem const& rows,
                              AttentionOptions const& options,
                              AttentionWork const& work) const
  {
    Cost const wanted = (work.cost(rows) + target_ - 1) / target_;
    Cost const part = options.split_rows > 0 ? options.split_rows : least_part;
    Cost const along = (rows.end - rows.begin) / part + 1;
    if (options.workers == 1 || wanted <= along) {
      return rows.heads;
    }
    auto const heads = static_cast<std::int32_t>(rows.heads * along / wanted);
    return heads < 1 ? 1 : heads;
  }

  /// Where the part that begins at `rows.begin` ends. **Pre** `rows.end` is the end of the set.
  Index next_cut(AttentionItem rows,
                 AttentionOptions const& options,
                 AttentionWork const& work) const
  {
    Index const end = rows.end;
    if (options.split_rows > 0) {
      return least(end, (rows.begin / options.split_rows + 1) * options.split_rows);
    }
    if (options.workers == 1 || end - rows.begin < 2 * least_part) {
      return end;
    }
    Cost to = target_ - position_ % target_;
    rows.end = rows.begin + least_part;
    if (work.cost(rows) > to) {
      to += target_;
    }
    Index low = rows.end / block;  // the first boundary that reaches `to` lies behind it
    Index high = (end + block - 1) / block;
    while (low + 1 < high) {
      Index const middle = low + (high - low) / 2;
      rows.end = middle * block;
      (work.cost(rows) < to ? low : high) = middle;
    }
    return high * block > end - least_part ? end : high * block;
  }

  /// Notes who joins the parts of one range of heads: `work.items[first ..]`, the last of them `rows`.
  void finish(AttentionSet const& set,
              AttentionItem const& rows,
              std::size_t first,
              AttentionWork& work)
  {
    std::size_t const items = work.items.size() - first;
    if (set.piece == none && items == 1) {
      return;
    }
    for (std::size_t i = first; i < work.items.size(); ++i) {
      work.items[i].partial = work.scratch_floats;
      work.scratch_floats += rows.rows() * (static_cast<std::size_t>(work.head_dim) + 1);
    }
    if (set.piece == none) {
      join(rows, set.at, nullptr, first, work);
      return;
    }
    Piece& piece = pieces_[set.piece];
    if (rows.shared) {
      piece.first = piece.last == 0 ? shared_items_.size() : piece.first;
      shared_items_.push_back({rows.first_head, rows.heads, first, items});
      piece.last = shared_items_.size();
      return;
    }
    for (std::size_t i = piece.first; i < piece.last; ++i) {
      SharedItems const& before = shared_items_[i];
      std::int32_t const from =
        before.first_head > rows.first_head ? before.first_head : rows.first_head;
      std::int32_t const to = least(before.first_head + before.heads, rows.first_head + rows.heads);
      if (from < to) {
        AttentionItem some = rows;
        some.first_head = from;
        some.heads = to - from;
        join(some, set.at, &before, first, work);
      }
    }
  }

  /// A merge of the query rows of `rows`: parts in a shared prefix, then those from item `first` on.
  static void join(AttentionItem const& rows,
                   Index at,
                   SharedItems const* before,
                   std::size_t first,
                   AttentionWork& work)
  {
    std::size_t const first_part = work.parts.size();
    for (std::size_t i = 0; before != nullptr && i < before->items; ++i) {
      work.parts.push_back(before->first + i);
    }
    for (std::size_t i = first; i < work.items.size(); ++i) {
      work.parts.push_back(i);
    }
    work.merges.push_back({.first_token = rows.first_token,
                           .tokens = rows.tokens,
                           .shared_at = at,
                           .first_head = rows.first_head,
                           .heads = rows.heads,
                           .first_query = rows.first_query,
                           .queries = rows.queries,
                           .first_part = first_part,
                           .parts = work.parts.size() - first_part});
  }

  static constexpr std::int32_t least(std::int32_t a, std::int32_t b) { return a < b ? a : b; }

  AttentionSets sets_;
  std::vector<Piece> pieces_;
  std::vector<SharedItems> shared_items_;
  Cost target_ = 0;
  Cost position_ = 0;  // of the next item on the line of all costs
};

}  // namespace kvcache::inline v0_1::detail
