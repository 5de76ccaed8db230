// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The kernels of a step: they store stamps, and read back what attention would read.

#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
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

/// A chunk whose sequence was cut back: what it stores is garbage, and must hit nothing that anyone relies on.
inline void run_dead(FlightWorld& w, kvcache::PlannedChunk const& planned, Random& random)
{
  auto const& table = w.device.table(planned.row);
  for (kvcache::Index i = planned.first_index - planned.slack;
       i < planned.first_index + planned.tokens;
       ++i) {
    std::size_t const slot = w.device.slot_of(table, static_cast<std::size_t>(i));
    require(!w.settled(slot), "I3: a chunk that died writes a row that others rely on");
    w.device.at(slot) = random.next();
  }
  w.tally.dead_chunks += 1;
}

struct FlightReads {
  std::vector<std::size_t> slots;
  std::vector<Stamp> want;
};

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

/// Applies the plan: what it moves goes where nobody relies on what is there.
inline void apply_plan(FlightWorld& w, FlightStep const& t)
{
  for (kvcache::RowMove const& move : t.plan.moves) {
    require(!w.settled(w.device.slot(move.target, static_cast<std::size_t>(move.target_row))),
            "I3: a plan moves a row to where others rely on another");
  }
  w.device.apply(t.plan);
}

/// Stores the chunk's rows, each from the row before it, and decides how much of it is accepted.
inline FlightReads run_chunk(FlightWorld& w,
                             FlightStep& t,
                             FlightChunk const& chunk,
                             kvcache::PlannedChunk const& planned,
                             std::set<std::size_t>& written,
                             Random& random)
{
  FlightText rows = rows_before(w, chunk);
  auto const start = static_cast<kvcache::Index>(rows.size());
  require(start <= planned.first_index && start >= planned.first_index - planned.slack,
          "a chunk begins outside what the plan reserves",
          start,
          planned.first_index);
  require_equal(planned.tokens, chunk.planned, "tokens of a planned chunk");
  auto const& table = w.device.table(planned.row);
  FlightText names;
  FlightReads reads;
  FlightText all = rows;
  for (kvcache::Index i = 0; i < planned.tokens; ++i) {
    auto const at = static_cast<std::size_t>(start + i);
    kvcache::Token const token = chunk.named.empty()
                                   ? static_cast<kvcache::Token>(random.below(8) == 0)
                                   : chunk.named[static_cast<std::size_t>(i)];
    kvcache::PageId const page = table[at / w.device.page_tokens()];
    require(page.value >= 1 && page.value <= w.setting.pages, "I5: a table row holds no page");
    std::size_t const slot = w.device.slot_of(table, at);
    require(written.insert(slot).second, "a slot is written twice in a step");
    require(!w.settled(slot), "I3: a step writes a row that others rely on");
    std::size_t const parent =  // one more than the row that it follows
      chunk.parents.empty()
        ? at
        : static_cast<std::size_t>(start + chunk.parents[static_cast<std::size_t>(i)] + 1);
    Stamp const before = parent == 0 ? stamp_start(chunk.who.domain, chunk.who.epoch)
                                     : w.device.at(w.device.slot_of(table, parent - 1));
    w.device.at(slot) = stamp_next(before, token);
    names.push_back(token);
    if (chunk.parents.empty()) {
      all.push_back(token);
    }
  }
  reads.want = FlightWorld::stamps(chunk.who, all);
  for (std::size_t row = 0; row < all.size(); ++row) {
    reads.slots.push_back(w.device.slot_of(table, row));
  }
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
  w.results[{t.id.value, {chunk.who.id.slot, chunk.who.id.generation}}] = std::move(rows);
  t.names.push_back(std::move(names));
  return reads;
}

/// The plan, then the kernels. Every row that a chunk may see is looked at after all have stored.
inline void run_step(FlightWorld& w, FlightStep& t, Random& random)
{
  apply_plan(w, t);
  std::set<std::size_t> written;
  std::vector<FlightReads> reads;
  for (FlightChunk const& chunk : t.chunks) {
    if (chunk.planned == 0 && !w.control.dead(t.id, chunk.who.id)) {
      w.results[{t.id.value, {chunk.who.id.slot, chunk.who.id.generation}}] = rows_before(w, chunk);
    }
  }
  for (kvcache::PlannedChunk const& planned : t.plan.chunks) {
    FlightChunk const* const chunk = t.find(planned.sequence);
    require(chunk != nullptr, "the plan has a chunk that nobody added");
    if (w.control.dead(t.id, planned.sequence)) {
      run_dead(w, planned, random);
      t.names.emplace_back();
      t.paths.emplace_back();
    } else {
      reads.push_back(run_chunk(w, t, *chunk, planned, written, random));
    }
  }
  for (FlightReads const& r : reads) {
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
    kvcache::PlannedChunk const& planned = *at;
    bool const dead = w.control.dead(t.id, planned.sequence);
    bool const named = !t.find(planned.sequence)->named.empty();
    kvcache::Outcome outcome;
    outcome.accepted = dead ? planned.tokens : static_cast<kvcache::Index>(t.names[i].size());
    if (!named) {
      outcome.tokens = t.names[i];
    }
    outcome.path = t.paths[i];
    t.outcomes.push_back(outcome);
  }
  t.stage = FlightStep::Stage::ran;
}

}  // namespace kvcache_test
