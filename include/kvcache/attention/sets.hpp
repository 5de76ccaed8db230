// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/instruction_set.hpp>
#include <kvcache/attention/item.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/shared_prefix.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/attention/work.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// \file The query rows of a step in sets that fit one item each, before anything is cut along KV.

namespace kvcache::inline v0_1::detail {

/// What is cut along KV: the query rows of an item, and in `begin` and `end` all the rows that they see.
struct AttentionSet {
  static constexpr std::size_t none = ~std::size_t{0};
  AttentionItem rows;
  std::size_t piece;  // of a shared prefix: that it is, or whose rest it is; `none`
  Index at;           // its first token's place in the list of that piece
};

/// Makes the sets. Keeps its memory from step to step.
class AttentionSets {
 public:
  /// Fills `sets`, and of `work` what does not depend on cuts. **Errors** names the field.
  template <class Layout>
  Error make(BatchView<Layout> const& view,
             AttentionShape const& shape,
             AttentionOptions const& options,
             AttentionWork& work)
  {
    Error error = start(shape, options, view.map.dim.get(), work);
    if (error.why == Why::ok) {
      error = look(view, options.two_way, work);
    }
    if (error.why != Why::ok) {
      return error;
    }
    rests_.assign(static_cast<std::size_t>(view.num_chunks()), Rest{});
    if (options.shared_rows > 0 && view.segment.one_table()) {
      share_prefixes(view, options, work);
    }
    for (Index c = 0; c < view.num_chunks(); ++c) {
      add(view.chunk(c), rests_[static_cast<std::size_t>(c)], work);
    }
    return {};
  }

  /// The sets, those of shared prefixes first.
  [[nodiscard]] std::vector<AttentionSet> const& sets() const noexcept { return sets_; }
  /// How many groups of sequences share a prefix.
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_; }

 private:
  static constexpr Index block = AttentionOptions::rows_per_block;

  /// What is left of a chunk beside a shared prefix.
  struct Rest {
    Index begin = 0;
    std::size_t piece = AttentionSet::none;
    Index at = 0;
  };

  Error start(AttentionShape const& shape,
              AttentionOptions const& options,
              std::int32_t head_dim,
              AttentionWork& work)
  {
    work.clear();
    sets_.clear();
    pieces_ = 0;
    prefixes_.clear();
    Error error = shape.validate();
    if (error.why == Why::ok) {
      error = options.validate();
    }
    if (error.why != Why::ok) {
      return error;
    }
    InstructionSet const best = best_instruction_set();
    if (options.instructions > best) {
      return {Why::bad_config,
              "instructions",
              static_cast<std::int64_t>(options.instructions),
              "this processor offers no set beyond number",
              static_cast<std::int64_t>(best)};
    }
    work.instructions = options.instructions == InstructionSet::best ? best : options.instructions;
    work.shape = shape;
    work.head_dim = head_dim;
    return {};
  }

  /// What each token sees. **Errors** names a span that is none.
  template <class Layout>
  static Error look(BatchView<Layout> const& view,
                    std::span<TwoWaySpan const> two_way,
                    AttentionWork& work)
  {
    for (Index t = 0; t < view.num_tokens(); ++t) {
      work.sights.push_back(sight_of(view, work.shape.window, t));
    }
    Index chunk = 0;
    Index free = 0;  // tokens that no span has
    for (TwoWaySpan const& span : two_way) {
      if (span.first_token < free || span.first_token >= view.num_tokens()) {
        return {Why::bad_config,
                "two_way.first_token",
                span.first_token,
                "must be a token of the step behind the spans before it, not below",
                free};
      }
      while (view.chunk_first[chunk + 1] <= span.first_token) {
        ++chunk;
      }
      Index const room = view.chunk_first[chunk + 1] - span.first_token;
      if (span.tokens < 1 || span.tokens > room) {
        return {Why::bad_config,
                "two_way.tokens",
                span.tokens,
                "must be at least 1 and end with its chunk at the latest, within",
                room};
      }
      bool const tree = view.token_mask != nullptr && view.token_mask[span.first_token] != 0;
      if (view.index(span.first_token) < 0 || tree) {
        return {Why::bad_config,
                "two_way.first_token",
                span.first_token,
                "must be neither padding nor a token of a tree"};
      }
      free = span.first_token + span.tokens;
      Index const own = view.index(span.first_token);
      for (Index t = span.first_token; t < free; ++t) {
        Sight& sight = work.sights[static_cast<std::size_t>(t)];
        sight.first = sight.first < own ? sight.first : own;
        sight.last = own + span.tokens;
      }
    }
    return {};
  }

