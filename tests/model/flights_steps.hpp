// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Calls on steps, two in flight a stream, each on both instances.

#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/flights_calls.hpp"
#include "model/flights_run.hpp"
#include "model/flights_world.hpp"
#include "support/random.hpp"

namespace kvcache_test {

[[nodiscard]] inline FlightStep* flight_begin(FlightWorld& w, kvcache::StreamId stream)
{
  std::uint64_t const digest = w.control.digest();
  auto const begun = w.control.begin(stream, {.attach = w.setting.attach});
  auto const twin = w.twin.begin(stream, {.attach = w.setting.attach});
  require(begun.has_value() == twin.has_value(), "two instances: begin");
  bool const busy = w.open_step(stream.value) != nullptr || w.submitted(stream.value) == 2;
  require(begun.has_value() == !busy, "begin while the stream has a step open, or two in flight");
  if (!begun) {
    require(w.control.digest() == digest, "I9: a refused begin changed something");
    return nullptr;
  }
  require(*begun == *twin, "two instances gave different step ids");
  FlightStep t;
  t.id = *begun;
  t.stream = stream.value;
  w.steps.push_back(std::move(t));
  w.say("step " + std::to_string(begun->value));
  return &w.steps.back();
}

/// Adds `tokens`, or `count` unnamed ones. False: refused.
inline bool add_chunk(FlightWorld& w,
                      FlightStep& t,
                      FlightSequence const& s,
                      FlightText const& tokens,
                      kvcache::Index count,
                      bool draft,
                      std::vector<kvcache::Index> const& parents = {},
                      FlightSpans const& declared = {})
{
  FlightText const given = tokens_of(tokens);
  auto const media = w.items.declare(declared);
  kvcache::Chunk const chunk{.tokens = given,
                             .count = tokens.empty() ? count : 0,
                             .draft = draft,
                             .parents = parents,
                             .media = media};
  kvcache::Index const end = w.control.planned_end(s.id);
  std::uint64_t const digest = w.control.digest();
  FlightText const base = w.tokens_of(s);
  auto const held = w.control.table(s.id);
  std::vector<kvcache::PageId> const before(held.begin(), held.end());
  bool const lone = w.pins.empty() && w.live.size() == 1 && w.steps.size() == 1 && t.chunks.empty();
  auto const all = tokens.empty() ? count : static_cast<kvcache::Index>(tokens.size());
  auto const added = w.control.add(t.id, s.id, chunk);
  auto const twin = w.twin.add(t.id, s.id, chunk);
  require(added.has_value() == twin.has_value(), "two instances: add");
  w.say("step " + std::to_string(t.id.value) + " sequence " + std::to_string(s.id.slot) +
        (!parents.empty() ? " tree "
         : draft          ? " draft "
         : tokens.empty() ? " count "
                          : " tokens ") +
        std::to_string(all));
  w.tally.adds += 1;
  if (!added) {
    kvcache::Shortage const& no = added.error();
    w.tally.crowded += no.detail.field == std::string("media.rows") ? 1U : 0U;
    require(w.control.digest() == digest, "I9: a refused add changed something");
    require(no.why != kvcache::Why::no_pages || no.free + no.evictable < no.need,
            "a Shortage that says that there was enough",
            no.free + no.evictable,
            no.need);
    auto const p = static_cast<kvcache::Index>(w.setting.page_tokens);
    auto const pages = (static_cast<kvcache::Index>(base.size()) + all + p - 1) / p;
    require(!lone || no.why != kvcache::Why::no_pages ||
              pages > static_cast<kvcache::Index>(w.setting.pages),
            "liveness: the only sequence was refused pages though it fits the pool");
    w.tally.refused += 1;
    w.say(std::string(" refused: ") + kvcache::name(no.why));
    return false;
  }
  require(*added == *twin && *added >= 0 && *added <= all, "rows planned");
  require(w.setting.attach || *added == all, "a step that does not attach plans what it was given");
  FlightSequence& own = *w.find(s.id);
  for (FlightMedia span : declared) {
    span.step = t.id.value;
    own.media.push_back(span);
  }
  w.tally.media += declared.size();
  require(torn(own.media, end + all - *added) == nullptr && torn(own.media, end + all) == nullptr,
          "a chunk begins or ends inside an atomic span");
  FlightChunk c;
  c.who = s;
  c.draft = draft;
  c.parents = parents;
  c.base = base;
  c.step_before = w.control.step_before(s.id);
  c.planned = *added;
  auto const attached = static_cast<std::ptrdiff_t>(all - *added);
  if (!tokens.empty()) {
    c.attached.assign(tokens.begin(), tokens.begin() + attached);
    c.named.assign(tokens.begin() + attached, tokens.end());
  }
  auto const after = w.control.table(s.id);
  c.table.assign(after.begin(), after.end());
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (c.table[i] != before[i]) {
      c.copy_source = before[i];
      c.copy_target = c.table[i];
      w.tally.copies += 1;
      for (FlightStep const& other : w.steps) {
        for (FlightChunk const& link : other.chunks) {
          w.tally.links += &other != &t && link.copy_target == before[i] ? 1U : 0U;
        }
      }
    }
  }
  w.tally.attached_rows += static_cast<std::uint64_t>(attached);
  w.tally.attach_only += *added == 0 ? 1U : 0U;
  w.tally.trees += parents.empty() ? 0U : 1U;
  w.say(" planned " + std::to_string(*added));
  t.chunks.push_back(std::move(c));
  return true;
}

