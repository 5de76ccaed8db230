// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file SIEVE: a first-in first-out queue that gives spans one more round when they were used again.
///
///   oldest                                        newest
///   [ a ]  [ b ]*  [ c ]   ( d )   [ e ]*  [ f ]            * marked: used again   ( ) in use, or has children
///           ^hand -> b is marked: unmark, step on; c is not: c leaves; later d is passed over, and stays
///
/// LRU moves a span at every use, so one long scan pushes out all that is used. SIEVE never moves a span: a use
/// sets a mark, the hand clears marks as it goes and takes the first span without one. What was used once
/// leaves at the hand's next visit; what is used again and again stays. It needs no tuning.
///
/// A cache of pages differs from the paper's cache of objects in two ways. Spans in use cannot leave: they keep
/// their place, and coming back idle is what counts as a hit. And a span cannot leave before what hangs below
/// it, which came later and so stands behind it: only candidates without candidates below them are looked at.
/// The queue is an array of slots, the spans that may leave now a set of slots in which the hand jumps to the
/// next; what waits costs it nothing.
///
/// A dropped step restores its victims, newest first. A log (`SieveLog`) notes where the hand went, which marks it took and who
/// left: putting one back undoes that and what came after it. Then the order of what leaves next, now and later, is what it was,
/// unless the array was packed, or another step took victims in between and keeps them.
///
/// Cost: every call O(1), `victim` amortised (each mark it clears was set by a use); a jump looks at up to 6
/// words, new slots are packed once in as many arrivals as there are spans. 50 bytes a span.
/// Source: Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024, algorithm 1. Departures: as said.

#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/owned_array.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/replace/facts.hpp>
#include <kvcache/replace/sieve_log.hpp>
#include <kvcache/replace/slot_set.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

namespace kvcache::inline v0_1 {

/// First in, first out, with a second chance for what was used again; see the file comment.
/// **Threads** one thread owns it.
class Sieve {
  using Log = detail::SieveLog;
  using Did = detail::SieveDid;

 public:
  using role = role::replacement;
  struct Options {};

  explicit Sieve(Options = {}) noexcept {}

  /// Makes room for span ids below `spans`; false when there is no memory, and then nothing changed.
  /// **Cost** amortised O(1) a span.
  [[nodiscard]] bool reserve(std::uint32_t spans) noexcept
  {
    if (spans <= capacity_) {
      return true;
    }
    std::uint32_t const grown = spans > capacity_ / 2 * 3 ? spans : capacity_ / 2 * 3;
    if (grown >= Log::nowhere / slots_per_span) {
      return false;
    }
    detail::OwnedArray<Entry> entries(new (std::nothrow) Entry[grown]);
    detail::OwnedArray<Slot> slots(new (std::nothrow) Slot[std::size_t{grown} * slots_per_span]);
    detail::SlotSet leaves;
    if (!entries || !slots || !leaves.reserve(grown * slots_per_span) ||
        !log_.reserve(grown * slots_per_span)) {
      return false;
    }
    std::copy_n(entries_.get(), capacity_, entries.get());
    std::copy_n(slots_.get(), end_, slots.get());
    entries_ = std::move(entries);
    slots_ = std::move(slots);
    leaves_ = std::move(leaves);
    capacity_ = grown;
    collect_leaves();
    return true;
  }

  /// `span` has no user any more: a candidate. One that was a candidate before keeps its place, marked.
  /// **Pre** it is not a candidate; its id is below what was reserved. **Cost** amortised O(1).
  void on_idle(SpanId span, SpanFacts const& facts) noexcept
  {
    KVCACHE_EXPECTS(span.value < capacity_ && !is_candidate(span),
                    "kvcache: on_idle needs a span that is in use, with an id that was reserved");
    if (entries_[span.value].slot == nil) {
      enter(span.value);
    } else {
      slots_[entries_[span.value].slot].marked = true;
    }
    become_candidate(span.value, facts.parent.value);
  }

  /// `span` is used again, or was taken as a victim. It keeps its place. **Pre** it is a candidate. **Cost** O(1).
  void on_busy(SpanId span) noexcept
  {
    KVCACHE_EXPECTS(is_candidate(span), "kvcache: on_busy needs a span that is a candidate");
    Entry& entry = entries_[span.value];
    if (entry.slot == hand_ && entry.kids == 0 && !slots_[hand_].marked) {
      log_.push(hand_, Did::left);
    }
    entry.idle = false;
    --size_;
    leaves_.erase(entry.slot);
    if (entry.parent != nil) {
      Entry const& parent = entries_[entry.parent];
      if (--entries_[entry.parent].kids == 0 && parent.idle) {
        leaves_.insert(parent.slot);
      }
    }
  }

  /// `span`, which is in use, is used by one more. **Cost** one store.
  void on_hit(SpanId span) noexcept
  {
    KVCACHE_EXPECTS(span.value < capacity_, "kvcache: on_hit needs an id that was reserved");
    Entry& entry = entries_[span.value];
    if (entry.slot == nil) {
      entry.hit = true;
    } else {
      slots_[entry.slot].marked = true;
    }
  }

