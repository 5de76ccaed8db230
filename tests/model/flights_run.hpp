// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The kernels of a step: they store stamps, and read back what attention would read.

#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/flights_world.hpp"
#include "support/random.hpp"

namespace kvcache_test {

/// The rows that the device has of a chunk's sequence before the chunk.
[[nodiscard]] inline FlightText rows_before(FlightWorld const& w, FlightChunk const& chunk)
{
  FlightText rows = chunk.base;
  if (chunk.step_before != 0) {
    auto const id = chunk.who.id;
    auto const found = w.results.find({chunk.step_before, {id.slot, id.generation}});
    require(found != w.results.end(), "a step runs before one that it depends on");
    rows = found->second;
  }
  rows.insert(rows.end(), chunk.attached.begin(), chunk.attached.end());
  return rows;
}

/// A chunk whose sequence was cut back, or of a step that was given up: what it stores from row `first` on is garbage, and must hit
/// nothing that anyone relies on.
inline void run_dead(FlightWorld& w,
                     FlightDevice::View const& view,
                     kvcache::PlannedChunk const& planned,
                     kvcache::Index first,
                     Random& random)
{
  for (kvcache::Index i = first; i < planned.first_index + planned.tokens; ++i) {
    std::size_t const slot = w.device.slot_of(view, planned.row, static_cast<std::size_t>(i));
    require(!w.settled(slot), "I3: a chunk that died writes a row that others rely on");
    w.device.put(slot, random.next());
  }
  w.tally.dead_chunks += 1;
}

/// A way down the tree that ends anywhere.
[[nodiscard]] inline std::vector<kvcache::Index> random_path(
  std::vector<kvcache::Index> const& parents, Random& random)
{
  std::vector<kvcache::Index> path;
  while (random.below(6) != 0) {
    std::vector<kvcache::Index> next;
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] == (path.empty() ? -1 : path.back())) {
        next.push_back(static_cast<kvcache::Index>(i));
      }
    }
    if (next.empty()) {
      break;
    }
    path.push_back(next[random.below(static_cast<std::uint32_t>(next.size()))]);
  }
  return path;
}

/// Stores the chunk's rows, each from the row before it, and decides how much of it is accepted. `first` is the chunk's first token
/// in the view.
inline void run_chunk(FlightWorld& w,
                      FlightStep& t,
                      FlightDevice::View const& view,
                      kvcache::PlannedChunk const& planned,
                      kvcache::Index first,
                      FlightSlots& written,
                      Random& random)
{
  FlightChunk const& chunk = *t.find(planned.sequence);
  FlightText rows = rows_before(w, chunk);
  auto const start = static_cast<kvcache::Index>(rows.size());
  require(start <= planned.first_index && start >= planned.first_index - planned.slack,
          "a chunk begins outside what the plan reserves",
          start,
          planned.first_index);
  require_equal(planned.tokens, chunk.planned, "tokens of a planned chunk");
  FlightText names;
  FlightReads reads;
  FlightText all = rows;
  for (kvcache::Index i = 0; i < planned.tokens; ++i) {
    auto const at = static_cast<std::size_t>(start + i);
    require_equal(view.index(first + i), start + i, "the view has a token at another place");
    require_equal(view.token_row[first + i], planned.row.value, "the view has a token elsewhere");
    kvcache::Token const token = chunk.named.empty()
                                   ? static_cast<kvcache::Token>(random.below(8) == 0)
                                   : chunk.named[static_cast<std::size_t>(i)];
    std::size_t const slot = w.device.slot_of(view, planned.row, at);
    require(slot >= w.device.page_tokens() && slot < (w.setting.pages + 1) * w.device.page_tokens(),
            "I5: a table row holds no page");
    require(t.to_write.test(slot), "a step writes a row that its plan does not name");
    require(!written.test(slot), "a slot is written twice in a step");
    written.set(slot);
    require(!w.settled(slot), "I3: a step writes a row that others rely on");
    std::size_t const parent =  // one more than the row that it follows
      chunk.parents.empty()
        ? at
        : static_cast<std::size_t>(start + chunk.parents[static_cast<std::size_t>(i)] + 1);
    Stamp const before = parent == 0 ? stamp_start(chunk.who.domain, chunk.who.epoch)
                                     : w.device.at(w.device.slot_of(view, planned.row, parent - 1));
    w.device.put(slot, stamp_next(before, token));
    names.push_back(token);
    if (chunk.parents.empty()) {
      all.push_back(token);
    }
  }
  reads.want = FlightWorld::stamps(chunk.who, all);
  for (std::size_t row = 0; row < all.size(); ++row) {
    reads.slots.push_back(w.device.slot_of(view, planned.row, row));
  }
  t.reads.push_back(std::move(reads));
  std::vector<kvcache::Index> path;
  if (chunk.parents.empty()) {
    auto const most = static_cast<std::uint32_t>(planned.tokens);
    names.resize(chunk.draft ? random.below(most + 1) : most);
  } else {
    path = random_path(chunk.parents, random);
    FlightText const drafts = std::move(names);
    names.clear();
    for (kvcache::Index const place : path) {
      names.push_back(drafts[static_cast<std::size_t>(place)]);
    }
  }
  t.paths.push_back(std::move(path));
  rows.insert(rows.end(), names.begin(), names.end());
  view.lengths[planned.row.value] = static_cast<kvcache::Index>(rows.size());
  w.results[{t.id.value, {chunk.who.id.slot, chunk.who.id.generation}}] = std::move(rows);
  t.names.push_back(std::move(names));
}