inline void flight_add(FlightWorld& w, FlightStep& t, Random& random)
{
  FlightSequence* s = pick(w, random, false, &t);
  if (s == nullptr) {
    return;
  }
  for (FlightSequence& other :
       w.live) {  // rows of a path wait for the next chunk: make that likely
    bool const waits = !other.suspended && !w.control.strays(other.id).empty();
    s = waits && random.below(2) == 0 ? &other : s;
  }
  kvcache::Index const end = w.control.planned_end(s->id);
  bool const still = end == w.control.info(s->id)->length;  // drafts would shift what comes next
  if (s->rest.empty() && media_end(s->media) > end && still && random.below(4) != 0) {
    for (kvcache::Index row = end; row < media_end(s->media); ++row) {
      s->rest.push_back(symbol_at(s->media, row, 0));
    }
  }
  if (!s->rest.empty()) {
    auto const most = static_cast<std::uint32_t>(s->rest.size());
    auto n = static_cast<std::ptrdiff_t>(random.below(2) == 0 ? most : random.between(1, most));
    if (FlightMedia const* const span = torn(s->media, end + static_cast<kvcache::Index>(n))) {
      if (random.below(4) == 0) {
        w.tally.torn += 1;
        require(!add_chunk(w, t, *s, FlightText(s->rest.begin(), s->rest.begin() + n), 0, false),
                "a chunk that ends inside an atomic span was added");
        return;
      }
      n = span->end() - end;
    }
    if (add_chunk(w, t, *s, FlightText(s->rest.begin(), s->rest.begin() + n), 0, false)) {
      s->rest.erase(s->rest.begin(), s->rest.begin() + n);
    }
    return;
  }
  if (random.below(3) == 0) {
    std::uint32_t const count = random.between(1, 7);
    FlightText tokens;
    std::vector<kvcache::Index> parents;
    for (std::uint32_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<kvcache::Token>(random.below(3) == 0));
      parents.push_back(static_cast<kvcache::Index>(random.below(i + 1)) - 1);
    }
    return (void)add_chunk(w, t, *s, tokens, 0, false, parents);
  }
  if (random.below(6) == 0) {  // the next turn of a chat
    FlightText turn;
    for (std::uint32_t i =
           random.between(1, 2 * static_cast<std::uint32_t>(w.setting.page_tokens) + 1);
         i > 0;
         --i) {
      turn.push_back(static_cast<kvcache::Token>(random.below(14) == 0));
    }
    for (std::size_t i = 0; i < turn.size(); ++i) {
      turn[i] = symbol_at(s->media, end + static_cast<kvcache::Index>(i), turn[i]);
    }
    FlightSpans spans;
    std::size_t n = turn.size();
    if (media_end(s->media) <= end && random.below(2) == 0) {
      spans = some_media(turn, end, w.setting.page_tokens, random);
      bool const now = std::any_of(
        spans.begin(), spans.end(), [](FlightMedia const& span) { return span.text(); });
      n = now ? n : random.between(1, static_cast<std::uint32_t>(n));
      if (FlightMedia const* const span = torn(spans, end + static_cast<kvcache::Index>(n))) {
        n = static_cast<std::size_t>(span->end() - end);
      }
    }
    auto const cut = turn.begin() + static_cast<std::ptrdiff_t>(n);
    if (add_chunk(w, t, *s, FlightText(turn.begin(), cut), 0, false, {}, spans)) {
      s->rest.assign(cut, turn.end());
      w.tally.turns += spans.empty() ? 0U : 1U;
    }
    return;
  }
  bool const draft = random.below(3) == 0;
  bool const named = random.below(2) == 0;
  std::uint32_t const count = draft ? random.between(1, 5) : 1;
  FlightText tokens;
  for (std::uint32_t i = 0; named && i < count; ++i) {
    auto const token = static_cast<kvcache::Token>(random.below(4) == 0);
    tokens.push_back(draft ? token
                           : symbol_at(s->media, end + static_cast<kvcache::Index>(i), token));
  }
  (void)add_chunk(w, t, *s, tokens, static_cast<kvcache::Index>(count), draft);
}