  /// `span` left the tree: its id may come back as another span. **Pre** it is not a candidate. **Cost** O(1).
  void on_remove(SpanId span) noexcept
  {
    KVCACHE_EXPECTS(span.value < capacity_ && !is_candidate(span),
                    "kvcache: on_remove needs a span that is no candidate");
    if (std::uint32_t const at = entries_[span.value].slot; at != nil) {
      slots_[at].span = nil;
    }
    entries_[span.value].slot = nil;
    entries_[span.value].hit = false;
  }

  /// As `on_remove`, of a span that is in use and may be taken back. **Cost** O(1).
  void set_aside(SpanId span) noexcept
  {
    Entry const& entry = entries_[span.value];
    bool const marked = entry.slot == nil ? entry.hit : slots_[entry.slot].marked;
    log_.push(entry.slot == nil ? Log::nowhere : entry.slot,
              marked ? Did::aside_marked : Did::aside);
    on_remove(span);
  }
  /// Undoes the latest `set_aside`: the span is in use again, perhaps under another id, in its place and with its mark. False:
  /// nothing is known of it. **Cost** amortised O(1).
  [[nodiscard]] bool take_back(SpanId span) noexcept
  {
    Log::Entry const was = log_.undo_to(Did::aside, Did::aside_marked, give_mark());
    bool const marked = was.did == Did::aside_marked;
    if (was.slot >= Log::nowhere) {
      entries_[span.value].hit = marked;
    } else if (slots_[was.slot].span == nil) {
      slots_[was.slot] = Slot{.span = span.value, .marked = marked};
      entries_[span.value].slot = was.slot;
    }
    return was.slot != nil;
  }

  /// The first candidate from the hand on that has no mark and no candidate below it, or nothing.
  /// **Post** it stays a candidate until `on_busy`. **Cost** amortised O(1).
  [[nodiscard]] std::optional<SpanId> victim() noexcept
  {
    std::uint32_t at = next_leaf(hand_);
    if (at == nil) {
      return std::nullopt;
    }
    log_.push_once(hand_, Did::moved);
    while (slots_[at].marked) {
      slots_[at].marked = false;
      log_.push(at, Did::cleared);
      at = next_leaf(at + 1);
    }
    hand_ = at;
    return SpanId{slots_[at].span};
  }

  /// Undoes `victim` and `on_busy`, and `on_remove` where the span comes back under a new id: `span` is the next
  /// victim again, in its old place. **Cost** amortised O(1).
  void restore(SpanId span, SpanFacts const& facts) noexcept
  {
    Entry& entry = entries_[span.value];
    if (entry.slot == nil) {
      std::uint32_t at = undo_to_victim();
      while (at != nil && slots_[at].span != nil) {  // it was used for a while, and is back
        at = undo_to_victim();
      }
      if (at == nil) {
        enter(span.value);
      } else {
        slots_[at].span = span.value;
        entry.slot = at;
      }
    } else if (std::uint32_t const at = undo_to_victim(); at != nil && at != entry.slot) {
      log_.push(at, Did::left);  // it was used for a while before others left, which stay away
    }
    slots_[entry.slot].marked = false;
    become_candidate(span.value, facts.parent.value);
    hand_ = log_.undo_sweep(entry.slot, give_mark());
  }

  /// The victim `span` lost its last pages, and stays. **Pre** `victim` named it. **Cost** O(1).
  void on_shrink(SpanId span) noexcept { log_.push(entries_[span.value].slot, Did::kept); }
  /// Undoes the latest `on_shrink`, which was of `span`, and the `victim` before it. **Cost** amortised O(1).
  void on_grow(SpanId span) noexcept
  {
    std::uint32_t const at = log_.undo_to(Did::kept, Did::kept, give_mark()).slot;
    if (at == entries_[span.value].slot && is_candidate(span)) {
      hand_ = log_.undo_sweep(at, give_mark());
    }
  }

  /// The new span `head` was cut off the front of `tail`, and has its mark; if `tail` is a candidate, so is `head`.
  /// **Cost** amortised O(1).
  void on_split(SpanId head, SpanId tail) noexcept
  {
    Entry& front = entries_[head.value];
    Entry& rest = entries_[tail.value];
    front.hit = rest.slot == nil ? rest.hit : slots_[rest.slot].marked;
    if (rest.idle) {
      enter(head.value);
      front.idle = true;
      front.parent = rest.parent;  // which has a candidate below it as before
      front.kids += 1;
      rest.parent = head.value;
      ++size_;
    }
  }

  [[nodiscard]] bool is_candidate(SpanId span) const noexcept
  {
    return span.value < capacity_ && entries_[span.value].idle;
  }

  /// How many candidates there are.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// Calls `visit(SpanId)` for each candidate: those that may leave now, in the order in which they would; then
  /// those that have others below them, oldest first. **Cost** O(slots).
  template <class F>
  void for_each_oldest_first(F visit) const
  {
    for (bool const second_round : {false, true}) {
      for (std::uint32_t i = 0; i < end_; ++i) {
        std::uint32_t const at = i < end_ - hand_ ? hand_ + i : i - (end_ - hand_);
        if (leaves_.contains(at) && slots_[at].marked == second_round) {
          visit(SpanId{slots_[at].span});
        }
      }
    }
    for (std::uint32_t at = 0; at < end_; ++at) {
      if (std::uint32_t const span = slots_[at].span;
          span != nil && entries_[span].idle && entries_[span].kids != 0) {
        visit(SpanId{span});
      }
    }
  }

