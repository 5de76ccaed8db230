// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A small control plane after random calls. The same seed and number of calls give the same state, so a test that
/// wants to try several ways on from one state makes it several times.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/either_policy.hpp"
#include "support/environment.hpp"
#include "support/random.hpp"

namespace kvcache_test {

/// See the file comment.
struct RandomWorld {
  using Plane = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, EitherPolicy>;
  using Text = std::vector<kvcache::Token>;

  struct Live {
    kvcache::SequenceId id;
    kvcache::Index most;  // 0: unknown
  };
  struct Pin {
    kvcache::PinId id;
    std::vector<kvcache::PageId> pages;
  };
  struct Given {
    kvcache::Index tokens;  // planned
    bool draft;
    bool named;
  };
  struct Step {
    kvcache::StepId id;
    std::vector<Given> chunks;
    bool submitted = false;
    bool attach = false;
  };

  RandomWorld(std::uint64_t seed, std::uint32_t num_streams, bool with_drafts)
      : random(seed),
        streams(num_streams),
        drafts(with_drafts),
        plane(made(random)),
        steps(num_streams)
  {
  }

  static Plane made(Random& random)
  {
    kvcache::ControlOptions const options{
      .pages = random.between(3, 28),
      .page_tokens = static_cast<std::int32_t>(random.between(2, 4)),
      .max_sequences = 10,
      .max_step_tokens = 1024,
      .seed = 1};
    auto plane =
      Plane::create(options, {.prefix = {}, .replacement = {.sieve = random.below(4) == 0}});
    REQUIRE(plane);
    return std::move(*plane);
  }

  void run(std::uint64_t calls)
  {
    for (std::uint64_t i = 0; i < calls; ++i) {
      act();
    }
  }

  void act()
  {
    std::uint32_t const stream = random.below(streams);
    std::uint32_t const what = random.below(32);
    if (what < 4) {
      open(prompt(), random);
    } else if (what < 20) {
      work(stream, random, what < 18);
    } else if (what < 26) {
      change(live.empty() ? nullptr : &live[random.below(static_cast<std::uint32_t>(live.size()))]);
    } else if (what < 28) {
      if (pins.empty() || random.below(2) == 0) {
        Text const text = prompt();
        if (auto const pin = plane.pin({.tokens = text})) {
          pins.push_back({*pin, stored(text)});
        }
      } else {
        REQUIRE(plane.unpin(pins.back().id));
        pins.pop_back();
      }
    } else if (!steps[stream].empty() && what < 31) {
      Step& newest = steps[stream].back();
      if (!newest.submitted) {
        REQUIRE(plane.drop(newest.id));
        steps[stream].pop_back();
      } else if (steps[stream].size() == 1) {  // others fail with it, and are more to keep track of
        REQUIRE(plane.fail(newest.id));
        steps[stream].pop_back();
      }
    } else if (random.below(8) == 0) {
      plane.forget(kvcache::Domain{});
    }
  }

  /// Two texts in three start alike.
  kvcache::Token token(kvcache::Index row)
  {
    return random.below(8) != 0 ? row : 1000 + static_cast<kvcache::Token>(random.below(2));
  }
  Text prompt()
  {
    auto const rows =
      static_cast<kvcache::Index>(plane.options().pages) * plane.options().page_tokens;
    auto const most = static_cast<std::uint32_t>(rows < 10 ? rows : 10);
    Text text;
    for (auto n = static_cast<kvcache::Index>(random.between(1, most)); n > 0; --n) {
      text.push_back(token(static_cast<kvcache::Index>(text.size())));
    }
    return text;
  }
  void open(Text const& text, Random& by)
  {
    auto const rows =
      static_cast<kvcache::Index>(plane.options().pages) * plane.options().page_tokens;
    auto const tokens = static_cast<kvcache::Index>(text.size());
    kvcache::Index most = tokens + static_cast<kvcache::Index>(by.below(6));
    most = by.below(6) == 0 ? 0 : most < rows ? most : rows;
    kvcache::StreamId const stream{by.below(streams)};
    if (auto const id = plane.open({.tokens = text, .stream = stream, .max_tokens = most})) {
      live.push_back({*id, most});
    }
  }
  /// The cached pages that hold the text from its start on.
  [[nodiscard]] std::vector<kvcache::PageId> stored(Text const& text) const
  {
    std::vector<kvcache::PageId> pages;
    auto const p = static_cast<std::size_t>(plane.options().page_tokens);
    plane.for_each_stored([&](kvcache::Event const& event) {  // parents first
      std::size_t const first = pages.size() * p;
      kvcache::PageId const parent = pages.empty() ? kvcache::zero_page : pages.back();
      if (event.parent == parent && first + p <= text.size() &&
          std::equal(event.tokens.begin(),
                     event.tokens.end(),
                     text.begin() + static_cast<std::ptrdiff_t>(first))) {
        pages.push_back(event.page);
      }
    });
    return pages;
  }
  /// Forks, cuts, suspends, resumes or closes a sequence.
  void change(Live* one)
  {
    if (one == nullptr) {
      return;
    }
    auto const info = plane.info(one->id);
    REQUIRE(info);
    if (info->suspended) {
      if (random.below(2) == 0) {
        (void)plane.resume(one->id, {random.below(streams)});
      }
      return;
    }
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2:
        if (auto const id = plane.fork(one->id)) {
          live.push_back({*id, one->most});
        }
        break;
      case 3:
      case 4:
        (void)plane.truncate(
          one->id,
          static_cast<kvcache::Index>(random.below(static_cast<std::uint32_t>(info->planned) + 1)));
        break;
      case 5:
        REQUIRE(plane.suspend(one->id));
        break;
      default:
        REQUIRE(plane.close(one->id));
        *one = live.back();
        live.pop_back();
    }
  }
  /// Begins a step of `stream`, adds to it, submits it, or commits the oldest.
  void work(std::uint32_t stream, Random& by, bool adds)
  {
    std::vector<Step>& own = steps[stream];
    bool const building = !own.empty() && !own.back().submitted;
    if (adds && !live.empty()) {
      Live const& one = live[by.below(static_cast<std::uint32_t>(live.size()))];
      auto const info = plane.info(one.id);
      REQUIRE(info);
      kvcache::Index const end = one.most == 0 ? info->planned + 3 : one.most;
      if (!info->suspended && end > info->planned) {
        auto const left = static_cast<std::uint32_t>(end - info->planned);
        (void)add(stream, one, static_cast<kvcache::Index>(by.between(1, left)), by);
      }
    } else if (building) {
      submit(stream);
    } else if (!own.empty()) {
      commit(stream, by);
    }
  }

