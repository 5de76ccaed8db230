// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/device/device.hpp>
#include <kvcache/device/host_device.hpp>
#include <kvcache/layout/footprint.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/pool/meta_map.hpp>
#include <kvcache/pool/page_shape.hpp>
#include <kvcache/pool/plan_block.hpp>
#include <kvcache/pool/plan_check.hpp>
#include <kvcache/pool/plan_order.hpp>
#include <kvcache/pool/staging.hpp>
#include <kvcache/pool/storage.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/segment_view.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

/// \file The bytes behind the page ids, on one device.
///
///   arena   [ zeros | page 1 | page 2 | ... ]     own or the caller's; layout decides the inside of a page, and
///                                                 whether the arena is cut by pages or by layers first
///   meta    [ step arrays of each slot | table: rows x row_pages | layer offsets | lengths ]   addresses never change
///   block   what a slot's plan brings, uploaded from the slot's own host buffer; grows with the largest plan
///
/// A worker holds a pool and no scheduler: it applies the plans of control in order, and hands views to its
/// kernels. Table rows persist from step to step, a plan brings only what changed.
///
/// Cost: applying a plan is one upload and four launches, whatever the batch: table entries and step arrays, row
/// moves, page copies, and the places of the tokens. `pool/plan_block.hpp` has the bytes.
/// **Threads** one owner.

namespace kvcache::inline v0_1 {

/// See the file comment.
template <class Layout>
class Pool {
 public:
  using View = BatchView<Layout>;

  /// `options` are those of the control whose plans it applies. `device` outlives the pool; null: the host. The pool
  /// outlives its work on the device.
  /// **Errors** a field that cannot work, or that geometry and options disagree on; `no_memory` with the bytes asked for;
  /// `device_failed`.
  [[nodiscard]] static Result<Pool> create(Geometry geometry,
                                           ControlOptions options,
                                           Storage storage = {},
                                           Device* device = nullptr)
  {
    Error wrong{};
    geometry = Layout::complete(geometry, wrong);
    if (wrong.why == Why::ok) {
      wrong = options.complete();
    }
    if (wrong.why == Why::ok && options.page_tokens != geometry.page_tokens) {
      wrong = {Why::bad_config,
               "page_tokens",
               options.page_tokens,
               "of the options must be those of the geometry, which are",
               geometry.page_tokens};
    }
    if (wrong.why != Why::ok) {
      return wrong;
    }
    Footprint const footprint = Layout::footprint(geometry);
    if (Error const error = footprint.validate(options.pages); error.why != Why::ok) {
      return error;
    }
    if (Error const error = storage.validate(footprint, options.pages); error.why != Why::ok) {
      return error;
    }
    Pool pool(geometry, options, device);
    bool const made = detail::memory_sufficed_for([&] {
                        pool.write_layer_offsets();
                        pool.order_ = detail::PlanOrder(options);
                      }) &&
                      pool.allocate(storage);
    if (auto const works = pool.checked(); !works) {
      return works.error();
    }
    if (!made) {
      return Error{Why::no_memory,
                   "pool bytes",
                   static_cast<std::int64_t>(pool.bytes()),
                   "host or device has no memory for so many"};
    }
    return Result<Pool>(
      std::move(pool));  // in words: nvcc's front end copies what `return pool` moves
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
        order_(std::move(other.order_)),
        layer_offsets_(std::move(other.layer_offsets_))
  {
    for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
      slots_[slot] = std::exchange(other.slots_[slot], {});
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
      device().deallocate(meta_, meta_map().bytes());
    }
    for (Slot& slot : slots_) {
      slot.staging.release(device());
    }
  }

