// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Calls that must be refused: each with the right reason, and nothing changed (I9).

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/calls_steps.hpp"
#include "model/world.hpp"

namespace kvcache_test {

/// A prompt that `open` must refuse.
template <class T>
void refuse_open(World<T>& w, kvcache::Prompt const& prompt, kvcache::Why why)
{
  auto const opened = w.cache.open(prompt);
  auto const twin = w.books.twin.open(prompt);
  require(!opened && !twin, "open accepted a bad prompt");
  require_equal(opened.error().why, why, "open refused for another reason");
  require(opened.error().field[0] != '\0' && opened.error().right[0] != '\0',
          "a refusal names no field, or not what would be right");
  kvcache::Hit const hit = w.cache.probe(prompt);
  require_equal(hit.rows, 0, "probe of a bad prompt");
}

/// A chunk that `add` must refuse.
template <class T>
void refuse_add(World<T>& w, std::size_t i, kvcache::Chunk const& chunk, kvcache::Why why)
{
  auto const added = w.step->add(w.handles[i], chunk);
  auto const twin = w.books.twin.add(w.books.step.id, w.books.live[i].id, chunk);
  require(!added && !twin, "add accepted a bad chunk");
  require_equal(added.error().why, why, "add refused for another reason");
}

template <class T>
void refuse_stale(World<T>& w, kvcache::SequenceId id)
{
  auto& twin = w.books.twin;
  std::vector<kvcache::Token> const one{0};
  require(!twin.fork(id) && !twin.truncate(id, 0) && !twin.close(id) && !twin.info(id),
          "a stale sequence was accepted");
  require(twin.table(id).empty() && twin.tokens(id).empty(), "a stale sequence has pages");
  auto const added = twin.add(w.books.step.id, id, {one});
  require(!added, "add accepted a stale sequence");
  kvcache::Sequence closed;
  require(!w.cache.fork(closed) && !w.cache.truncate(closed, 0), "a closed handle was accepted");
  require(w.cache.pages(closed).empty() && closed.length() == 0, "a closed handle has pages");
}

template <class T>
bool misuse(World<T>& w, Operation const& o)
{
  using Stage = NaiveStep::Stage;
  auto const vocabulary = static_cast<kvcache::Token>(w.setting.alphabet);
  kvcache::Domain const& domain = w.domains[o.b % w.setting.domains];
  auto const longest = static_cast<std::size_t>(w.setting.longest());
  std::vector<kvcache::Token> tokens(1 + o.c % longest, 0);
  bool const some = !w.books.live.empty();
  std::size_t const i = some ? o.b % w.books.live.size() : 0;
  bool const open = w.books.step.stage == Stage::open;
  bool const free = some && !w.books.live[i].in_step;
  switch (o.a % 13) {
    case 0:
      tokens[o.d % tokens.size()] = o.d % 2 == 0 ? vocabulary : -1;
      refuse_open(w, {.tokens = tokens, .domain = &domain}, kvcache::Why::bad_token);
      break;
    case 1:
      refuse_open(
        w,
        {.tokens = tokens, .domain = &domain, .fresh_tail = -static_cast<kvcache::Index>(o.d % 3)},
        kvcache::Why::bad_config);
      break;
    case 2:
      tokens.resize(longest + 1 + o.d, 0);
      refuse_open(w, {.tokens = tokens, .domain = &domain}, kvcache::Why::too_large);
      break;
    case 3:
      if (!w.stale.empty()) {
        refuse_stale(w, w.stale[o.b % w.stale.size()]);
      }
      refuse_stale(w, {o.d, o.c});
      refuse_stale(w, {});
      break;
    case 4:
      if (free) {
        require(!w.cache.truncate(w.handles[i], -1) &&
                  !w.books.twin.truncate(w.books.live[i].id, -2147483647 - 1),
                "truncate accepted a negative length");
      }
      break;
    case 5:
      if (open && free) {
        refuse_add(w, i, {}, kvcache::Why::bad_config);
      }
      break;
    case 6:
      if (open && free &&
          w.books.predict(w.books.live[i], tokens.size()).why != kvcache::Why::too_large) {
        tokens[o.d % tokens.size()] = o.d % 2 == 0 ? vocabulary : -7;
        refuse_add(w, i, {tokens}, kvcache::Why::bad_token);
      }
      break;
    case 7:
      if (open && free) {
        tokens.resize(longest + 1, 0);
        refuse_add(w, i, {tokens}, kvcache::Why::too_large);
      }
      break;
    case 8:
      if (w.books.step.stage == Stage::ran) {
        std::vector<kvcache::Index> accepted(w.books.step.chunks.size() + 1 + o.d % 2, 0);
        require(!w.step->commit(accepted), "commit accepted too many numbers");
        accepted.resize(w.books.step.chunks.size());  // one for each chunk that was added
        if (!accepted.empty()) {
          std::size_t const at = o.b % accepted.size();
          accepted[at] = o.d % 2 == 0 ? -1 : 1 << 20;
          require(!w.step->commit(accepted) && !w.books.twin.commit(w.books.step.id, accepted),
                  "commit accepted a number that is no number of tokens");
        }
      }
      break;
    case 9: {
      kvcache::StepId const old{w.books.step.id.value + 1 + o.d};
      auto& twin = w.books.twin;
      require(!twin.submit(old) && !twin.commit(old) && !twin.fail(old) && !twin.drop(old),
              "a step that is not there was accepted");
      if (w.books.step.stage == Stage::none) {
        kvcache::StepId const none{0};
        require(!twin.submit(none) && !twin.commit(none) && !twin.fail(none) && !twin.drop(none),
                "step 0 was accepted");
      }
      break;
    }
    case 10: {  // a handle of another cache means nothing here
      Tally tally;
      World<T> other(w.setting, tally);
      auto stranger = other.cache.open({.tokens = tokens});
      require(stranger.has_value(), "open in another cache");
      require(!w.cache.fork(*stranger) && !w.cache.truncate(*stranger, 0),
              "a sequence of another cache was accepted");
      require(w.cache.pages(*stranger).empty(), "a sequence of another cache has pages here");
      if (open) {
        require(!w.step->add(*stranger, {tokens}), "add accepted a sequence of another cache");
      }
      break;
    }
    case 11:  // handles follow a cache that moves
      if (w.books.step.stage == Stage::none) {
        typename World<T>::Cache moved(std::move(w.cache));
        w.cache = std::move(moved);
      }
      break;
    default:
      if (w.books.step.stage == Stage::submitted) {  // adding is over
        auto const late = some ? w.step->add(w.handles[i], {tokens}) : w.step->add({}, {tokens});
        require(!late && late.error().why == kvcache::Why::stale_step, "add after submit");
      }
      break;
  }
  w.say("misuse " + std::to_string(o.a % 13));
  return false;
}

}  // namespace kvcache_test