/// The sequences that a failed step cut back begin anew.
inline void take_cuts(FlightWorld& w)
{
  w.drop_dead_spans();
  auto const cuts = w.control.cuts();
  auto const twin = w.twin.cuts();
  require(std::equal(cuts.begin(), cuts.end(), twin.begin(), twin.end()), "two instances: cuts");
  for (kvcache::Cut const& cut : cuts) {
    for (FlightSequence& s : w.live) {
      if (s.id == cut.sequence) {
        s.rest.clear();
      }
    }
  }
  w.tally.cuts += cuts.size();
}

/// The pool refused the plan: the step fails at once, and nothing of it was applied.
inline void flight_lose(FlightWorld& w, FlightStep& t)
{
  kvcache::StepId const id = t.id;
  require(w.control.fail(id).has_value() && w.twin.fail(id).has_value(), "fail");
  take_cuts(w);
  w.tally.lost += 1;
  w.say(" lost");
  if (w.oldest(t.stream) == &t) {
    w.erase(id);
  } else {
    t.doomed = true;
    t.lost = true;
  }
}

/// The device comes some way, or to the end of a step.
inline void let_run(FlightWorld& w, Random& random)
{
  for (std::uint32_t pieces = random.between(1, 9); pieces > 0; --pieces) {
    (void)w.device.streams.world.run_some(random);
  }
}

inline void flight_submit(FlightWorld& w, FlightStep& t, Random& random)
{
  require(w.control.submit(t.id).has_value() && w.twin.submit(t.id).has_value(), "submit");
  t.plan = w.control.plan(t.id);
  require(t.plan == w.twin.plan(t.id), "two instances made different plans");
  t.stage = FlightStep::Stage::submitted;
  w.tally.moves += t.plan.moves.size();
  for (FlightChunk& chunk : t.chunks) {  // a copy that the plan lacks was of no use to anyone
    bool const copied =
      std::any_of(t.plan.copies.begin(), t.plan.copies.end(), [&](kvcache::PageCopy const& copy) {
        return copy.target == chunk.copy_target;
      });
    chunk.copy_target = copied ? chunk.copy_target : kvcache::zero_page;
  }
  w.say("step " + std::to_string(t.id.value));
  note_rows(w, t);
  if (random.below(40) == 0) {
    return flight_lose(w, t);
  }
  ask_device(w, t, random);
  std::uint32_t const pace = random.below(4);
  if (pace == 0) {
    w.device.streams.world.finish(t.end);
  } else if (pace == 1) {
    let_run(w, random);
  }
}

inline void flight_drop(FlightWorld& w, FlightStep& t)
{
  kvcache::StepId const id = t.id;
  for (FlightSequence& s : w.live) {
    s.rest.clear();
    drop_spans(s.media, [&](std::uint64_t step) { return step == id.value; });
  }
  require(w.control.drop(id).has_value() && w.twin.drop(id).has_value(), "drop");
  w.say("step " + std::to_string(id.value));
  w.erase(id);
}

/// The device comes to the end of the stream's oldest step that has not run (two of them may have run before the first is
/// committed), or some way.
inline void flight_run(FlightWorld& w, std::uint32_t stream, Random& random)
{
  if (random.below(2) == 0) {
    let_run(w, random);
    return w.say("some");
  }
  for (FlightStep& t : w.steps) {
    if (t.stream == stream && t.stage == FlightStep::Stage::submitted && !t.doomed) {
      w.say("step " + std::to_string(t.id.value));
      return w.device.streams.world.finish(t.end);
    }
  }
}

/// Steps that were given up end with the one before them.
inline bool end_doomed(FlightWorld& w, std::uint32_t stream)
{
  bool ended = false;
  for (FlightStep* t = w.oldest(stream); t != nullptr && t->doomed; t = w.oldest(stream)) {
    w.tally.doomed += 1;
    w.erase(t->id);
    ended = true;
  }
  return ended;
}