  [[nodiscard]] Footprint const& footprint() const noexcept { return footprint_; }
  /// Bytes of the pages, the page of zeros included.
  [[nodiscard]] std::uint64_t arena_bytes() const noexcept
  {
    return footprint_.pool_bytes(options_.pages);
  }
  /// Bytes of device memory: pages, tables, and the blocks of the slots that had plans.
  [[nodiscard]] std::uint64_t bytes() const noexcept
  {
    std::uint64_t sum = arena_bytes() + meta_map().bytes();
    for (Slot const& slot : slots_) {
      sum += slot.staging.capacity();
    }
    return sum;
  }
  /// The first byte of a page's part of `layer`, of which `Footprint::layer_bytes()` are its own. Page-first, the parts
  /// follow each other, and `page(page)` begins a whole page. **Pre** `page.value <= pages`, a layer of the model.
  [[nodiscard]] std::byte* page(PageId page, std::int32_t layer = 0) const noexcept
  {
    std::uint64_t const unit =
      std::uint64_t{footprint_.page_units()} * page.value +
      std::uint64_t{footprint_.layer_stride(options_.pages)} * static_cast<std::uint32_t>(layer);
    return arena_ + unit * footprint_.unit_bytes;
  }

  /// Takes the memory that each slot needs for plans of so many bytes (0: for nearly every plan of this pool), so that
  /// `apply` takes none, which it may not while a graph captures its stream. **Pre** no step of a slot whose memory grows is in
  /// flight: before the first is the time.
  /// **Errors** `no_memory`, of which slots may have had theirs; `busy`, `device_failed` as `apply`.
  [[nodiscard]] Result<Done> reserve(StreamRef stream = {}, std::size_t plan_bytes = 0)
  {
    for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
      if (auto done = make_room(slot, plan_bytes, stream); !done) {
        return done;
      }
    }
    return checked();
  }

  /// Brings tables and pages to where the step's kernels expect them: `upload`, then `launch`.
  /// **Pre** the step of the slot's plan before is over: it was committed, or `abandon` was told. **Stream** ordered on `stream`;
  /// waits only where the device has not come to that plan yet. **Cost** O(plan + bytes copied); one upload and four launches. A slot's first plan, and one
  /// larger than all before it, take memory and one upload more.
  /// **Errors** a plan that is not for a pool of this shape, came before, came too late, is in the slot of another stream, or names a row
  /// or a page twice is refused whole: a sender that lies, or a transport that repeats itself, harms no memory; `no_memory`, and `busy` where a graph captures
  /// the stream and there was none taken before, nothing changed; `device_failed`, and what has been written is not known.
  [[nodiscard]] Result<Done> apply(Plan const& plan, StreamRef stream = {})
  {
    if (auto done = bring(plan, stream); !done) {
      return done;
    }
    launch(plan.slot, stream);
    return checked();
  }
  /// The part of `apply` that reads the plan. A graph that captured it brings what the slot's buffer holds at each replay, until
  /// the slot's memory grows, whatever is abandoned; of its replays the pool knows nothing: bring the slot's next plan when they have run.
  [[nodiscard]] Result<Done> upload(Plan const& plan, StreamRef stream = {})
  {
    auto done = bring(plan, stream);
    if (done) {
      device().mark(plan.slot, stream);
    }
    return done;
  }
  /// The part of `apply` that the device does by itself: a graph that captured it does what the slot's upload before the
  /// replay asks for, whatever the plan. **Pre** `slot < Plan::num_slots`, and it had an upload.
  void launch(std::uint32_t slot, StreamRef stream = {}) noexcept
  {
    LaunchCell const cell = meta_map().slot(meta_, slot).cell;
    device().write_words(cell, stream);
    device().move_rows(cell, stream);
    device().copy_pages(cell, stream);
    device().count_up(cell, stream);
    device().mark(slot, stream);
  }
  /// The step of the slot's plan ends, and `stream` may not have passed it. The host does not wait now; what is asked for later,
  /// on any stream, does, and so does the host when it brings the slot's next plan. **Pre** `slot < Plan::num_slots`.
  void abandon(std::uint32_t slot, StreamRef stream) noexcept
  {
    device().join(stream);
    order_.abandon(slot);
  }