/// The first kernel: all rows of the step are stored. Of a step that was given up it may have stored something, or nothing.
inline void store_rows(FlightWorld& w,
                       kvcache::StepId id,
                       FlightDevice::View const& view,
                       std::vector<kvcache::PlannedChunk> const& chunks,
                       Random random)
{
  FlightStep* const t = w.find_step(id);
  bool const given_up = t == nullptr || t->doomed;
  if (given_up && random.below(2) == 0) {
    return;
  }
  w.stored_by = id;
  w.tally.ghosts += given_up ? 1U : 0U;
  FlightSlots written;
  kvcache::Index first = 0;
  for (FlightChunk const& chunk : given_up ? std::vector<FlightChunk>() : t->chunks) {
    if (chunk.planned == 0 && !w.control.dead(id, chunk.who.id)) {
      w.results[{id.value, {chunk.who.id.slot, chunk.who.id.generation}}] = rows_before(w, chunk);
    }
  }
  for (kvcache::PlannedChunk const& planned : chunks) {
    bool const dead = given_up || w.control.dead(id, planned.sequence);
    if (given_up) {
      run_dead(w, view, planned, view.index(first), random);
    } else if (dead) {  // where it begins nobody knows
      run_dead(w, view, planned, planned.first_index - planned.slack, random);
      t->names.emplace_back();
      t->paths.emplace_back();
    } else {
      run_chunk(w, *t, view, planned, first, written, random);
    }
    if (!given_up) {
      t->dead.push_back(dead);
    }
    first += planned.tokens;
  }
}

/// The second one: every row that a chunk may see is looked at.
inline void look_at_rows(FlightWorld& w, kvcache::StepId id)
{
  FlightStep* const found = w.find_step(id);
  if (found == nullptr || found->doomed) {
    return;
  }
  FlightStep& t = *found;
  w.tally.between += w.stored_by == id ? 0U : 1U;
  for (FlightReads const& r : t.reads) {
    for (std::size_t row = 0; row < r.slots.size(); ++row) {
      require(w.device.at(r.slots[row]) == r.want[row], "STAMP: a step reads a wrong row");
    }
  }
  for (FlightChunk const& chunk : t.chunks) {  // an outcome for each that was added
    auto const at =
      std::find_if(t.plan.chunks.begin(), t.plan.chunks.end(), [&](kvcache::PlannedChunk const& c) {
        return c.sequence == chunk.who.id;
      });
    if (at == t.plan.chunks.end()) {
      t.outcomes.push_back({});
      continue;
    }
    auto const i = static_cast<std::size_t>(at - t.plan.chunks.begin());
    kvcache::Outcome outcome;
    outcome.accepted = t.dead[i] ? at->tokens : static_cast<kvcache::Index>(t.names[i].size());
    if (chunk.named.empty()) {
      outcome.tokens = t.names[i];
    }
    outcome.path = t.paths[i];
    t.outcomes.push_back(outcome);
  }
  t.stage = FlightStep::Stage::ran;
}