  /// A shortage of pages where there was one; else the chunk was added, or may not be now.
  std::optional<kvcache::Shortage> add(std::uint32_t stream,
                                       Live const& one,
                                       kvcache::Index tokens,
                                       Random& by)
  {
    std::vector<Step>& own = steps[stream];
    if (own.empty() || own.back().submitted) {
      bool const attach = by.below(4) == 0;
      auto const id = plane.begin({stream}, {.attach = attach});
      if (!id) {
        return std::nullopt;
      }
      own.push_back({.id = *id, .chunks = {}, .attach = attach});
    }
    bool const named = by.below(8) != 0;
    bool const draft = drafts && by.below(4) == 0;
    Text text;
    kvcache::Index row = plane.info(one.id)->planned;
    for (kvcache::Index i = 0; i < (named ? tokens : 0); ++i, ++row) {
      text.push_back(by.below(8) != 0 ? row : 1000 + static_cast<kvcache::Token>(by.below(2)));
    }
    auto const added = plane.add(
      own.back().id, one.id, {.tokens = text, .count = named ? 0 : tokens, .draft = draft});
    if (added) {
      own.back().chunks.push_back({.tokens = *added, .draft = draft, .named = named});
      return std::nullopt;
    }
    return added.error().why == kvcache::Why::no_pages ? std::optional(added.error())
                                                       : std::nullopt;
  }
  void submit(std::uint32_t stream)
  {
    REQUIRE(plane.submit(steps[stream].back().id));
    steps[stream].back().submitted = true;
  }
  /// `whole`: drafts too.
  void commit(std::uint32_t stream, Random& by, bool whole = false)
  {
    Step const& step = steps[stream].front();
    std::vector<kvcache::Outcome> outcomes;
    Text names;
    for (int i = 0; i < 128; ++i) {
      names.push_back(2000 + static_cast<kvcache::Token>(by.below(4)));
    }
    for (Given const& given : step.chunks) {
      auto const most = static_cast<std::uint32_t>(given.tokens);
      kvcache::Index const n =
        given.draft && !whole ? static_cast<kvcache::Index>(by.below(most + 1)) : given.tokens;
      outcomes.push_back({.accepted = n, .tokens = {}});
      if (!given.named) {
        outcomes.back().tokens =
          std::span<kvcache::Token const>(names).first(static_cast<std::size_t>(n));
      }
    }
    REQUIRE(plane.commit(step.id, outcomes));
    steps[stream].erase(steps[stream].begin());
  }

  Random random;
  std::uint32_t streams;
  bool drafts;
  Plane plane;
  std::vector<Live> live;
  std::vector<Pin> pins;
  std::vector<std::vector<Step>> steps;  // by stream, oldest first; the last may be open
};

/// Asks `verdict(seed)` of one state after the other, which is empty where nothing is wrong; the variables name how many and the first
/// seed. Returns how many.
template <class Verdict>
std::uint64_t check_states(char const* count_variable, char const* seed_variable, Verdict&& verdict)
{
  std::uint64_t const seed = number_from(seed_variable).value_or(20261201);
  std::uint64_t const wanted =
    number_from(count_variable).value_or(static_cast<std::uint64_t>(cases_of(20'000)));
  for (std::uint64_t i = 0; i < wanted; ++i) {
    std::string const wrong = verdict(seed + i);
    CAPTURE(wrong);
    REQUIRE(wrong.empty());
  }
  return wanted;
}

}  // namespace kvcache_test
