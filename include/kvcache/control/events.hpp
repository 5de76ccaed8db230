// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file What others hear of the prefix tree: a router that wants to know which prompts hit here.
///
///   number   1        2        3         4        5
///            stored   stored   removed   stored   cleared
///            [ oldest kept .................. next )        a ring: a slow reader finds that it missed some
///
/// Events are numbered from 1 without a gap, in the order in which things happened; pages that only a stream may see
/// yet are not told. A page is named by its id from `stored` to `removed`, with its parent and its tokens, so a
/// follower builds the tree that it mirrors and a removal is exact: what it does not know it skips. A follower that
/// fell behind takes `Control::for_each_stored` as a snapshot, which stands for all events up to `next() - 1`, and goes on
/// from there. Evictions of a step that is dropped later are told, and then told back.
///
/// Cost: off by default. On: one record a page, and its tokens; memory is that of the ring, allocated once.

namespace kvcache::inline v0_1 {

enum class EventKind : std::uint8_t {
  stored,   ///< the page is found by prompts from now on
  removed,  ///< no longer
  cleared,  ///< the domain was forgotten: none of its pages is found any more
};

/// One change of the tree; see the file comment.
struct Event {
  std::uint64_t number = 0;
  EventKind kind = EventKind::stored;
  DomainId domain{};  ///< as `Control::domain_id` names it
  PageId page{};
  PageId parent{};                  ///< of a stored page: the one before it; zero_page at the start
  std::span<Token const> tokens{};  ///< of a stored page: `page_tokens` of them
};

/// The latest events. Spans in it hold until the next call that changes the cache.
/// **Threads** as its control.
class EventLog {
 public:
  /// Keeps the last `capacity` events; none where it is 0. **Errors** `std::bad_alloc`.
  EventLog(std::uint32_t capacity, std::int32_t page_tokens)
      : records_(capacity),
        tokens_(std::size_t{capacity} * static_cast<std::size_t>(page_tokens)),
        page_tokens_(static_cast<std::size_t>(page_tokens))
  {
  }

  /// The number that the next event will have.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  /// The oldest number that is kept; `next()` where none is.
  [[nodiscard]] std::uint64_t oldest() const noexcept
  {
    std::uint64_t const kept = records_.size();
    return next_ > kept ? next_ - kept : 1;
  }
  /// **Pre** `oldest() <= number < next()`. **Cost** O(1).
  [[nodiscard]] Event at(std::uint64_t number) const
  {
    KVCACHE_EXPECTS(number >= oldest() && number < next_,
                    "kvcache: EventLog::at needs a number from oldest() on and below next()");
    std::size_t const i = number % records_.size();
    Record const& r = records_[i];
    std::size_t const tokens = r.kind == EventKind::stored ? page_tokens_ : 0;
    return {number,
            r.kind,
            r.domain,
            r.page,
            r.parent,
            std::span(tokens_).subspan(i * page_tokens_, tokens)};
  }

  /// Each of these tells `names` which domains the log names now (`name`), and no longer (`unname`).
  template <class Names>
  void stored(Names& names,
              DomainId domain,
              PageId parent,
              std::span<PageId const> pages,
              std::span<Token const> tokens) noexcept
  {
    for (std::size_t i = 0; i < pages.size() && !records_.empty(); ++i) {
      Token* const out = tokens_.data() + next_ % records_.size() * page_tokens_;
      for (std::size_t t = 0; t < page_tokens_; ++t) {
        out[t] = tokens[i * page_tokens_ + t];
      }
      put(names, {EventKind::stored, domain, pages[i], i == 0 ? parent : pages[i - 1]});
    }
  }
  template <class Names>
  void removed(Names& names, DomainId domain, PageId page) noexcept
  {
    put(names, {EventKind::removed, domain, page, zero_page});
  }
  template <class Names>
  void cleared(Names& names, DomainId domain) noexcept
  {
    put(names, {EventKind::cleared, domain, zero_page, zero_page});
  }

 private:
  struct Record {
    EventKind kind;
    DomainId domain;
    PageId page;
    PageId parent;
  };
  template <class Names>
  void put(Names& names, Record const& record) noexcept
  {
    if (records_.empty()) {
      return;
    }
    Record& slot = records_[next_ % records_.size()];
    DomainId const gone = slot.domain;
    bool const full = next_++ > records_.size();
    slot = record;
    names.name(record.domain);
    if (full) {
      names.unname(gone);
    }
  }

  List<Record> records_;  // of event n: [n % size]
  List<Token> tokens_;    // likewise, page_tokens to each
  std::size_t page_tokens_;
  std::uint64_t next_ = 1;
};

/// Where a follower stands in a stream of events that may repeat, swap or lose some on the way.
class EventCursor {
 public:
  enum class Verdict : std::uint8_t {
    apply,   ///< the next one: apply it
    known,   ///< an old one: skip it
    waiting  ///< some before it are missing: get them, or a snapshot
  };

  /// The last number that was applied.
  [[nodiscard]] std::uint64_t applied() const noexcept { return applied_; }
  [[nodiscard]] Verdict take(std::uint64_t number) noexcept
  {
    if (number <= applied_) {
      return Verdict::known;
    }
    if (number != applied_ + 1) {
      return Verdict::waiting;
    }
    applied_ = number;
    return Verdict::apply;
  }
  /// A snapshot that stands for all events up to `number` was applied.
  void jump(std::uint64_t number) noexcept { applied_ = number; }

 private:
  std::uint64_t applied_ = 0;
};

}  // namespace kvcache::inline v0_1
