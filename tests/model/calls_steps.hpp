// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Calls on steps, each on both instances and on the model. A call returns whether it did something.

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/calls_sequences.hpp"
#include "model/engine.hpp"
#include "model/world.hpp"

namespace kvcache_test {

template <class T>
bool begin(World<T>& w)
{
  if (w.books.step.stage > NaiveStep::Stage::open) {
    return false;  // one step at a time here
  }
  std::uint64_t const digest = w.cache.digest();
  auto begun = w.cache.begin();
  auto const twin = w.books.twin.begin();
  bool const busy = w.books.step.stage != NaiveStep::Stage::none;
  require(begun.has_value() == !busy && twin.has_value() == !busy, "begin");
  if (busy) {
    require_equal(begun.error().why, kvcache::Why::busy, "begin while a step is not over");
    return false;
  }
  w.step.emplace(std::move(*begun));
  w.books.step = {};
  w.books.step.stage = NaiveStep::Stage::open;
  w.books.step.id = *twin;
  w.books.step.digest_at_begin = digest;
  w.books.lost.clear();
  require(w.step->id() == *twin, "two instances gave different step ids");
  return true;
}

/// The next tokens of a sequence: of its prompt, or new ones.
inline std::vector<kvcache::Token> next_tokens(NaiveSequence const& s,
                                               Setting const& setting,
                                               std::uint32_t count,
                                               std::uint32_t text)
{
  auto const p = static_cast<std::uint32_t>(setting.page_tokens);
  std::size_t n = 1 + count % (2 * p + 2);
  std::vector<kvcache::Token> tokens;
  if (!s.rest.empty()) {
    n = text % 4 == 0 ? n : s.rest.size();
    n = std::min(n, s.rest.size());
    tokens.assign(s.rest.begin(), s.rest.begin() + static_cast<std::ptrdiff_t>(n));
  } else {
    n = text % 2 == 0 ? 1 : n;
    write_text(tokens, n, text / 4, setting.alphabet);
  }
  return tokens;
}

template <class T>
bool add(World<T>& w, Operation const& o)
{
  if (w.books.live.empty() || w.books.step.stage != NaiveStep::Stage::open) {
    return false;
  }
  std::size_t const i = o.a % w.books.live.size();
  NaiveSequence& s = w.books.live[i];
  std::vector<kvcache::Token> const tokens = next_tokens(s, w.setting, o.b, o.c);
  auto const added = w.step->add(w.handles[i], draft_of(tokens));
  kvcache::Shortage const twin = w.books.add(s, tokens);
  require_equal(added ? kvcache::Why::ok : added.error().why, twin.why, "two instances: add");
  w.say("sequence " + std::to_string(s.id.slot) + " at " + std::to_string(s.tokens.size()) + ": " +
        listed(tokens) + ": " + kvcache::name(twin.why));
  w.tally.shortages += twin.why == kvcache::Why::no_pages ? 1U : 0U;
  return added.has_value();
}

/// A step says what it computes: the tokens of the chunks that are in its plan, in that order.
inline void check_tokens(Books const& books, kvcache::StepTokens const& tokens)
{
  auto at = tokens.begin();
  std::size_t n = 0;
  for (std::size_t c = 0; c < books.step.chunks.size(); ++c) {
    NaiveChunk const& chunk = books.step.chunks[c];
    for (std::size_t i = 0; chunk.planned && i < chunk.tokens.size(); ++i, ++at, ++n) {
      require(at != tokens.end(), "a step says less than it computes");
      kvcache::StepToken const token = *at;
      require(token.kind == kvcache::StepToken::Kind::named && token.token == chunk.tokens[i] &&
                token.chunk == c && token.place == static_cast<kvcache::Index>(i),
              "a step says that it computes another token");
    }
  }
  require(!(at != tokens.end()), "a step says more than it computes");
  require_equal(tokens.size(), n, "tokens of a step");
}

template <class T>
void mark_submitted(World<T>& w)
{
  require(w.step->plan() == w.books.twin.plan(w.books.step.id),
          "two instances made different plans");
  for (NaiveChunk& chunk : w.books.step.chunks) {
    chunk.planned = !chunk.orphan;
  }
  check_plan(w.books, w.step->plan());
  check_tokens(w.books, w.step->tokens());
  check_tokens(w.books, w.books.twin.tokens(w.books.step.id));
  w.tally.planned_rows += static_cast<std::uint64_t>(w.step->plan().num_tokens());
  w.tally.copies += w.step->plan().copies.size();
  w.books.step.stage = NaiveStep::Stage::submitted;
  w.books.step_was_submitted();
}

template <class T>
bool submit(World<T>& w)
{
  if (w.books.step.stage == NaiveStep::Stage::none) {
    return false;
  }
  bool const open = w.books.step.stage == NaiveStep::Stage::open;
  auto const done = w.step->submit();
  auto const twin = w.books.twin.submit(w.books.step.id);
  require(done.has_value() == open && twin.has_value() == open, "submit");
  if (!open) {
    require_equal(done.error().why, kvcache::Why::stale_step, "a second submit");
    return false;
  }
  mark_submitted(w);
  return true;
}

template <class T>
bool run(World<T>& w)
{
  if (w.books.step.stage != NaiveStep::Stage::submitted) {
    return false;
  }
  play(w.books, w.step->view());
  w.books.step.stage = NaiveStep::Stage::ran;
  return true;
}

/// The step is over: its sequences are free, and what it lost stays lost.
template <class T>
void retire(World<T>& w)
{
  for (NaiveChunk const& chunk : w.books.step.chunks) {
    if (!chunk.orphan) {
      w.books.find(chunk.sequence)->in_step = false;
    }
  }
  w.books.step = {};
  w.books.step_is_over();
}

template <class T>
void check_published(World<T>& w, std::span<kvcache::SequenceId const> ids)
{
  auto const p = static_cast<std::size_t>(w.setting.page_tokens);
  for (kvcache::SequenceId const id : ids) {
    NaiveSequence const& s = *w.books.find(id);
    auto const table = w.books.twin.table(id);
    for (std::size_t i = 0; (i + 1) * p <= s.tokens.size() && s.epoch == w.books.epochs[s.domain];
         ++i) {
      auto const& page = w.books.tree.at(table[i].value);
      require(page && page->text.size() == (i + 1) * p &&
                std::equal(page->text.begin(), page->text.end(), s.tokens.begin()),
              "a whole committed page is not in the tree");
    }
  }
}

template <class T>
bool commit(World<T>& w, Operation const& o)
{
  using Stage = NaiveStep::Stage;
  NaiveStep& step = w.books.step;
  if (step.stage == Stage::none) {
    return false;
  }
  if (step.stage == Stage::open) {
    require(!w.step->commit() && !w.books.twin.commit(step.id), "commit before submit");
    return false;
  }
  if (step.stage == Stage::submitted) {
    run(w);
  }
  Random random(o.a + 64 * o.b);
  std::vector<kvcache::Index> accepted;
  for (NaiveChunk const& chunk : step.chunks) {
    auto const all = static_cast<std::uint32_t>(chunk.tokens.size());
    std::uint32_t const some = o.a % 8 == 7 ? 0 : o.a % 2 == 0 ? all : random.below(all + 1);
    accepted.push_back(static_cast<kvcache::Index>(some));
  }
  std::uint64_t real = 0;
  std::vector<kvcache::SequenceId> ids;
  std::size_t at = 0;
  for (NaiveChunk const& chunk : step.chunks) {
    auto const n = static_cast<std::size_t>(accepted[at++]);
    if (chunk.orphan) {
      continue;
    }
    NaiveSequence& s = *w.books.find(chunk.sequence);
    bool const as_asked =
      n <= s.rest.size() && std::equal(chunk.tokens.begin(),
                                       chunk.tokens.begin() + static_cast<std::ptrdiff_t>(n),
                                       s.rest.begin());
    s.rest.erase(s.rest.begin(),
                 as_asked ? s.rest.begin() + static_cast<std::ptrdiff_t>(n) : s.rest.end());
    for (std::size_t i = 0; i < n; ++i) {
      s.tokens.push_back(chunk.tokens[i]);
      s.stamps.push_back(chunk.stamps[s.tokens.size() - 1]);
    }
    real += n;
    ids.push_back(s.id);
  }
  kvcache::Stats const before = w.cache.stats();
  std::span<kvcache::Index const> const told =
    o.a % 8 == 0 ? std::span<kvcache::Index const>{} : std::span<kvcache::Index const>(accepted);
  require(w.step->commit(told).has_value(), "commit");
  require(w.books.twin.commit(step.id, told).has_value(), "commit of the second instance");
  w.step.reset();
  retire(w);
  w.books.recount({.come = true});
  check_published(w, ids);
  kvcache::Stats const after = w.cache.stats();
  require_equal(after.committed_rows - before.committed_rows, real, "stats.committed_rows");
  w.tally.commits += 1;
  w.say("accepted " + listed(accepted));
  return true;
}

/// A device that failed half-way: what the step was to store, and what it was to copy, is garbage.
template <class T>
void leave_garbage(World<T>& w)
{
  auto const view = w.step->view();
  for (kvcache::Index token = 0; token < view.num_tokens(); ++token) {
    for (std::int32_t layer = 0; layer < w.setting.layers; ++layer) {
      for (std::int32_t head = 0; head < w.setting.heads; ++head) {
        append_stamp(view, layer, head, token, w.books.clock);
      }
    }
  }
  for (kvcache::PageCopy const& copy : w.step->plan().copies) {
    std::memset(
      w.arena.data() + w.rows.page_bytes() * copy.target.value, 0xee, w.rows.page_bytes());
  }
}

/// A submitted step that is given up: its rows never existed.
template <class T>
bool fail(World<T>& w)
{
  if (w.books.step.stage == NaiveStep::Stage::none) {
    return false;
  }
  if (w.books.step.stage == NaiveStep::Stage::open) {
    require(!w.books.twin.fail(w.books.step.id), "fail before submit");
    return false;
  }
  leave_garbage(w);
  w.step.reset();
  require(w.books.twin.fail(w.books.step.id).has_value(), "fail");
  retire(w);
  w.books.recount({});
  w.tally.fails += 1;
  return true;
}

/// An open step that is given up: nothing happened.
template <class T>
bool drop(World<T>& w)
{
  if (w.books.step.stage == NaiveStep::Stage::none) {
    return false;
  }
  if (w.books.step.stage != NaiveStep::Stage::open) {
    require(!w.books.twin.drop(w.books.step.id), "drop after submit");
    return false;
  }
  NaiveStep const step = w.books.step;
  std::size_t const lost = w.books.lost.size();
  w.step.reset();
  require(w.books.twin.drop(step.id).has_value(), "drop");
  retire(w);
  auto const moved = w.books.recount({.return_ = true});
  if (!step.disturbed) {
    require(w.cache.digest() == step.digest_at_begin, "drop left a trace in the digest");
    require_equal(moved.back, lost, "drop did not bring back what the step had evicted");
  }
  w.books.lost.clear();
  w.tally.drops += 1;
  w.say(step.disturbed ? "disturbed" : "alone");
  return true;
}

/// begin, add each, submit: all of it, or nothing.
template <class T>
bool prepare(World<T>& w, Operation const& o)
{
  if (w.books.live.empty() || w.books.step.stage > NaiveStep::Stage::open) {
    return false;
  }
  using Chunk = typename World<T>::Cache::SequenceChunk;
  std::uint64_t const digest = w.cache.digest();
  std::size_t const count = 1 + o.b % 3;
  std::vector<std::size_t> who;
  std::vector<std::vector<kvcache::Token>> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    who.push_back((o.a + i) % w.books.live.size());  // more than there are: one comes twice
    tokens.push_back(next_tokens(w.books.live[who[i]],
                                 w.setting,
                                 o.c + static_cast<std::uint32_t>(i),
                                 o.d + static_cast<std::uint32_t>(i)));
  }
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < count; ++i) {
    chunks.push_back({.sequence = w.handles[who[i]], .tokens = tokens[i], .draft = true});
  }
  auto prepared = w.cache.prepare(chunks);
  if (w.books.step.stage != NaiveStep::Stage::none) {
    require(!prepared && prepared.error().why == kvcache::Why::busy, "prepare while a step runs");
    return false;
  }
  w.books.lost.clear();
  w.books.step = {};
  w.books.step.stage = NaiveStep::Stage::open;
  w.books.step.id = *w.books.twin.begin();
  kvcache::Shortage refused{};
  for (std::size_t i = 0; i < count && refused.why == kvcache::Why::ok; ++i) {
    refused = w.books.add(w.books.live[who[i]], tokens[i]);
    w.say((i == 0 ? "" : ", ") + std::string("sequence ") +
          std::to_string(w.books.live[who[i]].id.slot) + " at " +
          std::to_string(w.books.live[who[i]].tokens.size()) + ": " + listed(tokens[i]));
  }
  require_equal(prepared ? kvcache::Why::ok : prepared.error().why, refused.why, "prepare");
  w.say(std::string(": ") + kvcache::name(refused.why));
  if (!prepared) {
    std::size_t const lost = w.books.lost.size();
    require(w.books.twin.drop(w.books.step.id).has_value(), "drop");
    retire(w);
    auto const moved = w.books.recount({.return_ = true});
    require_equal(moved.back, lost, "a refused prepare did not bring back what it had evicted");
    require(w.cache.digest() == digest, "I9: a refused prepare left a trace");
    w.tally.shortages += refused.why == kvcache::Why::no_pages ? 1U : 0U;
    return false;
  }
  w.step.emplace(std::move(*prepared));
  require(w.books.twin.submit(w.books.step.id).has_value(), "submit");
  mark_submitted(w);
  return true;
}

}  // namespace kvcache_test