  /// Groups the chunks that begin with the same pages. A chunk with queries enough to be worth its loads alone stays
  /// alone, and so does one whose window has left the first rows behind.
  template <class Layout>
  void share_prefixes(BatchView<Layout> const& view,
                      AttentionOptions const& options,
                      AttentionWork& work)
  {
    Index const room = AttentionState::rows(work.head_dim) / work.shape.group();
    for (Index c = 0; c < view.num_chunks(); ++c) {
      ChunkView const chunk = view.chunk(c);
      bool sees_all = 2 * chunk.tokens <= room && chunk.first_index > 0;
      for (Index t = 0; sees_all && t < chunk.tokens; ++t) {
        sees_all = work.sight(chunk.first_token + t).first == 0;
      }
      if (sees_all) {
        prefixes_.add({c, chunk.row, chunk.first_index});
      }
    }
    Index const multiple = options.split_rows > 0 ? options.split_rows : block;
    for (SharedPrefixes::Group const& group : prefixes_.find(view, options.shared_rows, multiple)) {
      share_among(view, group, room, work);
    }
  }

  /// One group, in as few pieces of about equal size as its tokens need.
  template <class Layout>
  void share_among(BatchView<Layout> const& view,
                   SharedPrefixes::Group const& group,
                   Index room,
                   AttentionWork& work)
  {
    Index tokens = 0;
    for (std::size_t i = group.first; i < group.last; ++i) {
      tokens += view.chunk(prefixes_.member(i).chunk).tokens;
    }
    Index const pieces = (tokens + room - 1) / room;
    Index const fair = (tokens + pieces - 1) / pieces;
    for (std::size_t i = group.first; i < group.last;) {
      std::uint32_t const row = prefixes_.member(i).row;
      auto const first = static_cast<Index>(work.shared_tokens.size());
      Index n = 0;
      while (i < group.last && n < fair) {
        SharedPrefixes::Candidate const& member = prefixes_.member(i);
        ChunkView const chunk = view.chunk(member.chunk);
        if (n + chunk.tokens > room) {
          break;
        }
        rests_[static_cast<std::size_t>(member.chunk)] = {group.rows, pieces_, first + n};
        for (Index t = 0; t < chunk.tokens; ++t) {
          work.shared_tokens.push_back(chunk.first_token + t);
        }
        n += chunk.tokens;
        ++i;
      }
      std::int32_t const heads = room / n;
      for (std::int32_t h = 0; h < work.shape.kv_heads; h += heads) {
        sets_.push_back({{.first_token = first,
                          .tokens = n,
                          .row = row,
                          .first_head = h,
                          .heads = least(heads, work.shape.kv_heads - h),
                          .first_query = 0,
                          .queries = work.shape.group(),
                          .begin = 0,
                          .end = group.rows,
                          .shared = true,
                          .partial = AttentionItem::whole},
                         pieces_,
                         first});
      }
      ++pieces_;
    }
  }

  /// Cuts one chunk into sets of query rows that fit the state of an item.
  void add(ChunkView const& chunk, Rest const& rest, AttentionWork const& work)
  {
    std::int32_t const room = AttentionState::rows(work.head_dim);
    std::int32_t const group = work.shape.group();
    std::int32_t const kv_heads = work.shape.kv_heads;
    Index tokens = chunk.tokens;
    std::int32_t queries = group;
    std::int32_t heads = 1;
    if (group > room) {
      tokens = 1;
      std::int32_t const pieces = (group + room - 1) / room;
      queries = (group + pieces - 1) / pieces;
    } else if (tokens > room / group) {
      tokens = room / group;
    } else {
      heads = room / (tokens * group);
    }
    for (std::int32_t h = 0; h < kv_heads; h += heads) {
      for (Index t = 0; t < chunk.tokens; t += tokens) {
        AttentionItem rows{.first_token = chunk.first_token + t,
                           .tokens = least(tokens, chunk.tokens - t),
                           .row = chunk.row,
                           .first_head = h,
                           .heads = least(heads, kv_heads - h),
                           .first_query = 0,
                           .queries = 0,
                           .begin = 0,
                           .end = 0,
                           .shared = false,
                           .partial = AttentionItem::whole};
        Index first = work.sight(rows.first_token).first;
        for (Index i = 0; i < rows.tokens; ++i) {
          Sight const sight = work.sight(rows.first_token + i);
          first = least(first, sight.first);
          rows.end = rows.end > sight.last ? rows.end : sight.last;
        }
        rows.begin = first > rest.begin ? first / block * block : rest.begin;
        for (std::int32_t q = 0; q < group; q += queries) {
          rows.first_query = q;
          rows.queries = least(queries, group - q);
          sets_.push_back({rows, rest.piece, rest.at});
        }
      }
    }
  }

  static constexpr std::int32_t least(std::int32_t a, std::int32_t b) { return a < b ? a : b; }

  std::vector<AttentionSet> sets_;
  std::vector<Rest> rests_;  // of the step's chunks
  std::size_t pieces_ = 0;
  SharedPrefixes prefixes_;
};

}  // namespace kvcache::inline v0_1::detail
