// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/cache/check_calls.hpp>
#include <kvcache/cache/explain.hpp>
#include <kvcache/cache/options.hpp>
#include <kvcache/cache/pin.hpp>
#include <kvcache/cache/policies.hpp>
#include <kvcache/cache/sequence.hpp>
#include <kvcache/cache/step.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/core/box.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

/// \file The facade: control and pool in one object, for a process that has both.
///
///   auto cache = KVCache<PagedHeads<half, 64, 16>>::create({.layers = 30, .kv_heads = 3}, {.pages = 4096});
///   auto seq   = cache->open({.tokens = prompt});                     // seq->cached() rows are there already
///   auto step  = cache->prepare({{*seq, prompt.subspan(seq->cached())}});
///   kernels(step->view());                                            // append, then attention, per layer
///   step->commit();
///
/// The cache owns the bytes of K and V and who may share them; the model, its weights and its attention
/// kernels stay the engine's.
/// Debug builds recount all invariants after each call that is not const (`KVCACHE_CHECK_CALLS`, `core/config.hpp`).
/// **Threads** one owner; const calls may run beside each other.

namespace kvcache::inline v0_1 {

/// See the file comment. **Pre** of every call but the destructor and assignment: it was not moved from. An assignment
/// swaps: what the left side held goes when the right side does.
template <class Layout, class Policy = Policies<>>
class KVCache {
  static_assert(explain<Layout, Policy>());

  using ControlPlane =
    Control<typename Policy::allocator, typename Policy::prefix, typename Policy::replacement>;
  struct State {
    using View = BatchView<Layout>;
    ControlPlane control;
    Pool<Layout> pool;
    Geometry geometry;
  };

 public:
  using View = BatchView<Layout>;
  using Step = kvcache::Step<State>;

  /// A sequence and the tokens that it computes in a step.
  struct SequenceChunk {
    Sequence const& sequence;
    std::span<Token const> tokens;
    Index count = 0;                     ///< where `tokens` is empty: how many, named at commit
    bool draft = false;                  ///< may be accepted in part
    std::span<Index const> parents{};    ///< of a token tree, see `Chunk`
    std::span<MediaSpan const> media{};  ///< that the prompt did not declare, see `Chunk`
  };

  /// **Errors** the first field of geometry or options that cannot work, and what would be right; `no_memory`.
  [[nodiscard]] static Result<KVCache> create(Geometry geometry, Options<Policy> const& options)
  {
    Error error{};
    geometry = Layout::complete(geometry, error);
    ControlOptions sizes{.pages = options.pages,
                         .page_tokens = geometry.page_tokens,
                         .max_sequences = options.max_sequences,
                         .max_sequence_tokens = options.max_sequence_tokens,
                         .max_step_tokens = options.max_step_tokens,
                         .vocabulary = options.vocabulary,
                         .watermark = options.watermark,
                         .event_capacity = options.event_capacity,
                         .seed = options.seed};
    if (error.why == Why::ok) {
      error = sizes.complete();
    }
    if (error.why != Why::ok) {
      return error;
    }
    auto pool = Pool<Layout>::create(geometry, sizes, options.storage, options.device);
    if (!pool) {
      return pool.error();
    }
    auto control =
      ControlPlane::create(sizes, {.prefix = options.prefix, .replacement = options.replacement});
    if (!control) {
      return control.error();
    }
    KVCache cache;
    if (!detail::memory_sufficed_for([&] {
          cache.anchor_ =
            new detail::Anchor{nullptr, &KVCache::close, &KVCache::info, &KVCache::unpin, 0};
          cache.state_ = detail::Box<State>::make(std::move(*control), std::move(*pool), geometry);
        })) {
      return Error{Why::no_memory,
                   "pages",
                   options.pages,
                   "the host has no memory for the bookkeeping of so many"};
    }
    cache.anchor_->cache = cache.state_.get();
    return Result<KVCache>(
      std::move(cache));  // in words: nvcc's front end copies what `return cache` moves
  }

