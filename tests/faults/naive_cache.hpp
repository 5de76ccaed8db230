// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A naive cache with a switch for each fault that other systems had.
///
/// It does what `RealCache` of `subject.hpp` does, with plain vectors: pages hold one stamp a row, the tree is a mark
/// on a page and its whole text. With `Bug::none` every scenario holds; with its own fault each must fail.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "faults/bug.hpp"
#include "faults/naive_page.hpp"
#include "faults/subject.hpp"

namespace kvcache_test {

class NaiveCache {
 public:
  explicit NaiveCache(std::uint32_t pages = 8, Bug bug = Bug::none) : bug_(bug), pages_(pages + 1)
  {
  }

  int open(Text const& text, int tenant = 0, kvcache::Index fresh_tail = 1)
  {
    if (text.size() > 4 * (pages_.size() - 1) && bug_ != Bug::admits_anything) {
      return -1;
    }
    auto const n = static_cast<std::size_t>(usable(text, tenant, fresh_tail));
    Sequence s{true,
               tenant,
               epoch(tenant),
               Text(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n)),
               {}};
    for (std::size_t i = 0; i < pages_of(n); ++i) {
      s.table.push_back(find(text, std::min(n, 4 * (i + 1)), 4 * i, tenant));
      hold(s.table.back());
    }
    locked_ += bug_ == Bug::keeps_a_lock && n != 0 ? 1 : 0;
    if (bug_ == Bug::keeps_a_lock && locked_ == 1 && n != 0) {
      hold(s.table.back());
    }
    sequences_.push_back(s);
    return static_cast<int>(sequences_.size()) - 1;
  }
  int fork(int s)
  {
    Sequence copy = at(s);
    for (std::uint32_t const page : copy.table) {
      if (bug_ != Bug::fork_forgets_the_parent) {
        hold(page);
      }
    }
    sequences_.push_back(copy);
    return static_cast<int>(sequences_.size()) - 1;
  }
  bool truncate(int s, kvcache::Index length)
  {
    Sequence& q = at(s);
    q.tokens.resize(std::min(q.tokens.size(), static_cast<std::size_t>(length)));
    trim(q);
    return true;
  }
  bool close(int s)
  {
    Sequence& q = at(s);
    if (!q.live && bug_ != Bug::frees_twice) {
      return false;
    }
    q.live = false;
    q.tokens.clear();
    if (!in_step(s) || bug_ == Bug::commits_what_was_closed) {
      let_go(q.table);
    }
    if (bug_ != Bug::frees_twice && bug_ != Bug::commits_what_was_closed) {
      q.table.resize(in_step(s) ? q.table.size() : 0);
    }
    return true;
  }
  void forget(int tenant)
  {
    forgotten_.push_back(tenant);
    for (Page& page : pages_) {
      if (page.cached && page.tenant == tenant && bug_ != Bug::keeps_forgotten) {
        page.cached = false;
      }
    }
  }

