// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

/// \file Which chunks of a step begin with the same pages, and how many rows of them.
///
///   sorted by their tables      a  1 2 3 4 5 6 7 8     common rows of neighbours   128     as a tree   32: d, e,
///                               b  1 2 3 4 5 6 7 8                                  64                  64: c,
///                               c  1 2 3 4 . . . .                                  32                  128: a, b
///                               d  1 2 . . . . . .                                  32
///                               e  1 2 9 . . . . .
///
/// Pages are shared by id, so equal leading ids are equal rows and no token is looked at. A chunk is in one group. From
/// the leaves up, a group of n chunks over r rows, which saves (n - 1) r loads, moves into the next one over fewer rows
/// where its chunks save more there: a and b stay, with 128 saved; c, d and e go over 32 rows and save 64. No better
/// choice is known to be missed by much: the test compares with all choices.
///
/// Cost: O(n log n) comparisons of tables, each as long as what two chunks have in common.
/// Source: a prefix as a level of its own, joined by log-sum-exp, is cascade inference: Ye et al., "Cascade
/// Inference", flashinfer.ai, 2024; Juravsky et al., "Hydragen", 2024. One level here, found anew each step.

namespace kvcache::inline v0_1::detail {

/// See the file comment. Keeps its memory from step to step.
class SharedPrefixes {
 public:
  /// A chunk that may share: its rows before `rows` are seen by all its tokens.
  struct Candidate {
    Index chunk;
    std::uint32_t row;
    Index rows;
  };
  /// Candidates `member(first) .. member(last - 1)` share `rows` rows.
  struct Group {
    std::size_t first;
    std::size_t last;
    Index rows;
  };

  void clear() noexcept { candidates_.clear(); }
  void add(Candidate candidate) { candidates_.push_back(candidate); }
  [[nodiscard]] Candidate const& member(std::size_t i) const noexcept
  {
    return candidates_[members_[i]];
  }

  /// Finds groups that share at least `least` rows, in whole multiples of `multiple`.
  /// **Pre** all heads and layers of a sequence share its table row.
  template <class Layout>
  std::vector<Group> const& find(BatchView<Layout> const& view, Index least, Index multiple)
  {
    std::sort(candidates_.begin(), candidates_.end(), [&](Candidate const& a, Candidate const& b) {
      return before(view, a, b);
    });
    nodes_.clear();
    open_.clear();
    leaves_.clear();
    closed_.clear();
    for (std::size_t i = 1; i <= candidates_.size(); ++i) {
      Index common = 0;
      if (i < candidates_.size()) {
        common = common_rows(view, candidates_[i - 1], candidates_[i]) / multiple * multiple;
        common = common < least ? 0 : common;
      }
      add_leaf(common);
      while (!open_.empty() && nodes_[open_.back()].rows > common) {
        close(common);
      }
    }
    collect();
    return groups_;
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  /// Candidates that have `rows` rows in common, and the group that they might be.
  struct Node {
    Index rows;
    std::size_t up = none;    // the node whose group it would rather be in
    std::int64_t leaves = 0;  // candidates of no inner node
    std::int64_t chunks = 0;  // of the group
    std::int64_t gain = 0;    // rows that its chunks save here and would not elsewhere
    bool group = false;
    std::size_t home = none;  // the node whose group its chunks are in
    std::size_t members = 0;  // of the group; then where the next one goes
  };

  void open(Index rows)
  {
    open_.push_back(nodes_.size());
    nodes_.push_back({.rows = rows});
  }
  [[nodiscard]] Index innermost() const { return open_.empty() ? 0 : nodes_[open_.back()].rows; }

  /// The next candidate, which has `common` rows in common with the one behind it.
  void add_leaf(Index common)
  {
    if (common > innermost()) {
      open(common);
    }
    leaves_.push_back(open_.empty() ? none : open_.back());
    if (!open_.empty()) {
      Node& node = nodes_[open_.back()];
      ++node.leaves;
      ++node.chunks;
      node.gain += node.rows;
    }
  }

  /// Ends the innermost open node, and offers its chunks to the one around it, of `common` rows or more.
  void close(Index common)
  {
    std::size_t const at = open_.back();
    open_.pop_back();
    closed_.push_back(at);
    if (common > innermost()) {
      open(common);
    }
    Node& node = nodes_[at];
    node.group = node.gain > node.rows;
    std::int64_t const chunks = node.group ? node.chunks : node.leaves;
    std::int64_t const saved = node.group ? (chunks - 1) * node.rows : 0;
    if (chunks == 0 || open_.empty()) {
      return;
    }
    Node& around = nodes_[open_.back()];
    if (chunks * around.rows > saved) {
      node.up = open_.back();
      around.chunks += chunks;
      around.gain += chunks * around.rows - saved;
    }
  }

  /// Resolves who went where, outer nodes first, and sorts the candidates by group.
  void collect()
  {
    groups_.clear();
    for (std::size_t i = closed_.size(); i > 0; --i) {
      Node& node = nodes_[closed_[i - 1]];
      bool const goes = node.up != none && nodes_[node.up].group;
      node.home = goes ? nodes_[node.up].home : node.group ? closed_[i - 1] : none;
    }
    for (std::size_t const leaf : leaves_) {
      if (leaf != none && nodes_[leaf].home != none) {
        ++nodes_[nodes_[leaf].home].members;
      }
    }
    std::size_t members = 0;
    for (Node& node : nodes_) {
      if (node.members > 0) {
        groups_.push_back({members, members + node.members, node.rows});
        std::size_t const first = members;
        members += node.members;
        node.members = first;
      }
    }
    members_.resize(members);
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i] != none && nodes_[leaves_[i]].home != none) {
        members_[nodes_[nodes_[leaves_[i]].home].members++] = i;
      }
    }
  }

  template <class Layout>
  static std::uint32_t page(BatchView<Layout> const& view, Candidate const& of, Index p)
  {
    return view.segment.entry(0, 0, of.row, static_cast<std::uint32_t>(p));
  }

  /// Leading pages that are equal, as far as the shorter one goes.
  template <class Layout>
  static Index equal_pages(BatchView<Layout> const& view, Candidate const& a, Candidate const& b)
  {
    Index const rows = a.rows < b.rows ? a.rows : b.rows;
    Index const pages = view.tiles_of(rows);
    Index p = 0;
    while (p < pages && page(view, a, p) == page(view, b, p)) {
      ++p;
    }
    return p;
  }
  template <class Layout>
  static Index common_rows(BatchView<Layout> const& view, Candidate const& a, Candidate const& b)
  {
    Index const shorter = a.rows < b.rows ? a.rows : b.rows;
    Index const equal = equal_pages(view, a, b);
    return equal == view.tiles_of(shorter) ? shorter : equal * view.map.tokens.get();
  }
  template <class Layout>
  static bool before(BatchView<Layout> const& view, Candidate const& a, Candidate const& b)
  {
    Index const p = equal_pages(view, a, b);
    if (p < view.tiles_of(a.rows < b.rows ? a.rows : b.rows)) {
      return page(view, a, p) < page(view, b, p);
    }
    return a.rows != b.rows ? a.rows < b.rows : a.chunk < b.chunk;
  }

  std::vector<Candidate> candidates_;  // sorted by their tables
  std::vector<Node> nodes_;
  std::vector<std::size_t> open_;    // nodes around the next candidate, the innermost last
  std::vector<std::size_t> closed_;  // nodes, inner ones before those around them
  std::vector<std::size_t> leaves_;  // of each candidate: its innermost node
  std::vector<std::size_t> members_;
  std::vector<Group> groups_;
};

}  // namespace kvcache::inline v0_1::detail