/// Drafts of `id` were accepted, so the chunks behind them no longer may begin before their end.
inline void settle_drafts(FlightWorld& w, kvcache::StepId id)
{
  for (FlightStep& t : w.steps) {
    for (kvcache::PlannedChunk const& planned : t.plan.chunks) {
      FlightChunk const& chunk = *t.find(planned.sequence);
      auto const result =
        w.results.find({id.value, {planned.sequence.slot, planned.sequence.generation}});
      if (chunk.step_before != id.value || result == w.results.end()) {
        continue;
      }
      auto const start = static_cast<kvcache::Index>(result->second.size());
      for (kvcache::Index i = planned.first_index - planned.slack; i < start; ++i) {
        std::size_t const slot = w.device.slot_of(chunk.table, static_cast<std::size_t>(i));
        t.to_write.reset(slot);
        t.to_read.set(slot);
      }
    }
  }
}

inline void flight_commit(FlightWorld& w, FlightStep& t)
{
  if (t.stage != FlightStep::Stage::ran) {
    return;
  }
  kvcache::StepId const id = t.id;
  std::vector<std::pair<kvcache::SequenceId, FlightText>> before;
  for (FlightSequence const& s : w.live) {
    before.emplace_back(s.id, w.tokens_of(s));
  }
  require(w.control.commit(id, t.outcomes).has_value() && w.twin.commit(id, t.outcomes).has_value(),
          "commit");
  std::uint32_t const stream = t.stream;
  for (FlightSequence& s : w.live) {
    for (FlightMedia& span : s.media) {
      span.step = span.step == id.value ? 0 : span.step;
    }
  }
  w.erase(id);
  settle_drafts(w, id);
  w.failing[stream] = false;
  take_cuts(w);
  bool const cut = end_doomed(w, stream);
  for (auto const& [sequence, had] : before) {
    FlightText const now = w.tokens_of(*w.find(sequence));
    auto const result = w.results.find({id.value, {sequence.slot, sequence.generation}});
    bool const same =
      std::equal(now.begin(), now.end(), had.begin(), had.end()) ||
      (cut && now.size() < had.size() && std::equal(now.begin(), now.end(), had.begin()));
    require(
      same || (result != w.results.end() &&
               std::equal(now.begin(), now.end(), result->second.begin(), result->second.end())),
      "commit gave a sequence other rows than ran and were accepted");
  }
  w.tally.commits += 1;
  w.say("step " + std::to_string(id.value));
}

/// The device may not have come to the step, or be anywhere in it; what was submitted is applied all the same.
inline void flight_fail(FlightWorld& w, FlightStep& t)
{
  kvcache::StepId const id = t.id;
  std::uint32_t const stream = t.stream;
  bool const is_oldest = &t == w.oldest(stream);
  if (!t.lost) {
    w.device.abandon(t.plan.slot, stream);
  }
  require(w.control.fail(id).has_value() && w.twin.fail(id).has_value(), "fail");
  w.tally.fails += 1;
  w.failing[stream] = true;
  w.say("step " + std::to_string(id.value));
  take_cuts(w);
  if (is_oldest) {
    w.erase(id);
    (void)end_doomed(w, stream);
  } else {
    require(w.control.cuts().empty(), "a step that waits for an older one cut somebody back");
    t.doomed = true;
  }
}

/// Of the submitted steps of the stream mostly the oldest.
inline void flight_fail(FlightWorld& w, Random& random, std::uint32_t stream)
{
  FlightStep* chosen = w.oldest(stream);
  for (FlightStep& t : w.steps) {
    bool const other = t.stream == stream && t.stage != FlightStep::Stage::open && !t.doomed;
    chosen = other && random.below(4) == 0 ? &t : chosen;
  }
  if (chosen != nullptr) {
    flight_fail(w, *chosen);
  }
}

/// begin, adds, drop: nothing happened.
inline void flight_pure_drop(FlightWorld& w, kvcache::StreamId stream, Random& random)
{
  if (w.open_step(stream.value) != nullptr) {
    return;
  }
  std::uint64_t const digest = w.control.digest();
  FlightStep* const t = flight_begin(w, stream);
  if (t == nullptr) {
    return;
  }
  for (int i = 0; i < 3; ++i) {
    if (FlightSequence const* const s = pick(w, random)) {
      FlightText turn(random.between(1, 6), 0);
      FlightSpans spans;
      bool const next = s->rest.empty() && media_end(s->media) <= w.control.planned_end(s->id);
      if (next && random.below(2) == 0) {
        spans = some_media(turn, w.control.planned_end(s->id), w.setting.page_tokens, random);
      }
      (void)add_chunk(w, *t, *s, spans.empty() ? s->rest : turn, 1, false, {}, spans);
    }
  }
  kvcache::StepId const id = t->id;
  for (FlightSequence& s : w.live) {
    drop_spans(s.media, [&](std::uint64_t step) { return step == id.value; });
  }
  require(w.control.drop(id).has_value() && w.twin.drop(id).has_value(), "drop");
  w.erase(id);
  require(w.control.digest() == digest, "I9: begin, adds and drop left a trace");
}