  KVCache(KVCache&& other) noexcept
      : state_(std::move(other.state_)), anchor_(std::exchange(other.anchor_, nullptr))
  {
  }
  KVCache& operator=(KVCache&& other) noexcept
  {
    std::swap(anchor_, other.anchor_);
    state_ = std::move(other.state_);
    return *this;
  }
  KVCache(KVCache const&) = delete;
  KVCache& operator=(KVCache const&) = delete;
  ~KVCache()
  {
    if (anchor_ != nullptr) {
      anchor_->cache = nullptr;
      if (anchor_->handles == 0) {
        delete anchor_;
      }
    }
  }

  // ---- sequences

  /// What `open` would find, and why not more; pins nothing, moves no recency. **Cost** O(prompt).
  [[nodiscard]] Hit probe(Prompt const& prompt) const noexcept
  {
    return state_->control.probe(prompt);
  }
  /// Whether a request, or a suspended sequence, has room for all that it may grow to. **Errors** see `Control::admit`.
  [[nodiscard]] Result<Admission> admit(Prompt const& prompt) const
  {
    return state_->control.admit(prompt);
  }
  [[nodiscard]] Result<Admission> admit(Sequence const& suspended, StreamRef stream = {}) const
  {
    return state_->control.admit(suspended.id_in(state_.get()), StreamId{stream.number});
  }
  /// Attaches the longest cached prefix. **Cost** O(prompt). **Errors** see `Control::open`.
  [[nodiscard]] Result<Sequence> open(Prompt const& prompt)
  {
    return handle(state_->control.open(prompt));
  }
  /// The same rows again, copy-on-write. **Cost** O(pages + tokens). **Errors** see `Control::fork`.
  [[nodiscard]] Result<Sequence> fork(Sequence const& sequence)
  {
    return handle(state_->control.fork(sequence.id_in(state_.get())));
  }
  /// Cuts to the first `length` rows and returns the length kept. **Errors** see `Control::truncate`.
  [[nodiscard]] Result<Index> truncate(Sequence const& sequence, Index length)
  {
    auto kept = state_->control.truncate(sequence.id_in(state_.get()), length);
    detail::check_call(state_->control);
    return kept;
  }
  /// Preempted: pages and table row go back, identity and tokens stay, until `resume` cuts the tokens to what it finds: copy
  /// `control().tokens(sequence.id())` first where nobody else has them. **Errors** see `Control::suspend`.
  Result<Done> suspend(Sequence const& sequence) noexcept
  {
    auto done = state_->control.suspend(sequence.id_in(state_.get()));
    detail::check_call_or_abort(state_->control);
    return done;
  }
  /// Attaches what is still cached of a suspended sequence. **Errors** see `Control::resume`.
  [[nodiscard]] Result<Hit> resume(Sequence const& sequence, StreamRef stream = {})
  {
    auto hit = state_->control.resume(sequence.id_in(state_.get()), StreamId{stream.number});
    detail::check_call(state_->control);
    return hit;
  }
  /// Beams: sequence i goes on as a copy of what sequence `parents[i]` was, all at once.
  /// **Errors** see `Control::reorder`.
  Result<Done> reorder(std::span<Sequence const> sequences, std::span<Index const> parents)
  {
    List<SequenceId> ids;
    if (!detail::memory_sufficed_for([&] { ids.resize(sequences.size()); })) {
      return detail::no_memory(sequences.size());
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      ids[i] = sequences[i].id_in(state_.get());
    }
    auto done = state_->control.reorder(ids, parents);
    detail::check_call(state_->control);
    return done;
  }
  /// The sequences that the last step that failed cut back; see `Control::cuts`.
  [[nodiscard]] std::span<Cut const> cuts() const noexcept { return state_->control.cuts(); }
  /// Keeps the whole pages that are cached of a prefix, such as a system prompt, until the pin goes; how many,
  /// `control().for_each_pin` tells.
  /// **Errors** see `Control::pin`.
  [[nodiscard]] Result<Pin> pin(Prompt const& prefix)
  {
    auto const id = state_->control.pin(prefix);
    detail::check_call(state_->control);
    if (!id) {
      return id.error();
    }
    return Pin(anchor_, *id);
  }
  /// Nothing cached in the domain is found any more; open sequences keep their rows and publish no more.
  void forget(Domain const& domain) noexcept
  {
    state_->control.forget(domain);
    detail::check_call_or_abort(state_->control);
  }

