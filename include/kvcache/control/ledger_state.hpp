// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/domain_names.hpp>
#include <kvcache/control/events.hpp>
#include <kvcache/control/fenced_spans.hpp>
#include <kvcache/control/fences.hpp>
#include <kvcache/control/step_uses.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/zero_array.hpp>
#include <kvcache/prefix/concept.hpp>

#include <cstddef>
#include <cstdint>

/// \file What `PageLedger` keeps in step, and its figures.

namespace kvcache::inline v0_1::detail {

/// Which chunk of which step a pending span waits for; step 0: it is committed.
struct PendingTag {
  StepId step{};
  StreamId stream{};
  std::uint32_t chunk = 0;
  friend bool operator==(PendingTag const&, PendingTag const&) = default;
};

/// See `PageLedger`.
template <class Allocator, class Prefix, class Replacement>
class LedgerState {
 public:
  LedgerState(std::int32_t page_tokens,
              PageCount pages,
              typename Prefix::Options prefix,
              typename Replacement::Options replacement,
              std::uint32_t event_capacity)
      : allocator_(pages),
        tree_(page_tokens, pages, prefix),
        policy_(replacement),
        fences_(pages),
        step_uses_(pages),
        events_(event_capacity, page_tokens),
        uses_(std::size_t{pages} + 1),
        page_tokens_(page_tokens)
  {
  }

  [[nodiscard]] Allocator const& allocator() const noexcept { return allocator_; }
  [[nodiscard]] Prefix const& tree() const noexcept { return tree_; }
  [[nodiscard]] Replacement const& policy() const noexcept { return policy_; }
  [[nodiscard]] Fences& fences() noexcept { return fences_; }
  [[nodiscard]] Fences const& fences() const noexcept { return fences_; }
  [[nodiscard]] PageCount num_free() const noexcept { return allocator_.num_free(); }
  [[nodiscard]] EventLog const& events() const noexcept { return events_; }
  /// Pages that only the tree holds.
  [[nodiscard]] PageCount num_cached() const noexcept { return cached_; }
  /// Of these, the ones that steps in flight may still read.
  [[nodiscard]] FencedSpans const& fenced() const noexcept { return fenced_; }
  /// Pages that steps hold, and nobody but them and the tree.
  [[nodiscard]] PageCount num_kept() const noexcept { return kept_; }
  [[nodiscard]] StepUses& step_uses() noexcept { return step_uses_; }
  [[nodiscard]] StepUses const& step_uses() const noexcept { return step_uses_; }
  /// Holders of `page` beside the tree and steps: tables, pins, and the stack of those that wait.
  [[nodiscard]] std::uint32_t num_users(PageId page) const noexcept
  {
    return allocator_.count(page) - (tree_.contains(page) ? 1U : 0U) - step_uses_.of(page);
  }

  /// Two pages of a table, one behind the other, have the same holders. Along a table those get fewer, but steps hold
  /// single pages: copies' sources.
  [[nodiscard]] bool same_holders(PageId page, PageId next) const noexcept
  {
    return num_users(page) == num_users(next) && step_uses_.of(page) == 0 &&
           step_uses_.of(next) == 0;
  }

  /// How often `page` was given out to be written: an id that was kept without a hold is the same page still only while
  /// this stays.
  [[nodiscard]] std::uint32_t uses(PageId page) const noexcept { return uses_[page.value]; }

  /// Pages of the domain in the tree.
  [[nodiscard]] PageCount num_indexed(DomainId id) const noexcept { return names_.pages(id); }
  /// Somebody beside the tree names the domain; as often no longer, and then it may end.
  void name(DomainId id) noexcept { names_.name(id); }
  void unname(DomainId id) noexcept
  {
    names_.unname(id);
    end_if_unnamed(id);
  }
  [[nodiscard]] DomainNames const& names() const noexcept { return names_; }
  [[nodiscard]] bool keeps_empty() const noexcept { return keeps_empty_; }

  /// What the span of the cached `page` waits for.
  [[nodiscard]] PendingTag const& tag(PageId page) const noexcept
  {
    return tags_[tree_.span_of(page).value];
  }
  [[nodiscard]] PendingTag const& tag(SpanId span) const noexcept { return tags_[span.value]; }
  [[nodiscard]] bool pending(PageId page) const noexcept { return tag(page).step.value != 0; }

 protected:
  void end_if_unnamed(DomainId id) noexcept
  {
    if constexpr (EndsDomains<Prefix>) {
      if (names_.unnamed(id)) {
        tree_.end(id);
      }
    }
  }

  Allocator allocator_;
  Prefix tree_;
  Replacement policy_;
  Fences fences_;
  StepUses step_uses_;
  FencedSpans fenced_;
  EventLog events_;
  List<PendingTag> tags_;          // by span
  DomainNames names_;              // by domain: pages in the tree, and who else names it
  bool keeps_empty_ = false;       // the domain of those who name nothing stays
  ZeroArray<std::uint32_t> uses_;  // by page: how often it was given out to be written
  std::int32_t page_tokens_;
  PageCount cached_ = 0;
  PageCount kept_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