/// Chains are dense: what could do nothing does what makes room for it. And one failure seldom comes alone.
[[nodiscard]] inline FlightKind kind_of(FlightWorld& w, FlightOperation const& o)
{
  if (!w.setting.chains) {
    return o.kind;
  }
  FlightStep const* const open = w.open_step(o.stream);
  FlightKind kind = o.kind;
  if (kind == FlightKind::submit && (open == nullptr || open->chunks.empty())) {
    kind = FlightKind::add;
  }
  if (kind == FlightKind::add && open == nullptr && w.submitted(o.stream) == 2) {
    kind = FlightKind::commit;
  }
  if (kind == FlightKind::add && open != nullptr &&
      std::all_of(w.live.begin(), w.live.end(), [&](FlightSequence const& s) {
        return s.suspended || open->find(s.id) != nullptr;
      })) {
    kind = FlightKind::submit;
  }
  if (kind == FlightKind::fork && w.live.size() >= most_sequences(w)) {
    kind = FlightKind::close;
  }
  Random random(o.seed);
  if (w.failing[o.stream] && kind == FlightKind::commit && random.below(2) == 0) {
    return FlightKind::fail;
  }
  if (w.failing[o.stream] && kind == FlightKind::submit && random.below(4) == 0) {
    return FlightKind::drop;
  }
  return kind;
}

inline void perform(FlightWorld& w, FlightOperation const& o)
{
  Random random(o.seed);
  FlightKind const kind = kind_of(w, o);
  kvcache::StreamId const stream{o.stream};
  FlightStep* open = w.open_step(o.stream);
  if (open == nullptr && (kind == FlightKind::add || kind == FlightKind::submit)) {
    open = flight_begin(w, stream);  // so that random scripts are not idle
  }
  FlightStep* const oldest = w.oldest(o.stream);  // `begin` may have moved it
  if (kind == FlightKind::commit && oldest != nullptr &&
      oldest->stage == FlightStep::Stage::submitted) {
    return flight_run(w, o.stream, random);
  }
  switch (kind) {
    case FlightKind::open:
      return flight_open(w, stream, random);
    case FlightKind::begin:
      return (void)flight_begin(w, stream);
    case FlightKind::add:
      return open != nullptr ? flight_add(w, *open, random) : void();
    case FlightKind::submit:
      return open != nullptr ? flight_submit(w, *open, random) : void();
    case FlightKind::drop:
      return open != nullptr ? flight_drop(w, *open) : void();
    case FlightKind::run:
      return flight_run(w, o.stream, random);
    case FlightKind::commit:
      return oldest != nullptr ? flight_commit(w, *oldest) : void();
    case FlightKind::fail:
      return flight_fail(w, random, o.stream);
    case FlightKind::fork:
      return flight_fork(w, random);
    case FlightKind::truncate:
      return flight_truncate(w, random);
    case FlightKind::close:
      return flight_close(w, random);
    case FlightKind::suspend:
      return flight_suspend(w, random);
    case FlightKind::resume:
      return flight_resume(w, stream, random);
    case FlightKind::forget:
      return flight_forget(w, random);
    case FlightKind::pure_drop:
      return flight_pure_drop(w, stream, random);
    case FlightKind::reorder:
      return flight_reorder(w, random);
    case FlightKind::pin:
      return flight_pin(w, random);
    case FlightKind::unpin:
      return flight_unpin(w, random);
  }
}

/// I8: once all is closed, nothing is held.
inline void finish(FlightWorld& w)
{
  while (!w.live.empty()) {
    kvcache::SequenceId const id = w.live.back().id;
    require(w.control.close(id).has_value() && w.twin.close(id).has_value(), "close");
    w.live.pop_back();
    w.check();
  }
  while (!w.steps.empty()) {
    FlightStep& t = w.steps.front();
    t.stage == FlightStep::Stage::open ? flight_drop(w, t) : flight_fail(w, t);
    w.check();
  }
  while (!w.pins.empty()) {
    Random random(0);
    flight_unpin(w, random);
    w.check();
  }
  Random random(0);
  w.device.streams.world.finish_all(random);
  w.check();
  w.control.forget(w.domains[0]);
  w.control.forget(w.domains[1]);
  require_equal(w.control.stats().free, w.setting.pages, "I8: all is closed and not all is free");
}

}  // namespace kvcache_test
