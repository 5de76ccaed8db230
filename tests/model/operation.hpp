// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Random calls as plain data.
///
/// An operation holds numbers only; which sequence, how many tokens and so on are found from them modulo what
/// exists when the operation runs. So every part of a script is a valid script, and a failing stream can be
/// cut down by leaving operations out.

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "support/random.hpp"

namespace kvcache_test {

enum class Kind : std::uint8_t {
  open,      // a: domain and fresh tail, b: from which sequence's text, c: length, d: text
  probe,     // likewise
  fork,      // a: sequence
  truncate,  // a: sequence, b: length
  close,     // a: sequence
  forget,    // a: domain
  begin,     //
  add,       // a: sequence, b: tokens, c: text
  prepare,   // a: first sequence, b: how many, c: tokens and text
  submit,    //
  run,       // the engine's kernels
  commit,    // a: how much is accepted
  fail,      // the submitted step is given up
  drop,      // the open step is given up
  bad        // a: which misuse, b: details
};
inline constexpr std::size_t num_kinds = static_cast<std::size_t>(Kind::bad) + 1;

[[nodiscard]] inline char const* name(Kind kind)
{
  constexpr char const* names[num_kinds] = {"open",
                                            "probe",
                                            "fork",
                                            "truncate",
                                            "close",
                                            "forget",
                                            "begin",
                                            "add",
                                            "prepare",
                                            "submit",
                                            "run",
                                            "commit",
                                            "fail",
                                            "drop",
                                            "bad"};
  return names[static_cast<std::size_t>(kind)];
}

struct Operation {
  Kind kind = Kind::open;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
};

using Script = std::vector<Operation>;

/// Of the look-ups of both instances: what breaks breaks again, and they give the same reasons for what they miss.
inline constexpr std::uint64_t one_secret = 1;

/// The sizes that one script runs under.
struct Setting {
  kvcache::PageCount pages = 2;
  std::int32_t page_tokens = 4;
  std::int32_t layers = 1;
  std::int32_t heads = 1;
  bool half = false;
  std::uint32_t max_sequences = 6;
  kvcache::Index max_sequence_tokens = 0;
  kvcache::Index max_step_tokens = 1024;
  std::uint32_t domains = 1;
  std::uint32_t alphabet = 2;

  [[nodiscard]] kvcache::Index pool_tokens() const
  {
    return static_cast<kvcache::Index>(pages) * page_tokens;
  }
  [[nodiscard]] kvcache::Index longest() const
  {
    return max_sequence_tokens != 0 ? max_sequence_tokens : pool_tokens();
  }
};

/// What a seed stands for.
[[nodiscard]] inline Setting setting_of(std::uint64_t seed)
{
  constexpr kvcache::PageCount pools[] = {2, 3, 8, 16};
  constexpr std::int32_t sizes[] = {1, 4, 16};
  Random random(seed);
  Setting s;
  s.pages = pools[seed % 4];  // by the seed itself, so that every combination gets its share
  s.page_tokens = sizes[seed / 4 % 3];
  s.half = random.below(2) == 0;
  bool const large = s.pool_tokens() > 64;
  s.layers = 1 + static_cast<std::int32_t>(random.below(large ? 1 : 2));
  s.heads = 1 + static_cast<std::int32_t>(random.below(large && random.below(4) != 0 ? 1 : 2));
  s.max_sequences = random.between(2, 8);
  s.max_sequence_tokens =
    random.below(4) == 0
      ? static_cast<kvcache::Index>(random.between(1, static_cast<std::uint32_t>(s.pool_tokens())))
      : 0;
  s.max_step_tokens =
    random.below(4) == 0 ? static_cast<kvcache::Index>(random.between(1, 40)) : 4096;
  s.domains = random.between(1, 3);
  s.alphabet = random.between(1, 4);
  return s;
}

/// Swarm testing: each seed draws its own mix of calls, many of them absent, so that long runs of one kind fill
/// the structures in ways that an even mix never does.
[[nodiscard]] inline Script script_of(std::uint64_t seed, std::size_t length)
{
  Random random(kvcache_test::Random(seed).next() ^ 0x5ca1ab1eULL);
  std::uint32_t weights[num_kinds];
  std::uint32_t total = 0;
  for (std::size_t kind = 0; kind < num_kinds; ++kind) {
    constexpr std::uint32_t choices[] = {0, 1, 1, 4, 4, 16};
    weights[kind] = choices[random.below(6)];
    bool const rare = kind == static_cast<std::size_t>(Kind::forget);
    weights[kind] = rare ? weights[kind] / 4 : weights[kind];
  }
  // Nothing happens without these.
  weights[static_cast<std::size_t>(Kind::open)] += 4;
  weights[static_cast<std::size_t>(Kind::close)] += 2;
  if (random.below(2) == 0) {
    weights[static_cast<std::size_t>(Kind::prepare)] += 8;
  } else {
    for (Kind const kind : {Kind::begin, Kind::submit, Kind::commit}) {
      weights[static_cast<std::size_t>(kind)] += 4;
    }
    weights[static_cast<std::size_t>(Kind::add)] += 8;
  }
  weights[static_cast<std::size_t>(Kind::commit)] += 4;
  for (std::uint32_t const weight : weights) {
    total += weight;
  }
  Script script;
  script.reserve(length);
  for (std::size_t i = 0; i < length; ++i) {
    std::uint32_t draw = random.below(total);
    std::size_t kind = 0;
    while (draw >= weights[kind]) {
      draw -= weights[kind++];
    }
    script.push_back({static_cast<Kind>(kind),
                      random.below(64),
                      random.below(256),
                      random.below(1024),
                      random.below(4096)});
  }
  return script;
}

/// One operation a line, as `parse` reads it.
[[nodiscard]] inline std::string print(Operation const& o)
{
  std::ostringstream out;
  out << name(o.kind) << ' ' << o.a << ' ' << o.b << ' ' << o.c << ' ' << o.d;
  return out.str();
}

/// Reads what `print` wrote; everything behind `#` is left out.
[[nodiscard]] inline Script parse(std::string const& text)
{
  Script script;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    Operation o;
    if (!(words >> word)) {
      continue;
    }
    for (std::size_t kind = 0; kind < num_kinds; ++kind) {
      if (word == name(static_cast<Kind>(kind))) {
        o.kind = static_cast<Kind>(kind);
        words >> o.a >> o.b >> o.c >> o.d;
        script.push_back(o);
      }
    }
  }
  return script;
}

}  // namespace kvcache_test
