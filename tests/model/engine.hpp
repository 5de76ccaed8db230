// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The engine of the model test: its kernels store stamps and read back what attention would read.

#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "model/books.hpp"
#include "support/stamp.hpp"

namespace kvcache_test {

/// Holds a submitted plan to the model: the chunks, the copies, and that no planned row lies in a page that
/// somebody else may read (I3) or is planned twice.
inline void check_plan(Books const& books, kvcache::Plan const& plan)
{
  auto const p = static_cast<kvcache::Index>(books.setting.page_tokens);
  require_equal(plan.step.value, books.step.id.value, "plan.step");
  std::set<std::pair<std::uint32_t, kvcache::Index>> slots;
  std::size_t at = 0;
  std::size_t copies = 0;
  for (NaiveChunk const& chunk : books.step.chunks) {
    if (chunk.orphan) {
      copies += chunk.copy_source != kvcache::zero_page ? 1U : 0U;
      continue;
    }
    require(at < plan.chunks.size(), "the plan lacks a chunk");
    kvcache::PlannedChunk const& planned = plan.chunks[at++];
    require(planned.sequence == chunk.sequence && planned.first_index == chunk.first &&
              static_cast<std::size_t>(planned.tokens) == chunk.tokens.size() &&
              planned.row == books.twin.info(chunk.sequence)->row,
            "the plan has another chunk than was added");
    if (chunk.copy_source != kvcache::zero_page) {
      require(copies < plan.copies.size(), "the plan lacks a copy");
      kvcache::PageCopy const& copy = plan.copies[copies++];
      require(copy.source == chunk.copy_source &&
                copy.target == chunk.table[static_cast<std::size_t>(chunk.first / p)] &&
                copy.rows == chunk.first % p,
              "the plan copies another page, or not the rows before the chunk");
    }
    for (kvcache::Index i = 0; i < planned.tokens; ++i) {
      kvcache::Index const index = chunk.first + i;
      std::uint32_t const page = chunk.table[static_cast<std::size_t>(index / p)].value;
      require(!books.tree.at(page) && books.tables[page] + books.let_go[page] == 1,
              "I3: a row is planned in a page that others hold");
      require(slots.emplace(page, index % p).second, "a slot is planned twice");
    }
  }
  require_equal(plan.chunks.size(), at, "chunks of the plan");
  require_equal(plan.copies.size(), copies, "copies of the plan");
}

/// Runs the planned chunks layer by layer. Before it stores, each chunk must find the stamps of all rows before
/// it; after it has stored, each of its tokens must see its own row too.
template <class Layout>
void play(Books const& books, kvcache::BatchView<Layout> const& view)
{
  std::vector<NaiveChunk const*> chunks;
  std::size_t tokens = 0;
  for (NaiveChunk const& chunk : books.step.chunks) {
    if (chunk.planned) {
      chunks.push_back(&chunk);
      tokens += chunk.tokens.size();
    }
  }
  require_equal(view.num_chunks(), chunks.size(), "chunks in the view");
  require_equal(view.num_tokens(), tokens, "tokens in the view");
  for (std::int32_t layer = 0; layer < books.setting.layers; ++layer) {
    for (std::int32_t head = 0; head < books.setting.heads; ++head) {
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        kvcache::ChunkView const chunk = view.chunk(static_cast<kvcache::Index>(c));
        require_equal(chunk.first_index, chunks[c]->first, "first index in the view");
        require_equal(chunk.tokens, chunks[c]->tokens.size(), "tokens of a chunk in the view");
        kvcache::Index const wrong = first_wrong_row(
          view, layer, head, chunk.first_token, chunks[c]->stamps, chunk.first_index);
        require(wrong == all_rows_right, "STAMP: a step reads a wrong row", wrong, all_rows_right);
      }
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        kvcache::ChunkView const chunk = view.chunk(static_cast<kvcache::Index>(c));
        for (kvcache::Index i = 0; i < chunk.tokens; ++i) {
          auto const row = static_cast<std::size_t>(chunk.first_index + i);
          append_stamp(view, layer, head, chunk.first_token + i, chunks[c]->stamps[row]);
        }
      }
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        kvcache::ChunkView const chunk = view.chunk(static_cast<kvcache::Index>(c));
        kvcache::Index const last = chunk.first_token + chunk.tokens - 1;
        kvcache::Index const wrong = first_wrong_row(
          view, layer, head, last, chunks[c]->stamps, chunk.first_index + chunk.tokens);
        require(wrong == all_rows_right,
                "STAMP: a step does not read what it stored",
                wrong,
                all_rows_right);
      }
    }
  }
}

}  // namespace kvcache_test