  // ---- steps

  /// Opens a step. **Errors** `busy`: the stream has a step open, or two in flight; `bad_config`: no such stream.
  [[nodiscard]] Result<Step> begin(StreamRef stream = {}, StepOptions how = {})
  {
    auto const id = state_->control.begin(StreamId{stream.number}, how);
    detail::check_call(state_->control);
    if (!id) {
      return id.error();
    }
    return Step(state_.get(), *id, stream);
  }
  /// `begin`, `add` of each chunk and `submit`: all of it, or nothing happened and the `Shortage` says why. The step computes
  /// what it was given; where it is asked to attach, what its `tokens()` say.
  [[nodiscard]] Result<Step, Shortage> prepare(std::span<SequenceChunk const> chunks,
                                               StreamRef stream = {},
                                               StepOptions how = {})
  {
    auto step = begin(stream, how);
    if (!step) {
      return Shortage{.why = step.error().why, .detail = step.error()};
    }
    for (SequenceChunk const& chunk : chunks) {
      if (auto added = step->add(
            chunk.sequence, {chunk.tokens, chunk.count, chunk.draft, chunk.parents, chunk.media});
          !added) {
        return added.error();
      }
    }
    if (auto submitted = step->submit(); !submitted) {
      return Shortage{.why = submitted.error().why, .detail = submitted.error()};
    }
    return std::move(*step);
  }
  [[nodiscard]] Result<Step, Shortage> prepare(std::initializer_list<SequenceChunk> chunks,
                                               StreamRef stream = {},
                                               StepOptions how = {})
  {
    return prepare(std::span<SequenceChunk const>(chunks.begin(), chunks.size()), stream, how);
  }

  // ---- truth

  [[nodiscard]] Geometry const& geometry() const noexcept { return state_->geometry; }
  [[nodiscard]] Footprint const& footprint() const noexcept { return state_->pool.footprint(); }
  [[nodiscard]] Stats stats() const noexcept { return state_->control.stats(); }
  /// The pages of a sequence in order; valid until the next call that changes the cache.
  [[nodiscard]] std::span<PageId const> pages(Sequence const& sequence) const noexcept
  {
    return state_->control.table(sequence.id_in(state_.get()));
  }
  /// How many hold `page`: sequences, the tree, a copy in flight. 0: free. **Pre** a usable page.
  [[nodiscard]] std::uint32_t holders(PageId page) const noexcept
  {
    return state_->control.holders(page);
  }
  /// What happened to the cached pages, for those who follow; see `EventLog` and `Options::event_capacity`.
  [[nodiscard]] EventLog const& events() const noexcept { return state_->control.events(); }
  /// What control knows and this class does not repeat: use by owner, pins, the pages that prompts find.
  [[nodiscard]] ControlPlane const& control() const noexcept { return state_->control; }
  [[nodiscard]] std::uint64_t digest() const noexcept { return state_->control.digest(); }
  /// Recounts everything from scratch. **Cost** O(all state), allocates.
  [[nodiscard]] Report check_invariants() const { return state_->control.check_invariants(); }

 private:
  KVCache() = default;

  static void close(void* state, SequenceId id) noexcept
  {
    auto& control = static_cast<State*>(state)->control;
    control.close(id);
    detail::check_call_or_abort(control);
  }
  static void unpin(void* state, PinId id) noexcept
  {
    auto& control = static_cast<State*>(state)->control;
    control.unpin(id);
    detail::check_call_or_abort(control);
  }
  static SequenceInfo info(void const* state, SequenceId id) noexcept
  {
    auto const found = static_cast<State const*>(state)->control.info(id);
    return found ? *found : SequenceInfo{};
  }
  [[nodiscard]] Result<Sequence> handle(Result<SequenceId> const& id)
  {
    detail::check_call(state_->control);
    if (!id) {
      return id.error();
    }
    return Sequence(anchor_, *id);
  }

  detail::Box<State> state_;
  detail::Anchor* anchor_ = nullptr;
};

}  // namespace kvcache::inline v0_1
