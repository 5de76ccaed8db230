// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A replacement policy of your own: text that was asked for twice stays longer than text that was seen once.
///
///   once_    [ scan ] -> [ scan ] -> [ first turn ]            leaves first, oldest first
///   again_   [ old chat ] -> [ chat ] -> [ system prompt ]     leaves when once_ is empty; or gets old, and falls into it
///
/// A policy never sees pages or tokens, only *spans* of the prefix tree: `on_idle` says that a span has lost its last
/// user and may be named by `victim`, `on_busy` that it was taken, by a user or as a victim. This one is made of two of
/// the shipped lists and one note a span, so every call is O(1); the law behind each line is an axiom in
/// include/kvcache/replace/concept.hpp, and tests/conformance/replacement.hpp tries them all.

#include <kvcache/replace/concept.hpp>
#include <kvcache/replace/lru.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

class KeepAskedAgain {
 public:
  using role = kvcache::role::replacement;  // what `Policies<...>` finds its place by
  // Arrives as `.replacement` of `Cache::create`: how many spans fall idle before what nobody asks for is old.
  struct Options {
    std::uint32_t keep = 80;
  };

  KeepAskedAgain() = default;
  explicit KeepAskedAgain(Options options) noexcept : keep_(options.keep) {}

  // The only call that may allocate: it comes before a new span, and says false instead of throwing.
  [[nodiscard]] bool reserve(std::uint32_t spans) noexcept
  {
    if (spans > capacity_) {
      std::uint32_t const grown = spans + spans / 2;
      std::unique_ptr<Note[]> notes(new (std::nothrow) Note[grown]);
      if (!notes) {
        return false;
      }
      std::copy_n(notes_.get(), capacity_, notes.get());
      notes_ = std::move(notes);
      capacity_ = grown;
    }
    return once_.reserve(spans) && again_.reserve(spans);
  }

  // A path falls idle from its end to its root: in each list children stand before their parents. And who uses a
  // span uses its parents, so no span is in again_ whose parent is in once_: a parent never leaves before a child.
  void on_idle(kvcache::SpanId span, kvcache::SpanFacts const& facts) noexcept
  {
    Note& note = notes_[span.value];
    (note.seen ? again_ : once_).on_idle(span, facts);
    note = {.fell = ++clock_, .seen = true};  // a clock that every rank has the same
    auto const oldest = again_.victim();
    if (oldest && clock_ - notes_[oldest->value].fell > keep_) {
      again_.on_busy(*oldest);
      once_.on_idle(*oldest, {});  // behind its children, which are there or gone
    }
  }
  void on_busy(kvcache::SpanId span) noexcept { list_of(span).on_busy(span); }
  // One more user of a span that is in use.
  void on_hit(kvcache::SpanId span) noexcept { notes_[span.value].seen = true; }
  // The id will come back as another span.
  void on_remove(kvcache::SpanId span) noexcept { notes_[span.value] = {}; }

  [[nodiscard]] std::optional<kvcache::SpanId> victim() noexcept
  {
    return once_.size() != 0 ? once_.victim() : again_.victim();
  }
  // A step was dropped: its victims come back, the last one first, and each is the next to leave. At the head of
  // once_ that holds whatever list it came from.
  void restore(kvcache::SpanId span, kvcache::SpanFacts const& facts) noexcept
  {
    notes_[span.value] = {.fell = clock_, .seen = true};
    once_.restore(span, facts);
  }
  // A prompt left `tail` in its middle: the rows before that are `head` from now on, right behind it in its list.
  void on_split(kvcache::SpanId head, kvcache::SpanId tail) noexcept
  {
    notes_[head.value] = notes_[tail.value];
    list_of(tail).on_split(head, tail);
  }

  [[nodiscard]] bool is_candidate(kvcache::SpanId span) const noexcept
  {
    return once_.is_candidate(span) || again_.is_candidate(span);
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return once_.size() + again_.size(); }
  template <class F>
  void for_each_oldest_first(F visit) const
  {
    once_.for_each_oldest_first(visit);
    again_.for_each_oldest_first(visit);
  }
  [[nodiscard]] bool check_invariants() const
  {
    bool apart = true;
    once_.for_each_oldest_first(
      [&](kvcache::SpanId span) { apart = apart && !again_.is_candidate(span); });
    return apart && once_.check_invariants() && again_.check_invariants();
  }

 private:
  struct Note {
    std::uint32_t fell = 0;  // when it last fell idle
    bool seen = false;       // it did, or had two users: the next time it falls into again_
  };
  [[nodiscard]] kvcache::Lru& list_of(kvcache::SpanId span) noexcept
  {
    return again_.is_candidate(span) ? again_ : once_;
  }

  kvcache::Lru once_;
  kvcache::Lru again_;
  std::unique_ptr<Note[]> notes_;  // by span id
  std::uint32_t capacity_ = 0;     // of notes_
  std::uint32_t clock_ = 0;
  std::uint32_t keep_ = Options{}.keep;
};

// Stops the build at the first thing that is missing, and names it.
static_assert(kvcache::explain_replacement<KeepAskedAgain>());