  bool reserve(int s, Text const& text, bool /*draft*/ = false)
  {
    Sequence& q = at(s);
    std::size_t const end = q.tokens.size() + text.size();
    std::size_t const part = q.tokens.size() / 4;
    bool const copies = q.tokens.size() % 4 != 0 && bug_ != Bug::shares_the_tail &&
                        (pages_[q.table[part]].holders > 1 || pages_[q.table[part]].cached);
    std::size_t const extra = bug_ == Bug::takes_a_page_too_many ? 1 : 0;
    std::size_t const asked = bug_ == Bug::asks_for_a_page_too_many
                                ? (text.size() + 3) / 4
                                : pages_of(end) - q.table.size();
    std::size_t const needed = pages_of(end) + extra - q.table.size();
    std::size_t taken = 0;
    if (asked + (copies ? 1 : 0) > free() + idle()) {
      if (bug_ == Bug::leaks_when_refused && !q.table.empty()) {
        hold(q.table[0]);
      }
      return false;
    }
    if (copies) {
      std::uint32_t const page = take();
      pages_[page].rows = pages_[q.table[part]].rows;
      drop_hold(q.table[part]);
      q.table[part] = page;
    }
    for (; taken < needed; ++taken) {
      q.table.push_back(take());
    }
    chunks_.push_back({s, text});
    if (bug_ == Bug::publishes_at_reserve) {
      publish(q, joined(q.tokens, text));
    }
    return true;
  }
  void drop()
  {
    for (auto const& [s, text] : chunks_) {
      trim(at(s));
    }
    chunks_.clear();
  }
  void run()
  {
    for (auto const& [s, text] : chunks_) {
      Sequence const& q = at(s);
      if (!q.live) {
        continue;
      }
      auto const stamps =
        stamps_of(static_cast<std::uint64_t>(q.tenant), 0, joined(q.tokens, text));
      for (std::size_t i = q.tokens.size(); i < stamps.size(); ++i) {
        std::size_t page = q.table[i / 4];
        if (bug_ == Bug::counts_slots_on && i > 0 && i % 4 == 0) {
          page = (q.table[i / 4 - 1] + 1) % pages_.size();  // the slot after the last one
        }
        pages_[page].rows[i % 4] = stamps[i];
      }
    }
  }
  void commit(kvcache::Index accepted = -1)
  {
    auto const chunks = std::exchange(chunks_, {});
    for (auto const& [s, text] : chunks) {
      Sequence& q = at(s);
      std::size_t const n = accepted < 0 ? text.size() : static_cast<std::size_t>(accepted);
      if (q.live || bug_ == Bug::commits_what_was_closed) {
        q.tokens.insert(
          q.tokens.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n));
        publish(q, q.tokens);
      }
      if (bug_ != Bug::keeps_rejected_pages && bug_ != Bug::takes_a_page_too_many &&
          bug_ != Bug::commits_what_was_closed) {
        trim(q);
      }
    }
  }
  void fail() { drop(); }
  bool append(int s, Text const& text)
  {
    if (!reserve(s, text)) {
      drop();
      return false;
    }
    run();
    commit();
    return true;
  }
  void cache(Text const& text, int tenant = 0)
  {
    int const s = open(text, tenant);
    append(s, Text(text.begin() + length(s), text.end()));
    close(s);
  }

  [[nodiscard]] kvcache::Index hit(Text const& text, int tenant = 0) const
  {
    return usable(text, tenant, 1);
  }
  [[nodiscard]] kvcache::Index length(int s) const
  {
    return static_cast<kvcache::Index>(at(s).tokens.size());
  }
  [[nodiscard]] std::vector<std::uint32_t> table(int s) const { return at(s).table; }
  [[nodiscard]] std::uint32_t free() const
  {
    std::uint32_t n = doubled_;
    for (std::size_t i = 1; i < pages_.size(); ++i) {
      n += pages_[i].holders == 0 && !pages_[i].cached ? 1U : 0U;
    }
    return n;
  }
  [[nodiscard]] std::uint32_t cached() const
  {
    std::uint32_t n = idle();
    for (Page const& page : pages_) {
      n += bug_ == Bug::counts_shared_twice && page.cached && children(page) > 1 ? 1U : 0U;
    }
    return n;
  }
  [[nodiscard]] bool reads(int s) const
  {
    Sequence const& q = at(s);
    auto const stamps = stamps_of(static_cast<std::uint64_t>(q.tenant), 0, q.tokens);
    for (std::size_t i = 0; i < stamps.size(); ++i) {
      if (i / 4 >= q.table.size() || pages_[q.table[i / 4]].rows[i % 4] != stamps[i]) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool check() const
  {
    std::uint32_t held = 0;
    for (std::size_t i = 1; i < pages_.size(); ++i) {
      held += pages_[i].holders > 0 ? 1U : 0U;
    }
    bool right = free() + cached() + held == pages_.size() - 1;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      right = right && reads(static_cast<int>(s));
    }
    return right;
  }

 private:
  using Page = NaivePage;
  using Sequence = NaiveSequence;

  static std::size_t pages_of(std::size_t rows) { return (rows + 3) / 4; }
  [[nodiscard]] Sequence& at(int s) { return sequences_[static_cast<std::size_t>(s)]; }
  [[nodiscard]] Sequence const& at(int s) const { return sequences_[static_cast<std::size_t>(s)]; }
  [[nodiscard]] std::size_t epoch(int tenant) const
  {
    return static_cast<std::size_t>(std::count(forgotten_.begin(), forgotten_.end(), tenant));
  }
  [[nodiscard]] bool in_step(int s) const
  {
    return std::any_of(chunks_.begin(), chunks_.end(), [s](auto const& c) { return c.first == s; });
  }
  [[nodiscard]] std::uint32_t idle() const
  {
    std::uint32_t n = 0;
    for (Page const& page : pages_) {
      n += page.cached && page.holders == 0 ? 1U : 0U;
    }
    return n;
  }
  [[nodiscard]] int children(Page const& parent) const
  {
    return static_cast<int>(std::count_if(
      pages_.begin(), pages_.end(), [&](Page const& page) { return page.continues(parent); }));
  }

  /// The cached page whose text has `text[0 .. rows)`, all of it after row `from` on this page; 0: none.
  [[nodiscard]] std::uint32_t find(Text const& text,
                                   std::size_t rows,
                                   std::size_t from,
                                   int tenant) const
  {
    for (std::uint32_t i = 1; i < pages_.size(); ++i) {
      Page const& page = pages_[i];
      bool const there = page.cached && page.text.size() >= rows && page.text.size() > from &&
                         page.text.size() <= from + 4 &&
                         (page.tenant == tenant || bug_ == Bug::ignores_the_domain);
      auto const end = text.begin() + static_cast<std::ptrdiff_t>(rows);
      bool const same = bug_ == Bug::trusts_a_weak_key
                          ? rows % 4 == 0 && there && page.text[rows - 1] == text[rows - 1]
                          : there && std::equal(text.begin(), end, page.text.begin());
      if (there && same) {
        return i;
      }
    }
    return 0;
  }
  [[nodiscard]] kvcache::Index usable(Text const& text, int tenant, kvcache::Index fresh_tail) const
  {
    auto const tail = static_cast<std::size_t>(bug_ == Bug::ignores_fresh_tail ? 0 : fresh_tail);
    std::size_t const limit = text.size() > tail ? text.size() - tail : 0;
    std::size_t n = 0;
    for (std::size_t rows = 1; rows <= limit; ++rows) {
      bool const found = find(text, rows, (rows - 1) / 4 * 4, tenant) != 0;
      if (!found && bug_ != Bug::trusts_a_weak_key) {
        break;
      }
      n = found ? rows : n;
    }
    return static_cast<kvcache::Index>(n);
  }

  void hold(std::uint32_t page)
  {
    pages_[page].holders += 1;
    pages_[page].used = ++clock_;
  }
  void drop_hold(std::uint32_t page)
  {
    if (pages_[page].holders == 0) {
      doubled_ += 1;  // given back twice
      return;
    }
    pages_[page].holders -= 1;
    pages_[page].used = ++clock_;
  }
  void let_go(std::vector<std::uint32_t> const& table)
  {
    for (std::size_t i = table.size(); i-- > 0;) {
      drop_hold(table[i]);
    }
  }
  void trim(Sequence& s)
  {
    std::size_t const keep = s.live ? pages_of(s.tokens.size()) : 0;
    while (s.table.size() > keep) {
      drop_hold(s.table.back());
      s.table.pop_back();
    }
  }
  std::uint32_t take()
  {
    std::uint32_t best = 0;
    for (std::uint32_t i = 1; i < pages_.size(); ++i) {
      if (pages_[i].holders == 0 && !pages_[i].cached) {
        best = i;
        break;
      }
      bool const may_go =
        pages_[i].holders == 0 &&
        (bug_ == Bug::evicts_the_front ? pages_[i].text.size() == 4 || children(pages_[i]) == 0
                                       : children(pages_[i]) == 0);
      bool const sooner = best == 0 || (bug_ == Bug::evicts_the_front
                                          ? pages_[i].text.size() < pages_[best].text.size()
                                          : pages_[i].used < pages_[best].used);
      best = may_go && sooner ? i : best;
    }
    pages_[best].cached = false;
    pages_[best].text.clear();
    hold(best);
    return best;
  }
  /// Marks the whole pages of `text` as cached; a duplicate is replaced by the one that is there.
  void publish(Sequence& s, Text const& text)
  {
    if (s.epoch != epoch(s.tenant)) {
      return;
    }
    std::size_t const whole = bug_ == Bug::publishes_part_pages || bug_ == Bug::publishes_short_keys
                                ? pages_of(text.size())
                                : text.size() / 4;
    for (std::size_t i = 0; i < whole; ++i) {
      std::size_t const end = std::min(4 * (i + 1), text.size());
      std::uint32_t const there = find(text, end, 4 * i, s.tenant);
      if (there != 0) {
        if (there != s.table[i]) {
          hold(there);
          if (bug_ != Bug::loses_duplicates) {
            drop_hold(s.table[i]);
          }
          s.table[i] = there;
        }
        continue;
      }
      Page& page = pages_[s.table[i]];
      page.cached = true;
      page.tenant = s.tenant;
      page.text.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end));
      if (bug_ == Bug::publishes_part_pages) {
        page.text.resize(4 * (i + 1), page.text.back() + 1);
      }
      if (bug_ == Bug::misfiles_a_child && i > 0 && children_of_front(text, 4 * i, s.tenant) > 1) {
        page.text[4 * i] += 1000;
      }
    }
  }
  [[nodiscard]] int children_of_front(Text const& text, std::size_t rows, int tenant) const
  {
    std::uint32_t const parent = find(text, rows, rows - 4, tenant);
    return parent == 0 ? 0 : children(pages_[parent]);
  }

  Bug bug_;
  std::vector<Page> pages_;  // 0 is never used
  std::vector<Sequence> sequences_;
  std::vector<std::pair<int, Text>> chunks_;
  std::vector<int> forgotten_;
  std::uint64_t clock_ = 0;
  std::uint32_t doubled_ = 0;
  int locked_ = 0;
};

}  // namespace kvcache_test
