// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/device/device.hpp>
#include <kvcache/device/host_device.hpp>
#include <kvcache/layout/footprint.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/pool/plan_check.hpp>
#include <kvcache/pool/storage.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/segment_view.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// \file The bytes behind the page ids, on one device.
///
///   arena   [ zeros | page 1 | page 2 | ... ]     own or the caller's; layout decides the inside of a page
///   meta    [ table: rows x row_pages | layer offsets | lengths | a set of step arrays per slot ]   addresses never change
///
/// A worker holds a pool and no scheduler: it applies the plans of control in order, and hands views to its
/// kernels. Table rows persist from step to step, a plan brings only what changed.
///
/// Cost: applying a plan uploads its deltas and 12 bytes a token, and copies what it says; nothing else moves.
/// **Threads** one owner.

namespace kvcache::inline v0_1 {

/// See the file comment.
template <class Layout>
class Pool {
 public:
  using View = BatchView<Layout>;

  /// **Pre** `geometry` and `options` went through `complete`. `device` outlives the pool; null: the host.
  /// **Errors** a field that cannot work; `no_memory` with the bytes asked for.
  [[nodiscard]] static Result<Pool> create(Geometry const& geometry,
                                           ControlOptions const& options,
                                           Storage storage = {},
                                           Device* device = nullptr)
  {
    Footprint const footprint = Layout::footprint(geometry);
    if (Error const error = footprint.validate(options.pages); error.why != Why::ok) {
      return error;
    }
    if (Error const error = storage.validate(footprint, options.pages); error.why != Why::ok) {
      return error;
    }
    Pool pool(geometry, options, device);
    if (!detail::memory_sufficed_for([&] { pool.staging_.resize(pool.step_words(), -1); }) ||
        !pool.allocate(storage)) {
      return Error{Why::no_memory,
                   "pool bytes",
                   static_cast<std::int64_t>(pool.bytes()),
                   "host or device has no memory for so many"};
    }
    return pool;
  }

  Pool(Pool&& other) noexcept
      : footprint_(other.footprint_),
        options_(other.options_),
        map_(other.map_),
        layers_(other.layers_),
        device_(other.device_),
        arena_(std::exchange(other.arena_, nullptr)),
        meta_(std::exchange(other.meta_, nullptr)),
        owns_arena_(other.owns_arena_),
        latest_(other.latest_),
        staging_(std::move(other.staging_)),
        copies_(std::move(other.copies_))
  {
    for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
      staged_tokens_[slot] = other.staged_tokens_[slot];
    }
  }
  Pool(Pool const&) = delete;
  Pool& operator=(Pool const&) = delete;
  Pool& operator=(Pool&&) = delete;
  ~Pool()
  {
    if (arena_ != nullptr && owns_arena_) {
      device().deallocate(arena_, arena_bytes());
    }
    if (meta_ != nullptr) {
      device().deallocate(meta_, meta_bytes());
    }
  }

  [[nodiscard]] Footprint const& footprint() const noexcept { return footprint_; }
  /// Bytes of the pages, the page of zeros included.
  [[nodiscard]] std::uint64_t arena_bytes() const noexcept
  {
    return footprint_.pool_bytes(options_.pages);
  }
  /// Bytes of pages and tables.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return arena_bytes() + meta_bytes(); }
  /// The first byte of a page. **Pre** `page.value <= pages`.
  [[nodiscard]] std::byte* page(PageId page) const noexcept
  {
    return arena_ + footprint_.page_bytes() * page.value;
  }