/// Asks the device for the plan and for the kernels, which run some time.
inline void ask_device(FlightWorld& w, FlightStep& t, Random& random)
{
  w.device.streams.reads_early = random.below(2) == 0;
  w.device.streams.backwards = random.below(2) == 0;
  w.on_device(t.stream, [&w, plan = t.plan] {
    for (kvcache::RowMove const& move : plan.moves) {
      require(!w.settled(w.device.slot(move.target, static_cast<std::size_t>(move.target_row))),
              "I3: a plan moves a row to where others rely on another");
    }
    for (kvcache::PageCopy const& copy : plan.copies) {
      for (std::size_t row = 0; row < static_cast<std::size_t>(copy.rows); ++row) {
        require(!w.settled(w.device.slot(copy.target, row)),
                "I3: a plan copies to where others rely on another row");
      }
    }
  });
  char const* const against = w.device.apply(t.plan);
  require(against == nullptr, against);
  auto const view = w.device.view(t.plan.slot);
  std::vector<kvcache::PlannedChunk> chunks(t.plan.chunks.begin(), t.plan.chunks.end());
  w.on_device(t.stream,
              [&w, id = t.id, view, chunks = std::move(chunks), draws = Random(random.next())] {
                store_rows(w, id, view, chunks, draws);
              });
  w.on_device(t.stream, [&w, id = t.id] { look_at_rows(w, id); });
  t.end = w.device.streams.world.record(w.device.stream(t.stream).handle);
}

/// What a step that retires later than `t` reads nobody may write, nor the reverse, but in the order of a stream.
inline void note_rows(FlightWorld& w, FlightStep& t)
{
  auto const page_rows = [&](FlightSlots& slots, kvcache::PageId page, kvcache::Index rows) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      slots.set(w.device.slot(page, row));
    }
  };
  for (kvcache::PlannedChunk const& planned : t.plan.chunks) {
    FlightChunk const* const chunk = t.find(planned.sequence);
    require(chunk != nullptr, "the plan has a chunk that nobody added");
    for (kvcache::Index i = 0; i < planned.first_index + planned.tokens; ++i) {
      std::size_t const slot = w.device.slot_of(chunk->table, static_cast<std::size_t>(i));
      (i < planned.first_index - planned.slack ? t.to_read : t.to_write).set(slot);
    }
  }
  for (kvcache::RowMove const& move : t.plan.moves) {
    std::size_t const slot = w.device.slot(move.target, static_cast<std::size_t>(move.target_row));
    require(!w.settled(slot), "I3: a plan moves a row to where others rely on another");
    t.to_write.set(slot);
    t.to_read.set(w.device.slot(move.source, static_cast<std::size_t>(move.source_row)));
  }
  for (kvcache::PageCopy const& copy : t.plan.copies) {
    page_rows(t.to_read, copy.source, copy.rows);
    page_rows(t.to_write, copy.target, copy.rows);
  }
  for (FlightStep const& other : w.steps) {
    if (other.stream != t.stream && other.stage != FlightStep::Stage::open && !other.lost) {
      require((t.to_write & other.to_read).none(),
              "I2: a step writes a row that a step of another stream reads");
      require((t.to_write & other.to_write).none(), "I2: steps of two streams write a row");
      require((t.to_read & other.to_write).none(),
              "I2: a step reads a row that a step of another stream writes");
    }
  }
}

}  // namespace kvcache_test