  /// What the kernels of the step applied last see.
  [[nodiscard]] View view() const noexcept { return view(latest_); }
  /// What the kernels of the step see whose plan has this `slot`. The addresses in it hold for the pool's life.
  /// **Pre** `slot < Plan::num_slots`.
  [[nodiscard]] View view(std::uint32_t slot) const noexcept
  {
    detail::MetaMap const meta = meta_map();
    detail::SlotArrays const arrays = meta.slot(meta_, slot);
    return {
      .segment = {.base = arena_,
                  .table = reinterpret_cast<std::int32_t const*>(meta_ + meta.table_at()),
                  .layer_offset = reinterpret_cast<std::uint32_t const*>(meta_ + meta.offsets_at()),
                  .num_pages = options_.pages + 1,
                  .row_stride = options_.row_pages(),
                  .layer_stride = 0,
                  .seq_rows = 1,
                  .head_rows = 0,
                  .page_scale = footprint_.page_units(),
                  .head_scale = footprint_.head_units,
                  .unit_bytes = footprint_.unit_bytes},
      .map = map_,
      .counts = arrays.counts,
      .token_row = arrays.rows,
      .token_index = arrays.indices,
      .chunk_first = arrays.firsts,
      .lengths = reinterpret_cast<Index*>(meta_ + meta.lengths_at()),
      .token_mask = arrays.masks};
  }

 private:
  /// What the pool knows of a slot.
  struct Slot {
    detail::Staging staging;
    std::size_t tokens = 0;  // of its step; what follows them is padding
    std::size_t masked = 0;  // the last token with a mask is before it
  };

  Pool(Geometry const& geometry, ControlOptions const& options, Device* device) noexcept
      : footprint_(Layout::footprint(geometry)),
        options_(options),
        map_(Layout::map(geometry)),
        layers_(geometry.layers),
        device_(device)
  {
  }

  [[nodiscard]] Device& device() noexcept { return device_ != nullptr ? *device_ : host_; }
  [[nodiscard]] detail::MetaMap meta_map() const noexcept { return {options_, layers_}; }
  [[nodiscard]] detail::PageShape page_shape() const noexcept
  {
    constexpr std::size_t element = sizeof(typename Layout::element);
    return detail::PageShape::of(arena_,
                                 footprint_,
                                 options_.pages,
                                 map_.row_elements() * element,
                                 map_.value_elements() * element);
  }