  /// Brings tables and pages to where the step's kernels expect them.
  /// **Stream** ordered on `stream`; does not wait. **Cost** O(plan + bytes copied).
  /// **Errors** a plan that is not for a pool of this shape is refused whole; `no_memory`.
  [[nodiscard]] Result<Done> apply(Plan const& plan, StreamRef stream = {})
  {
    if (Error const error = detail::check(plan, options_); error.why != Why::ok) {
      return error;
    }
    if (!detail::memory_sufficed_for([&] { stage(plan); })) {
      return Error{Why::no_memory,
                   "plan.chunks",
                   static_cast<std::int64_t>(plan.chunks.size()),
                   "the host has no memory to stage the plan"};
    }
    for (TableDelta const& delta : plan.tables) {
      std::size_t const at = std::size_t{delta.row.value} * options_.row_pages() + delta.first;
      device().upload(meta_ + at * sizeof(std::int32_t),
                      plan.ids.data() + delta.ids_at,
                      delta.count * sizeof(PageId),
                      stream);
    }
    device().copy(copies_.data(), copies_.size(), stream);
    auto const tokens = static_cast<std::size_t>(plan.num_tokens());
    std::size_t const words =
      tokens > staged_tokens_[plan.slot] ? tokens : staged_tokens_[plan.slot];
    put(plan.slot, rows_at, words, stream);
    put(plan.slot, rows_at + max_tokens(), words, stream);
    put(plan.slot, rows_at + 2 * max_tokens(), plan.chunks.size() + 1, stream);
    put(plan.slot, 0, rows_at, stream);
    device().count_up(runs_.data(), runs_.size(), stream);
    device().count_up(ends_.data(), ends_.size(), stream);
    staged_tokens_[plan.slot] = tokens;
    latest_ = plan.slot;
    return Done{};
  }

  /// What the kernels of the step applied last see.
  [[nodiscard]] View view() const noexcept { return view(latest_); }
  /// What the kernels of the step see whose plan has this `slot`. The addresses in it hold for the pool's life.
  /// **Pre** `slot < Plan::num_slots`.
  [[nodiscard]] View view(std::uint32_t slot) const noexcept
  {
    std::byte* const step = meta_ + counts_at(slot);
    std::size_t const tokens = max_tokens();
    auto const* const counts = reinterpret_cast<Index const*>(step);
    return {
      .segment = {.base = arena_,
                  .table = reinterpret_cast<std::int32_t const*>(meta_),
                  .layer_offset = reinterpret_cast<std::uint32_t const*>(meta_ + offsets_at()),
                  .num_pages = options_.pages + 1,
                  .row_stride = options_.row_pages(),
                  .layer_stride = 0,
                  .seq_rows = 1,
                  .head_rows = 0,
                  .page_scale = footprint_.tiles_per_page,
                  .head_scale = 1,
                  .unit_bytes = footprint_.tile_bytes},
      .map = map_,
      .counts = counts,
      .token_row = reinterpret_cast<std::uint32_t const*>(counts + rows_at),
      .token_index = counts + rows_at + tokens,
      .chunk_first = counts + rows_at + 2 * tokens,
      .lengths = reinterpret_cast<Index*>(meta_ + lengths_at())};
  }

 private:
  Pool(Geometry const& geometry, ControlOptions const& options, Device* device) noexcept
      : footprint_(Layout::footprint(geometry)),
        options_(options),
        map_(Layout::map(geometry)),
        layers_(geometry.layers),
        device_(device)
  {
  }

  static constexpr std::size_t rows_at = 2;  // words of the step, behind the counts

  // The meta block: table, layer offsets, a length per row, then per slot what changes each step:
  // {tokens, chunks}, rows, indices, firsts.
  [[nodiscard]] std::size_t max_tokens() const noexcept
  {
    return static_cast<std::size_t>(options_.max_step_tokens);
  }
  [[nodiscard]] std::size_t offsets_at() const noexcept
  {
    return std::size_t{options_.max_sequences} * options_.row_pages() * sizeof(std::int32_t);
  }
  [[nodiscard]] std::size_t lengths_at() const noexcept
  {
    return offsets_at() + static_cast<std::size_t>(layers_) * sizeof(std::uint32_t);
  }
  [[nodiscard]] std::size_t counts_at(std::uint32_t slot) const noexcept
  {
    return lengths_at() +
           (std::size_t{options_.max_sequences} + slot * step_words()) * sizeof(Index);
  }
  [[nodiscard]] std::uint64_t meta_bytes() const noexcept { return counts_at(Plan::num_slots); }
  [[nodiscard]] std::size_t step_words() const noexcept
  {
    return rows_at + 2 * max_tokens() + options_.max_sequences + 1;
  }
  [[nodiscard]] Device& device() noexcept { return device_ != nullptr ? *device_ : host_; }

