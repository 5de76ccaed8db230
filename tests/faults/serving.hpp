// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A small scheduler over the control plane, with the habits that made real ones stand still.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kvcache_test {

using Plane = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;

[[nodiscard]] inline Plane plane_of(kvcache::PageCount pages)
{
  auto made = Plane::create({.pages = pages, .page_tokens = 4});
  return std::move(*made);
}

/// Requests that grow by a token a step. Where pages run out, the newest one is suspended.
class Serving {
 public:
  struct Habits {
    bool stops_at_a_shortage = false;  // and does not look at the requests behind
    bool returns_eagerly = false;      // as soon as the next chunk fits, not the whole need
    bool suspends_the_oldest = false;
  };
  struct Request {
    kvcache::SequenceId id{};
    std::vector<kvcache::Token> text;  // all that it will have
    std::size_t known = 0;             // tokens of it that exist
    bool running = true;
    bool done = false;
    std::uint32_t suspended = 0;  // how often
    kvcache::Index lost = 0;      // rows that were computed again, as the plane says in the end
  };

  Serving(kvcache::PageCount pages, Habits habits) : plane_(plane_of(pages)), habits_(habits) {}

  /// A request whose prompt has `prompt` tokens, and that ends with `length`. False: it can never fit.
  bool arrive(std::size_t prompt, std::size_t length)
  {
    Request r;
    auto const first = static_cast<kvcache::Token>(1000 * (requests_.size() + 1));
    for (std::size_t i = 0; i < length; ++i) {
      r.text.push_back(first + static_cast<kvcache::Token>(i));
    }
    r.known = prompt;
    auto const opened = plane_.open({.tokens = std::span(r.text).first(prompt),
                                     .max_tokens = static_cast<kvcache::Index>(length)});
    if (!opened) {
      return false;
    }
    r.id = *opened;
    requests_.push_back(std::move(r));
    return true;
  }

  void step()
  {
    return_some();
    auto const id = *plane_.begin();
    std::vector<Request*> planned;
    for (Request& r : requests_) {
      while (r.running && !r.done) {
        auto const at = static_cast<std::size_t>(plane_.info(r.id)->length);
        std::size_t const n = std::max(at + 1, r.known) - at;
        auto const added = plane_.add(id, r.id, {.tokens = std::span(r.text).subspan(at, n)});
        if (added) {
          planned.push_back(&r);
          break;
        }
        if (added.error().why != kvcache::Why::no_pages || !suspend_one(planned)) {
          break;
        }
      }
      if (r.running && !r.done && habits_.stops_at_a_shortage &&
          (planned.empty() || planned.back() != &r)) {
        break;
      }
    }
    (void)plane_.submit(id);
    (void)plane_.commit(id);
    for (Request& r : requests_) {
      if (r.running && !r.done) {
        auto const length = static_cast<std::size_t>(plane_.info(r.id)->length);
        r.known = std::max(r.known, length);
        if (length == r.text.size()) {
          r.done = true;
          r.lost = plane_.info(r.id)->lost;
          counted_ = counted_ && plane_.info(r.id)->suspensions == r.suspended;
          (void)plane_.close(r.id);
        }
      }
    }
    sound_ = sound_ && static_cast<bool>(plane_.check_invariants());
  }
  /// Steps until all is done; false if it is not after `most` steps.
  bool finishes_within(int most)
  {
    for (int i = 0; i < most && !all_done(); ++i) {
      step();
    }
    return all_done() && sound_ && counted_;
  }

  [[nodiscard]] bool all_done() const
  {
    return std::all_of(requests_.begin(), requests_.end(), [](Request const& r) { return r.done; });
  }
  [[nodiscard]] Plane const& plane() const { return plane_; }
  [[nodiscard]] std::vector<Request> const& requests() const { return requests_; }
  [[nodiscard]] std::uint32_t suspended() const
  {
    std::uint32_t n = 0;
    for (Request const& r : requests_) {
      n += r.suspended;
    }
    return n;
  }

 private:
  void return_some()
  {
    for (Request& r : requests_) {
      if (r.running || r.done) {
        continue;
      }
      kvcache::Admission const room = *plane_.admit(r.id);
      kvcache::PageCount const next =
        plane_.probe({.tokens = std::span(r.text).first(r.known)}).new_pages;
      if (habits_.returns_eagerly ? next <= room.available : room.fits_beside_growth) {
        (void)plane_.resume(r.id);
        r.running = true;
      }
    }
  }
  /// Suspends one request. False: there is none to suspend.
  bool suspend_one(std::vector<Request*>& planned)
  {
    Request* victim = nullptr;
    for (Request& r : requests_) {
      bool const may = r.running && !r.done && plane_.info(r.id)->pages > 0;
      victim = may && (victim == nullptr || !habits_.suspends_the_oldest) ? &r : victim;
    }
    if (victim == nullptr) {
      return false;
    }
    (void)plane_.suspend(victim->id);
    victim->running = false;
    victim->suspended += 1;
    std::erase(planned, victim);
    return true;
  }

  Plane plane_;
  Habits habits_;
  std::vector<Request> requests_;
  bool sound_ = true;
  bool counted_ = true;  // the plane counts suspensions as this class does
};

}  // namespace kvcache_test