  /// Recounts slots, marks and who is below whom. **Cost** O(spans), allocates, for tests.
  [[nodiscard]] bool check_invariants() const
  {
    detail::OwnedArray<std::uint32_t> const kids(new std::uint32_t[std::size_t{capacity_} + 1]());
    std::uint32_t idle = 0;
    std::uint32_t placed = 0;
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      Entry const& entry = entries_[i];
      placed += entry.slot != nil ? 1U : 0U;
      if (entry.slot != nil && (entry.slot >= end_ || slots_[entry.slot].span != i)) {
        return false;
      }
      if (entry.idle) {
        ++idle;
        if (entry.slot == nil || leaves_.contains(entry.slot) != (entry.kids == 0)) {
          return false;
        }
        if (entry.parent != nil) {
          ++kids[entry.parent];
        }
      }
    }
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      if (entries_[i].kids != kids[i]) {
        return false;
      }
    }
    for (std::uint32_t at = 0; at < end_; ++at) {
      std::uint32_t const span = slots_[at].span;
      placed -= span != nil ? 1U : 0U;
      if (leaves_.contains(at) && (span == nil || !entries_[span].idle)) {
        return false;
      }
    }
    return idle == size_ && placed == 0 && hand_ <= end_;
  }

 private:
  static constexpr std::uint32_t slots_per_span = 2;

  struct Entry {
    std::uint32_t slot =
      nil;  // its place, from its first time as a candidate until it leaves the tree
    std::uint32_t parent = nil;  // of a candidate
    std::uint32_t kids = 0;      // candidates right below it
    bool idle = false;           // a candidate
    bool hit = false;            // it will enter with a mark
  };
  struct Slot {
    std::uint32_t span = nil;  // nil: it left
    bool marked = false;
  };
  struct GiveMark {  // that the hand took
    Slot* slots;
    void operator()(std::uint32_t at) const noexcept { slots[at].marked = true; }
  };
  [[nodiscard]] GiveMark give_mark() const noexcept { return {slots_.get()}; }

  /// The first slot from `at` on, and round, whose span may leave now.
  [[nodiscard]] std::uint32_t next_leaf(std::uint32_t at) const noexcept
  {
    if (size_ == 0) {
      return nil;
    }
    std::uint32_t const ahead = leaves_.next(at);
    return ahead != nil ? ahead : leaves_.next(0);
  }
  std::uint32_t undo_to_victim() noexcept
  {
    return log_.undo_to(Did::left, Did::left, give_mark()).slot;
  }

  /// Gives `span` the newest place.
  void enter(std::uint32_t span) noexcept
  {
    if (end_ == capacity_ * slots_per_span) {
      pack();
    }
    Entry& entry = entries_[span];
    slots_[end_] = Slot{.span = span, .marked = entry.hit};
    entry.slot = end_++;
    entry.hit = false;
  }
  void become_candidate(std::uint32_t span, std::uint32_t parent) noexcept
  {
    Entry& entry = entries_[span];
    entry.idle = true;
    entry.parent = parent;
    ++size_;
    if (entry.kids == 0) {
      leaves_.insert(entry.slot);
    }
    if (parent != nil && entries_[parent].kids++ == 0 && entries_[parent].idle) {
      leaves_.erase(entries_[parent].slot);
    }
  }
  /// Closes the gaps; at least half of the slots are free after it.
  void pack() noexcept
  {
    std::uint32_t to = 0;
    std::uint32_t hand = nil;
    for (std::uint32_t at = 0; at < end_; ++at) {
      hand = at == hand_ ? to : hand;
      if (std::uint32_t const span = slots_[at].span; span != nil) {
        slots_[to] = slots_[at];
        entries_[span].slot = to++;
      }
    }
    hand_ = hand == nil ? to : hand;
    end_ = to;
    log_.clear();
    leaves_.clear();
    collect_leaves();
  }
  void collect_leaves() noexcept
  {
    for (std::uint32_t at = 0; at < end_; ++at) {
      if (std::uint32_t const span = slots_[at].span;
          span != nil && entries_[span].idle && entries_[span].kids == 0) {
        leaves_.insert(at);
      }
    }
  }

  detail::OwnedArray<Entry> entries_;  // by span id
  detail::OwnedArray<Slot> slots_;     // the queue, oldest first
  detail::SlotSet leaves_;             // slots of candidates without candidates below them
  detail::SieveLog log_;
  std::uint32_t capacity_ = 0;  // of entries_
  std::uint32_t end_ = 0;       // slots in use, empty ones between them included
  std::uint32_t hand_ = 0;      // where the search begins
  std::uint32_t size_ = 0;
};

}  // namespace kvcache::inline v0_1
