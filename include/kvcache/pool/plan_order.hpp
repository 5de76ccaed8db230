// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstdint>

/// \file What a pool knows of the plans before: a plan that comes twice, too late, or in another's slot is refused, and so is
/// one that says two things of one row or page.
///
/// A slot belongs to a stream, as control numbers them. Steps of a stream come in the order of their numbers. A plan made by
/// hand may leave its step 0; then its slot must be new, or abandoned.
///
/// Cost: O(plan); 8 bytes of host memory a page and a row, touched where plans name them.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
class PlanOrder {
 public:
  PlanOrder() = default;
  /// **Errors** `std::bad_alloc`.
  explicit PlanOrder(ControlOptions const& options)
      : rows_(options.max_sequences), pages_(std::size_t{options.pages} + 1)
  {
  }

  /// The first thing that is wrong beside the plans before, or with itself.
  /// **Pre** rows, pages and the slot of the plan are those of the pool.
  [[nodiscard]] Error check(Plan const& plan) noexcept
  {
    if (plan.stream.value >= max_streams) {
      return {Why::bad_config, "plan.stream", plan.stream.value, "must be below", max_streams};
    }
    if (plan.slot / slots_per_stream != plan.stream.value) {
      return {Why::bad_config,
              "plan.slot",
              plan.slot,
              "must be one of its stream's three, of which the first is",
              std::int64_t{plan.stream.value} * slots_per_stream};
    }
    if (Error const error = check_step(plan); error.why != Why::ok) {
      return error;
    }
    ++now_;
    for (TableDelta const& delta : plan.tables) {
      if (seen(rows_[delta.row.value])) {
        return {Why::bad_config, "plan.tables.row", delta.row.value, "must be named once"};
      }
    }
    ++now_;
    for (PlannedChunk const& chunk : plan.chunks) {
      if (seen(rows_[chunk.row.value])) {
        return {Why::bad_config, "plan.chunks.row", chunk.row.value, "must be named once"};
      }
    }
    return check_copies(plan);
  }
  /// The plan is applied.
  void note(Plan const& plan) noexcept
  {
    used_[plan.slot] = true;
    latest_[plan.stream.value] =
      plan.step.value != 0 ? plan.step.value : latest_[plan.stream.value];
  }
  /// The slot's step is over before its time.
  void abandon(std::uint32_t slot) noexcept { used_[slot] = false; }

 private:
  static constexpr std::uint32_t slots_per_stream = Plan::num_slots / max_streams;

  [[nodiscard]] Error check_step(Plan const& plan) const noexcept
  {
    std::uint64_t const latest = latest_[plan.stream.value];
    if (plan.step.value != 0 && plan.step.value <= latest) {
      return {Why::bad_config,
              "plan.step",
              static_cast<std::int64_t>(plan.step.value),
              "must be after the stream's last one, which was",
              static_cast<std::int64_t>(latest)};
    }
    if (plan.step.value == 0 && used_[plan.slot]) {
      return {Why::bad_config,
              "plan.step",
              0,
              "must be the number of a step, for there was a plan before in slot",
              plan.slot};
    }
    return {};
  }
  /// What a copy writes, no other reads or writes: copies run in any order.
  [[nodiscard]] Error check_copies(Plan const& plan) noexcept
  {
    now_ += 2;  // sources are marked with the first number, targets with the second
    for (PageCopy const& copy : plan.copies) {
      std::uint64_t& source = pages_[copy.source.value];
      std::uint64_t& target = pages_[copy.target.value];
      if (source == now_) {
        return {Why::bad_config,
                "plan.copies.source",
                copy.source.value,
                "must be no page that another copy writes"};
      }
      source = now_ - 1;
      if (target >= now_ - 1) {
        return {Why::bad_config,
                "plan.copies.target",
                copy.target.value,
                "must be no page that another copy reads or writes"};
      }
      target = now_;
    }
    return {};
  }
  [[nodiscard]] bool seen(std::uint64_t& mark) const noexcept
  {
    bool const before = mark == now_;
    mark = now_;
    return before;
  }

  ZeroArray<std::uint64_t> rows_;   // by row and by page: the check that met it last
  ZeroArray<std::uint64_t> pages_;  // likewise
  std::uint64_t now_ = 0;
  std::uint64_t latest_[max_streams]{};
  bool used_[Plan::num_slots]{};
};

}  // namespace kvcache::inline v0_1::detail
