// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Runs scripts, and cuts a failing one down to a short one.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "model/calls_sequences.hpp"
#include "model/calls_steps.hpp"
#include "model/child.hpp"
#include "model/misuse.hpp"
#include "model/operation.hpp"
#include "model/world.hpp"

namespace kvcache_test {

/// An operation that would be idle stands for the one that it waits for, so that random scripts are not idle.
template <class T>
[[nodiscard]] Kind effective(World<T> const& w, Operation const& o)
{
  using Stage = NaiveStep::Stage;
  Stage const stage = w.books.step.stage;
  bool const on_sequence = o.kind == Kind::fork || o.kind == Kind::truncate ||
                           o.kind == Kind::close || o.kind == Kind::add || o.kind == Kind::prepare;
  if (w.books.live.empty() && on_sequence) {
    return Kind::open;
  }
  if (o.b % 8 == 0) {
    return o.kind;  // some calls come at the wrong stage, and must be refused
  }
  if (stage == Stage::none && (o.kind == Kind::submit || o.kind == Kind::commit)) {
    return Kind::prepare;
  }
  if (stage == Stage::none && o.kind == Kind::add) {
    return Kind::begin;
  }
  if (stage == Stage::open &&
      (o.kind == Kind::commit || o.kind == Kind::run || o.kind == Kind::fail)) {
    return Kind::submit;
  }
  if (stage >= Stage::submitted &&
      (o.kind == Kind::begin || o.kind == Kind::add || o.kind == Kind::submit)) {
    return Kind::commit;
  }
  return o.kind;
}

template <class T>
bool perform(World<T>& w, Operation const& o)
{
  switch (o.kind) {
    case Kind::open:
      return open(w, o);
    case Kind::probe:
      (void)check_probe(w, request_of(w, o));
      return false;
    case Kind::fork:
      return fork(w, o);
    case Kind::truncate:
      return truncate(w, o);
    case Kind::close:
      return close(w, o);
    case Kind::forget:
      return forget(w, o);
    case Kind::begin:
      return begin(w);
    case Kind::add:
      return add(w, o);
    case Kind::prepare:
      return prepare(w, o);
    case Kind::submit:
      return submit(w);
    case Kind::run:
      return run(w);
    case Kind::commit:
      return commit(w, o);
    case Kind::fail:
      return fail(w);
    case Kind::drop:
      return drop(w);
    case Kind::bad:
      return misuse(w, o);
  }
  return false;
}

/// Runs one operation and all checks.
template <class T>
void apply(World<T>& w, Operation const& o)
{
  std::uint64_t const digest = w.cache.digest();
  w.said.clear();
  bool const changed = perform(w, o);
  ++w.books.clock;
  ++w.tally.operations;
  std::uint64_t const now = w.cache.digest();
  require(changed || now == digest, "I9: a call that did nothing changed the digest");
  require(now == w.books.twin.digest(), "two instances fed the same calls differ");
  bool const of_step = o.kind == Kind::begin || o.kind == Kind::add;
  w.books.step.disturbed = w.books.step.disturbed || (changed && !of_step);
  w.check_rows();
  if (kvcache::Report const report = w.cache.check_invariants(); !report) {
    breaks_off(std::string("check_invariants: ") + report.broken);
  }
}

/// Ends everything (I8): no page is held any more, and the counters fit the tally.
template <class T>
void finish(World<T>& w)
{
  kvcache::Stats const stats = w.cache.stats();
  w.tally.evicted += stats.evicted_pages;
  w.tally.merged += stats.merged_pages;
  for (Kind const kind : {Kind::drop, Kind::fail}) {
    apply(w, {.kind = kind});
  }
  while (!w.books.live.empty()) {
    apply(w, {.kind = Kind::close});
  }
  require_equal(w.cache.stats().held, 0, "I8: pages held after all was closed");
}

template <class T>
void run_script(Setting const& setting, Script const& script, Tally& tally, Listener const& tell)
{
  World<T> world(setting, tally);
  world.talks = static_cast<bool>(tell);
  for (Operation o : script) {
    o.kind = effective(world, o);
    if (tell) {
      tell(print(o) + "  # ");
    }
    apply(world, o);
    if (tell) {
      tell(world.said + "\n");
    }
  }
  finish(world);
}

/// Runs the script; returns what broke, or nothing.
inline std::string verdict_of(Setting const& setting,
                              Script const& script,
                              Tally& tally,
                              Listener const& tell = {})
{
  return verdict_on([&] {
    if (setting.half) {
      run_script<kvcache::half>(setting, script, tally, tell);
    } else {
      run_script<float>(setting, script, tally, tell);
    }
  });
}

inline std::string verdict_apart(Setting const& setting, Script const& script)
{
  return in_child([&](Listener const& tell) {
    Tally tally;
    tell(verdict_of(setting, script, tally));
  });
}

/// What each operation did, in the form that `parse` reads, up to what breaks.
inline std::string listing_of(Setting const& setting, Script const& script)
{
  return in_child([&](Listener const& tell) {
    Tally tally;
    std::string const verdict = verdict_of(setting, script, tally, tell);
    tell(verdict.empty() ? verdict : " BREAKS: " + verdict + "\n");
  });
}

/// Delta debugging: leaves out as many operations as it can, then makes the numbers small, while something still
/// breaks. **Cost** bounded by `budget` runs.
inline Script shrunk(Setting const& setting, Script script, int budget = 4000)
{
  Script const plain =
    parse(listing_of(setting, script));  // each operation under the name of what it did
  script = verdict_apart(setting, plain).empty() ? script : plain;
  auto const fails = [&](Script const& tried) {
    --budget;
    return !verdict_apart(setting, tried).empty();
  };
  for (std::size_t part = (script.size() + 1) / 2; part >= 1 && budget > 0;) {
    bool cut = false;
    for (std::size_t at = 0; at < script.size() && budget > 0;) {
      Script tried = script;
      auto const from = tried.begin() + static_cast<std::ptrdiff_t>(at);
      tried.erase(from, from + static_cast<std::ptrdiff_t>(std::min(part, script.size() - at)));
      if (fails(tried)) {
        script = std::move(tried);
        cut = true;
      } else {
        at += part;
      }
    }
    part = cut && part == 1 ? 1 : part / 2;
  }
  for (std::size_t i = 0; i < script.size(); ++i) {
    for (std::uint32_t Operation::* field :
         {&Operation::a, &Operation::b, &Operation::c, &Operation::d}) {
      for (std::uint32_t value = 0; value < script[i].*field && budget > 0;
           value = value == 0 ? 1 : value * 2) {
        Script tried = script;
        tried[i].*field = value;
        if (fails(tried)) {
          script = std::move(tried);
          break;
        }
      }
    }
  }
  return script;
}

}  // namespace kvcache_test