  [[nodiscard]] bool allocate(Storage storage) noexcept
  {
    meta_ = device().allocate(meta_bytes());
    owns_arena_ = storage.data == nullptr;
    arena_ = owns_arena_ ? device().allocate(arena_bytes()) : storage.data;
    if (meta_ == nullptr || arena_ == nullptr) {
      return false;
    }
    device().zero(arena_, footprint_.page_bytes(), {});
    for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
      put(slot, rows_at, 2 * max_tokens(), {});  // all of it padding
      device().zero(meta_ + counts_at(slot), rows_at * sizeof(Index), {});
    }
    std::uint32_t const per_layer = footprint_.tiles_per_page / static_cast<std::uint32_t>(layers_);
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      std::uint32_t const offset = static_cast<std::uint32_t>(layer) * per_layer;
      device().upload(meta_ + offsets_at() + static_cast<std::size_t>(layer) * sizeof offset,
                      &offset,
                      sizeof offset,
                      {});
    }
    return true;
  }

  /// Uploads `count` words of the staged step from word `at` on.
  void put(std::uint32_t slot, std::size_t at, std::size_t count, StreamRef stream) noexcept
  {
    device().upload(meta_ + counts_at(slot) + at * sizeof(Index),
                    staging_.data() + at,
                    count * sizeof(Index),
                    stream);
  }

  /// Lays out the step's part of the meta block, and lists the pieces of every page copy.
  void stage(Plan const& plan)
  {
    auto const tokens = static_cast<std::size_t>(plan.num_tokens());
    std::size_t const indices_at = rows_at + max_tokens();
    std::size_t const firsts_at = indices_at + max_tokens();
    staging_[0] = static_cast<Index>(tokens);
    staging_[1] = static_cast<Index>(plan.chunks.size());
    runs_.clear();
    ends_.clear();
    auto* const indices = reinterpret_cast<Index*>(meta_ + counts_at(plan.slot)) + indices_at;
    auto* const lengths = reinterpret_cast<Index*>(meta_ + lengths_at());
    std::size_t token = 0;
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      PlannedChunk const& chunk = plan.chunks[c];
      staging_[firsts_at + c] = static_cast<Index>(token);
      if (chunk.slack > 0) {  // where the rows begin is known on the device alone
        runs_.push_back({lengths + chunk.row.value, indices + token, chunk.tokens});
      }
      for (Index i = 0; i < chunk.tokens; ++i, ++token) {
        staging_[rows_at + token] = static_cast<Index>(chunk.row.value);
        staging_[indices_at + token] = chunk.first_index + i;
      }
      // All of it is accepted, until a kernel says otherwise.
      ends_.push_back({indices + token - 1, lengths + chunk.row.value, 1, 1});
    }
    staging_[firsts_at + plan.chunks.size()] = static_cast<Index>(token);
    for (; token < staged_tokens_[plan.slot];
         ++token) {  // a captured graph may visit more tokens than there are
      staging_[rows_at + token] = static_cast<Index>(nil);
      staging_[indices_at + token] = -1;
    }
    copies_.clear();
    std::size_t const row_bytes = map_.row_elements() * sizeof(typename Layout::element);
    std::size_t const values_at = map_.value_elements() * sizeof(typename Layout::element);
    for (PageCopy const& copy : plan.copies) {
      std::size_t const bytes = row_bytes * static_cast<std::size_t>(copy.rows);
      for (std::size_t const part : {std::size_t{0}, values_at}) {
        copies_.push_back({page(copy.source) + part,
                           page(copy.target) + part,
                           bytes,
                           footprint_.tile_bytes,
                           footprint_.tiles_per_page});
      }
    }
  }

  Footprint footprint_;
  ControlOptions options_;
  typename Layout::Map map_;
  std::int32_t layers_;
  Device* device_;
  HostDevice host_;
  std::byte* arena_ = nullptr;
  std::byte* meta_ = nullptr;
  bool owns_arena_ = true;
  std::uint32_t latest_ = 0;    // slot of the plan applied last
  std::vector<Index> staging_;  // a step's part of the meta block, as it was uploaded last
  std::size_t
    staged_tokens_[Plan::num_slots]{};  // by slot: tokens of its step; what follows them is padding
  std::vector<StridedCopy> copies_;
  std::vector<IndexRun> runs_;  // the indices of tokens behind open drafts
  std::vector<IndexRun> ends_;  // the length of each chunk's sequence
};

}  // namespace kvcache::inline v0_1
