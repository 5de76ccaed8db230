// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/cache/check_calls.hpp>
#include <kvcache/cache/sequence.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/step_tokens.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/device/device.hpp>

#include <cstdint>
#include <span>
#include <utility>

/// \file A step in the hands of a caller.

namespace kvcache::inline v0_1 {

/// A forward pass as a transaction: `add` chunks, `submit`, run the kernels over `view()`, `commit`.
/// A step that goes out of scope before `submit` never happened; after it, its rows never existed. Its kernels may not have
/// run by then: what the cache asks the device for later, on any stream, waits for them, and the host does not.
/// Move-only. **Pre** the cache outlives it, and is not moved meanwhile.
template <class State>
class Step {
 public:
  using View = typename State::View;

  Step(Step&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)),
        id_(other.id_),
        stream_(other.stream_),
        slot_(other.slot_),
        submitted_(other.submitted_)
  {
  }
  Step& operator=(Step&& other) noexcept
  {
    if (this != &other) {
      end();
      state_ = std::exchange(other.state_, nullptr);
      id_ = other.id_;
      stream_ = other.stream_;
      slot_ = other.slot_;
      submitted_ = other.submitted_;
    }
    return *this;
  }
  Step(Step const&) = delete;
  Step& operator=(Step const&) = delete;
  ~Step() { end(); }

  [[nodiscard]] StepId id() const noexcept { return id_; }

  /// Plans rows for the next tokens of `sequence`; returns how many: all, unless the step attaches. **Cost** O(tokens + pages taken).
  /// **Errors** a `Shortage`, nothing changed: the step goes on without the chunk.
  [[nodiscard]] Result<Index, Shortage> add(Sequence const& sequence, Chunk const& chunk)
  {
    auto added = live().control.add(id_, sequence.id_in(state_), chunk);
    detail::check_call(state_->control);
    return added;
  }

  /// Makes the plan and applies it to the pool. **Stream** ordered on the step's; does not wait. On the host, which
  /// has no streams, the kernels of the steps before have run by then.
  /// **Errors** `stale_step`, `no_memory`; nothing changed, the step is still open.
  [[nodiscard]] Result<Done> submit()
  {
    State& state = live();
    auto done = state.control.submit(id_, [&](Plan const& plan) {
      slot_ = plan.slot;
      return state.pool.apply(plan, stream_);
    });
    submitted_ = submitted_ || done.has_value();
    detail::check_call(state.control);
    return done;
  }

  /// What the kernels of this step see; a captured graph keeps `view().of({})`. **Pre** `submit` succeeded.
  [[nodiscard]] View view() const
  {
    KVCACHE_EXPECTS(state_ != nullptr && submitted_,
                    "kvcache: Step::view() needs a submitted step; call submit() first");
    return state_->pool.view(plan().slot).of(plan().step);
  }
  /// The tokens that the view has, in its order: those that were given, unless the step attaches (`StepOptions`), or a
  /// sequence left it, or lost an older step, before `submit`. **Pre** `submit` succeeded. Valid until the step is over.
  [[nodiscard]] StepTokens tokens() const
  {
    KVCACHE_EXPECTS(state_ != nullptr && submitted_,
                    "kvcache: Step::tokens() needs a submitted step; call submit() first");
    return state_->control.tokens(id_);
  }
  /// What the step asked of the pool. **Pre** `submit` succeeded. Valid until the step is over.
  [[nodiscard]] Plan const& plan() const
  {
    KVCACHE_EXPECTS(state_ != nullptr && submitted_,
                    "kvcache: Step::plan() needs a submitted step; call submit() first");
    return state_->control.plan(id_);
  }

  /// The kernels have run: of each chunk the first so many planned tokens are real (none given: all of all), whole
  /// pages are published, and the step is over. Steps of one stream commit in the order of their submission.
  /// **Errors** `stale_step`, `busy` (an older step), `bad_config`; nothing changed.
  Result<Done> commit(std::span<Outcome const> outcomes = {})
  {
    return over(live().control.commit(id_, outcomes));
  }
  /// As above, with the number of accepted tokens of each chunk, in the order of the adds; 0 of one found whole. Chunks that were
  /// planned by count need outcomes with names, trees outcomes with a path, unless none of a tree is accepted.
  Result<Done> commit(std::span<Index const> accepted)
  {
    return over(live().control.commit(id_, accepted));
  }

 private:
  template <class Layout, class Policy>
  friend class KVCache;

  Step(State* state, StepId id, StreamRef stream) noexcept : state_(state), id_(id), stream_(stream)
  {
  }

  [[nodiscard]] State& live() const
  {
    KVCACHE_EXPECTS(state_ != nullptr,
                    "kvcache: this Step is over: it was committed, or moved from");
    return *state_;
  }
  Result<Done> over(Result<Done> done)
  {
    State const& state = *state_;
    if (done) {
      state_ = nullptr;
    }
    detail::check_call(state.control);
    return done;
  }
  void end() noexcept
  {
    if (state_ == nullptr) {
      return;
    }
    if (submitted_) {
      state_->pool.abandon(slot_, stream_);
      state_->control.fail(id_);
    } else {
      state_->control.drop(id_);
    }
    detail::check_call_or_abort(state_->control);
    state_ = nullptr;
  }

  State* state_;
  StepId id_;
  StreamRef stream_;
  std::uint32_t slot_ = 0;  // of its plan
  bool submitted_ = false;
};

}  // namespace kvcache::inline v0_1