  /// `upload` without its mark.
  [[nodiscard]] Result<Done> bring(Plan const& plan, StreamRef stream)
  {
    if (Error const error = detail::check(plan, options_); error.why != Why::ok) {
      return error;
    }
    if (Error const error = order_.check(plan); error.why != Why::ok) {
      return error;
    }
    Slot& slot = slots_[plan.slot];
    detail::MetaMap const meta = meta_map();
    detail::PageShape const pages = page_shape();
    detail::BlockMap const block(plan, pages.records(), slot.tokens, slot.masked);
    if (auto room = make_room(plan.slot, block.bytes, stream); !room) {
      return room;
    }
    write_block(plan,
                block,
                {.slot = meta.slot(meta_, plan.slot),
                 .table = reinterpret_cast<std::int32_t*>(meta_ + meta.table_at()),
                 .row_pages = options_.row_pages(),
                 .lengths = reinterpret_cast<Index*>(meta_ + meta.lengths_at()),
                 .pages = pages},
                slot.staging.host());
    slot.staging.upload(device(), block.bytes, stream);
    order_.note(plan);
    slot.tokens = block.tokens;
    slot.masked = block.masked_now;
    latest_ = plan.slot;
    return checked();
  }
  /// The slot's memory holds `bytes`, or what is usual, and its host buffer may be written.
  [[nodiscard]] Result<Done> make_room(std::uint32_t number, std::size_t bytes, StreamRef stream)
  {
    detail::Staging& staging = slots_[number].staging;
    device().wait(number);  // nothing that was asked for reads the slot's memory
    if (bytes <= staging.capacity() && staging.capacity() != 0) {
      return Done{};
    }
    if (device().captures(stream)) {
      return Error{Why::busy,
                   "plan bytes",
                   static_cast<std::int64_t>(bytes),
                   "a graph captures the stream, and memory for them must be reserved before that"};
    }
    detail::MetaMap const meta = meta_map();
    std::size_t const usual =
      detail::BlockMap::usual_bytes(page_shape().records(), meta.max_tokens, meta.max_sequences);
    std::size_t const wanted = bytes > usual ? bytes : usual;
    std::byte** const cell = meta.slot(meta_, number).cell;
    return staging.grow(device(), wanted, cell) ? Result<Done>(Done{}) : no_room(wanted);
  }
  [[nodiscard]] Error no_room(std::size_t bytes) noexcept
  {
    if (Error const error = device().status(); error.why != Why::ok) {
      return error;
    }
    return {Why::no_memory,
            "plan bytes",
            static_cast<std::int64_t>(bytes),
            "host or device has no memory to stage so many"};
  }
  [[nodiscard]] Result<Done> checked() noexcept
  {
    Error const error = device().status();
    return error.why == Why::ok ? Result<Done>(Done{}) : Result<Done>(error);
  }

  void write_layer_offsets()
  {
    layer_offsets_.resize(static_cast<std::size_t>(layers_));
    for (std::size_t layer = 0; layer < layer_offsets_.size(); ++layer) {
      layer_offsets_[layer] =
        static_cast<std::uint32_t>(layer) * footprint_.layer_stride(options_.pages);
    }
  }
  [[nodiscard]] bool allocate(Storage storage) noexcept
  {
    detail::MetaMap const meta = meta_map();
    meta_ = device().allocate(meta.bytes());
    owns_arena_ = storage.data == nullptr;
    arena_ = owns_arena_ ? device().allocate(arena_bytes()) : storage.data;
    if (meta_ == nullptr || arena_ == nullptr) {
      return false;
    }
    constexpr std::byte zeros{0};
    constexpr std::byte ones{0xff};
    bool const whole = footprint_.arrangement == Arrangement::page_first;
    for (std::int32_t layer = 0; layer < (whole ? 1 : layers_); ++layer) {
      device().fill(page(zero_page, layer),
                    zeros,
                    whole ? footprint_.page_bytes() : footprint_.layer_bytes(),
                    {});
    }
    device().fill(meta_, zeros, meta.table_at(), {});
    for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {  // all of it padding
      auto* const rows = reinterpret_cast<std::byte*>(meta.slot(meta_, slot).rows);
      device().fill(rows, ones, 2 * meta.max_tokens * sizeof(Index), {});
    }
    device().upload(meta_ + meta.offsets_at(),
                    layer_offsets_.data(),
                    layer_offsets_.size() * sizeof(std::uint32_t),
                    {});
    device().fill(meta_ + meta.lengths_at(), zeros, meta.max_sequences * sizeof(Index), {});
    return true;
  }

  Footprint footprint_;
  ControlOptions options_;
  typename Layout::Map map_;
  static_assert(Plan::num_slots <= Device::num_marks, "a slot is known by a mark of its own");

  std::int32_t layers_;
  Device* device_;
  HostDevice host_;
  std::byte* arena_ = nullptr;
  std::byte* meta_ = nullptr;
  bool owns_arena_ = true;
  std::uint32_t latest_ = 0;  // slot of the plan applied last
  detail::PlanOrder order_;
  Slot slots_[Plan::num_slots];
  List<std::uint32_t> layer_offsets_;  // kept: their upload may read them late
};

}  // namespace kvcache::inline v0_1
