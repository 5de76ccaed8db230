// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/item.hpp>
#include <kvcache/attention/planner.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/attention/work.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1 {

/// The work items of one step, made once and valid for all its layers of one shape; how: `planner.hpp`.
///
///   plan.make(view, {.query_heads = 32, .kv_heads = 8, .soft_cap = 50.0F, .window = 4096},
///             {.workers = 8, .shared_rows = 512});
///
/// **Threads** after `make`, any number may read it.
class AttentionPlan {
 public:
  /// Divides the step that `view` shows. **Pre** the view's arrays are host memory.
  /// **Post** on success the items cover each (token, query head) once. On an error the plan is empty.
  /// **Cost** O(tokens + items), with `shared_rows` also the comparisons of `shared_prefix.hpp`; allocates only
  /// where a step has more than any before it.
  /// **Errors** `bad_config` names the field of `shape` or `options`.
  template <class Layout>
  Result<Done> make(BatchView<Layout> const& view,
                    AttentionShape shape,
                    AttentionOptions options = {})
  {
    Error const error = planner_.make(view, shape, options, work_);
    if (error.why != Why::ok) {
      work_.clear();
      return error;
    }
    return Done{};
  }

  /// Items that `attend` runs, in any order, each once.
  [[nodiscard]] std::size_t num_items() const noexcept { return work_.items.size(); }
  /// Merges that `merge` runs once every item is done; 0 in most batches.
  [[nodiscard]] std::size_t num_merges() const noexcept { return work_.merges.size(); }
  /// **Units** floats that one layer in work needs.
  [[nodiscard]] std::size_t scratch_floats() const noexcept { return work_.scratch_floats; }

  /// Items `[first, last)`.
  struct Share {
    std::size_t first;
    std::size_t last;
  };
  /// The items of worker `worker`, for work that is handed out in advance. **Pre** `worker < options.workers`.
  /// **Post** shares cover the items. Without `split_rows` none costs more than an equal one and 128 rows of its
  /// costliest item and 2,048, what no item is cut below.
  [[nodiscard]] Share share(std::int32_t worker) const noexcept
  {
    auto const w = static_cast<std::size_t>(worker);
    return {work_.shares[w], work_.shares[w + 1]};
  }
  /// What an item is reckoned at. **Units** query rows that meet a KV row of one head; a load counts as four.
  [[nodiscard]] std::int64_t cost(AttentionItem const& item) const noexcept
  {
    return work_.cost(item);
  }

  [[nodiscard]] AttentionItem const& item(std::size_t i) const noexcept { return work_.items[i]; }
  [[nodiscard]] AttentionMerge const& merge(std::size_t i) const noexcept
  {
    return work_.merges[i];
  }
  /// Which items are the parts of a merge, in order of KV rows.
  [[nodiscard]] std::size_t const* parts(AttentionMerge const& merge) const noexcept
  {
    return work_.parts.data() + merge.first_part;
  }
  [[nodiscard]] AttentionShape const& shape() const noexcept { return work_.shape; }
  [[nodiscard]] std::int32_t head_dim() const noexcept { return work_.head_dim; }
  /// The set that the items run with; never `best`.
  [[nodiscard]] InstructionSet instructions() const noexcept { return work_.instructions; }
  /// The rows that a token of the step sees.
  [[nodiscard]] Sight sight(Index token) const noexcept { return work_.sight(token); }
  /// The token of the step that is number `t` of an item's.
  [[nodiscard]] Index token(AttentionItem const& item, Index t) const noexcept
  {
    return work_.token(item, t);
  }
  /// The row of `out` and `lse`, counted over (token, query head), of an item's query row `r`.
  [[nodiscard]] std::size_t output_row(AttentionItem const& item, std::size_t r) const noexcept
  {
    auto const queries = static_cast<std::size_t>(item.queries);
    auto const tokens = static_cast<std::size_t>(item.tokens);
    std::size_t const head = static_cast<std::size_t>(item.first_head) + r / (tokens * queries);
    auto const at = static_cast<std::size_t>(token(item, static_cast<Index>(r / queries % tokens)));
    return at * static_cast<std::size_t>(shape().query_heads) +
           head * static_cast<std::size_t>(shape().group()) +
           static_cast<std::size_t>(item.first_query) + r % queries;
  }

 private:
  detail::AttentionWork work_;
  detail::AttentionPlanner planner_;  // kept for its memory
};

}  // namespace kvcache::inline v0_1
