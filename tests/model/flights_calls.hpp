// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Calls on sequences while steps are in flight, each on both instances.

#include <kvcache/control/prompt.hpp>
#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/flights_world.hpp"
#include "support/random.hpp"

namespace kvcache_test {

/// Few, so that they share; of chains so few that a page often has one holder and a step.
[[nodiscard]] inline std::size_t most_sequences(FlightWorld const& w)
{
  return w.setting.chains ? 4 : 6;
}

/// How near a sequence is to being a link of a chain: 2 where it has a page that a step in flight copies or copied to, or rows
/// of a page and a step in flight; 1 where it has rows of a page.
[[nodiscard]] inline int linked(FlightWorld const& w, FlightSequence const& s)
{
  bool flies = false;
  auto const table = w.control.table(s.id);
  for (FlightStep const& t : w.steps) {
    for (FlightChunk const& chunk : t.chunks) {
      flies = flies || chunk.who.id == s.id;
      for (kvcache::PageId const page : table) {
        if (chunk.copy_target == page || chunk.copy_source == page) {
          return 2;
        }
      }
    }
  }
  bool const part = w.control.info(s.id)->length % w.setting.page_tokens != 0;
  return !part ? 0 : flies ? 2 : 1;
}

/// One of the sequences that are suspended, or that are not; of chains often a link, and seldom one that step `t` has.
[[nodiscard]] inline FlightSequence* pick(FlightWorld& w,
                                          Random& random,
                                          bool suspended = false,
                                          FlightStep const* t = nullptr)
{
  bool const chains = w.setting.chains && !suspended;
  bool const fresh = chains && t != nullptr && random.below(32) != 0;
  for (int want = chains ? 2 - static_cast<int>(random.below(5) / 2) : 0; want >= 0; --want) {
    std::vector<FlightSequence*> some;
    for (FlightSequence& s : w.live) {
      if (s.suspended == suspended && (!fresh || t->find(s.id) == nullptr) &&
          (want == 0 || linked(w, s) >= want)) {
        some.push_back(&s);
      }
    }
    if (!some.empty()) {
      return some[random.below(static_cast<std::uint32_t>(some.size()))];
    }
  }
  return nullptr;
}

inline void flight_open(FlightWorld& w, kvcache::StreamId stream, Random& random)
{
  if (w.live.size() >= most_sequences(w)) {
    return;
  }
  FlightSequence s;
  s.domain = random.below(w.setting.chains ? 3 : 5) == 0 ? 1 : 0;
  s.epoch = w.epochs[s.domain];
  auto const p = static_cast<std::uint32_t>(w.setting.page_tokens);
  std::uint32_t const drawn = random.between(1, (w.setting.chains ? 2 : 3) * p + 1);
  bool const zeros = random.below(2) == 0;
  std::uint32_t const count = random.below(2) == 0 ? std::max(drawn, 2 * p + 1) : drawn;
  FlightText text;
  for (std::uint32_t i = 0; i < count; ++i) {
    text.push_back(static_cast<kvcache::Token>(!zeros && random.below(14) == 0));
  }
  if (random.below(w.setting.chains ? 5 : 2) == 0) {
    s.media = some_media(text, 0, w.setting.page_tokens, random);
  }
  FlightText const tokens = tokens_of(text);
  auto const media = w.items.declare(s.media);
  auto const tail =
    static_cast<kvcache::Index>(random.below(4) == 0 ? random.between(1, p + 2) : 1);
  kvcache::Prompt const prompt{.tokens = tokens,
                               .domain = &w.domains[s.domain],
                               .fresh_tail = tail,
                               .stream = stream,
                               .media = media};
  kvcache::Hit const hit = w.control.probe(prompt);
  auto const opened = w.control.open(prompt);
  auto const twin = w.twin.open(prompt);
  require(opened.has_value() == twin.has_value(), "two instances: open");
  if (!opened) {
    w.tally.crowded += opened.error().field == std::string("media.rows") ? 1U : 0U;
    return w.say(std::string("refused: ") + kvcache::name(opened.error().why));
  }
  require(*opened == *twin, "two instances gave different ids");
  s.id = *opened;
  kvcache::Index const rows = w.control.info(s.id)->length;
  require_equal(hit.rows, rows, "open finds other rows than probe");
  require(rows == 0 || rows <= static_cast<kvcache::Index>(text.size()) - tail, "no fresh tail");
  w.tally.media += s.media.size();
  bool const media_hit = std::any_of(
    text.begin(), text.begin() + rows, [](kvcache::Token symbol) { return symbol > 1; });
  w.tally.media_hits += media_hit ? 1U : 0U;
  s.rest.assign(text.begin() + rows, text.end());
  w.tally.hit_rows += static_cast<std::uint64_t>(rows);
  auto const table = w.control.table(s.id);
  w.tally.pending_hits += !table.empty() && w.control.pending(table.back()) ? 1U : 0U;
  w.say("sequence " + std::to_string(s.id.slot) + " of " + std::to_string(count) + ", hit " +
        std::to_string(rows));
  w.live.push_back(std::move(s));
}

inline void flight_fork(FlightWorld& w, Random& random)
{
  FlightSequence const* const from = pick(w, random);
  if (from == nullptr || w.live.size() >= most_sequences(w) ||
      (w.setting.chains && linked(w, *from) == 0 && random.below(8) != 0)) {
    return;
  }
  auto const forked = w.control.fork(from->id);
  auto const twin = w.twin.fork(from->id);
  require(forked.has_value() == twin.has_value(), "two instances: fork");
  if (forked) {
    w.say("sequence " + std::to_string(from->id.slot) + " -> " + std::to_string(forked->slot));
    FlightSequence s = *from;
    s.id = *forked;
    s.rest.clear();
    FlightText const had = w.tokens_of(*from);
    drop_spans(s.media, [](std::uint64_t) { return true; });
    FlightText const has = w.tokens_of(s);
    require(has.size() <= had.size() && std::equal(has.begin(), has.end(), had.begin()),
            "a fork has other rows");
    w.live.push_back(std::move(s));
  }
}

inline void flight_truncate(FlightWorld& w, Random& random)
{
  FlightSequence* const s = pick(w, random);
  if (s == nullptr) {
    return;
  }
  FlightText const before = w.tokens_of(*s);
  auto const length =
    static_cast<kvcache::Index>(random.below(static_cast<std::uint32_t>(before.size()) + 3));
  bool const voids = length < w.control.planned_end(s->id);
  auto const kept = w.control.truncate(s->id, length);
  auto const twin = w.twin.truncate(s->id, length);
  require(kept.has_value() && twin.has_value() && *kept == *twin, "truncate");
  clip(s->media, length, voids);
  FlightText const after = w.tokens_of(*s);
  require(*kept <= static_cast<kvcache::Index>(before.size()) &&
            *kept == static_cast<kvcache::Index>(after.size()) &&
            std::equal(after.begin(), after.end(), before.begin()),
          "truncate kept other rows than it says");
  s->rest.clear();
  w.say("sequence " + std::to_string(s->id.slot) + " to " + std::to_string(length) + ", kept " +
        std::to_string(*kept));
}

inline void flight_close(FlightWorld& w, Random& random)
{
  if (FlightSequence const* const s = pick(w, random)) {
    kvcache::SequenceId const id = s->id;
    require(w.control.close(id).has_value() && w.twin.close(id).has_value(), "close");
    w.say("sequence " + std::to_string(id.slot));
    std::erase_if(w.live, [&](FlightSequence const& other) { return other.id == id; });
  }
}

inline void flight_suspend(FlightWorld& w, Random& random)
{
  if (FlightSequence* const s = pick(w, random)) {
    s->before = w.tokens_of(*s);
    require(w.control.suspend(s->id).has_value() && w.twin.suspend(s->id).has_value(), "suspend");
    drop_spans(s->media, [](std::uint64_t) { return true; });
    require(w.tokens_of(*s) == s->before, "a suspended sequence lost tokens");
    s->suspended = true;
    w.say("sequence " + std::to_string(s->id.slot));
  }
}

inline void flight_resume(FlightWorld& w, kvcache::StreamId stream, Random& random)
{
  FlightSequence* const s = pick(w, random, true);
  if (s == nullptr) {
    return;
  }
  auto const hit = w.control.resume(s->id, stream);
  auto const twin = w.twin.resume(s->id, stream);
  require(hit.has_value() == twin.has_value(), "two instances: resume");
  if (!hit) {
    return w.say(std::string("refused: ") + kvcache::name(hit.error().why));
  }
  FlightText const rows = w.tokens_of(*s);
  require_equal(hit->rows, rows.size(), "resume finds other rows than it says");
  require(
    rows.size() <= s->before.size() && std::equal(rows.begin(), rows.end(), s->before.begin()),
    "resume found rows of another text");
  s->suspended = false;
  s->epoch = w.epochs[s->domain];
  s->rest.assign(s->before.begin() + hit->rows, s->before.end());
  w.tally.resumes += 1;
  w.say("sequence " + std::to_string(s->id.slot) + ", hit " + std::to_string(hit->rows));
}

/// Whole pages of a cached text stay until they are let go.
inline void flight_pin(FlightWorld& w, Random& random)
{
  if (w.pins.size() >= 2) {
    return;
  }
  FlightText const text(random.between(1, 3 * static_cast<std::uint32_t>(w.setting.page_tokens)),
                        static_cast<kvcache::Token>(random.below(8) == 0));
  std::uint64_t const digest = w.control.digest();
  kvcache::Prompt const prefix{.tokens = text, .domain = &w.domains[random.below(2)]};
  auto const pin = w.control.pin(prefix);
  auto const twin = w.twin.pin(prefix);
  require(pin.has_value() == twin.has_value(), "two instances: pin");
  require(pin.has_value() || w.control.digest() == digest, "I9: a refused pin changed something");
  w.tally.pins += pin.has_value() ? 1U : 0U;
  if (pin) {
    w.pins.push_back(*pin);
  }
}
inline void flight_unpin(FlightWorld& w, Random& random)
{
  if (!w.pins.empty()) {
    auto const at =
      static_cast<std::ptrdiff_t>(random.below(static_cast<std::uint32_t>(w.pins.size())));
    require(w.control.unpin(w.pins[static_cast<std::size_t>(at)]).has_value() &&
              w.twin.unpin(w.pins[static_cast<std::size_t>(at)]).has_value(),
            "unpin");
    w.pins.erase(w.pins.begin() + at);
  }
}

inline void flight_forget(FlightWorld& w, Random& random)
{
  std::uint32_t const domain = random.below(2);
  w.control.forget(w.domains[domain]);
  w.twin.forget(w.domains[domain]);
  w.epochs[domain] += 1;
  w.say("domain " + std::to_string(domain));
}

/// Beams: some of the sequences go on as copies of others.
inline void flight_reorder(FlightWorld& w, Random& random)
{
  std::vector<std::size_t> who;
  std::vector<kvcache::SequenceId> ids;
  std::vector<FlightText> texts;
  for (std::size_t i = 0; i < w.live.size(); ++i) {
    if (!w.live[i].suspended && random.below(2) == 0) {
      who.push_back(i);
      ids.push_back(w.live[i].id);
      texts.push_back(w.tokens_of(w.live[i]));
    }
  }
  std::vector<kvcache::Index> parents;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    parents.push_back(
      static_cast<kvcache::Index>(random.below(static_cast<std::uint32_t>(ids.size()))));
  }
  std::uint64_t const digest = w.control.digest();
  auto const done = w.control.reorder(ids, parents);
  auto const twin = w.twin.reorder(ids, parents);
  require(done.has_value() == twin.has_value(), "two instances: reorder");
  if (!done) {
    require(w.control.digest() == digest, "I9: a refused reorder changed something");
    return w.say("busy");
  }
  std::vector<FlightSequence> const old = w.live;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto const parent = static_cast<std::size_t>(parents[i]);
    FlightSequence next = old[who[parent]];
    next.id = ids[i];
    if (parent != i) {
      next.rest.clear();
    }
    require(w.tokens_of(next) == texts[parent], "reorder gave a sequence other rows");
    w.live[who[i]] = std::move(next);
    w.say(std::to_string(ids[i].slot) + " from " + std::to_string(ids[parent].slot) + " ");
  }
  w.tally.reorders += ids.empty() ? 0U : 1U;
}

}  // namespace kvcache_test
