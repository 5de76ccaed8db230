// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A control plane with its default policies, and the few moves that its tests repeat.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <initializer_list>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace kvcache_test {

using Plane = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;
using Tokens = std::vector<kvcache::Token>;

/// `first`, `first + 1`, ... up to `last`.
inline Tokens numbers(kvcache::Token first, kvcache::Token last)
{
  Tokens out;
  for (kvcache::Token token = first; token <= last; ++token) {
    out.push_back(token);
  }
  return out;
}

template <class P = Plane>
P make_plane(kvcache::ControlOptions const& options)
{
  auto made = P::create(options);
  REQUIRE(made);
  return std::move(*made);
}

/// Pages of 4 tokens.
template <class P = Plane>
P make_plane(kvcache::PageCount pages)
{
  return make_plane<P>(
    {.pages = pages, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 256});
}

template <class P>
kvcache::SequenceId open(P& plane, Tokens const& prompt)
{
  auto id = plane.open({.tokens = prompt});
  REQUIRE(id);
  return *id;
}

template <class P>
kvcache::SequenceId fork(P& plane, kvcache::SequenceId from)
{
  auto id = plane.fork(from);
  REQUIRE(id);
  return *id;
}

template <class P>
kvcache::StepId begin(P& plane)
{
  auto id = plane.begin();
  REQUIRE(id);
  return *id;
}

/// A step whose adds take whole pages that are there already, or will be.
template <class P>
kvcache::StepId begin_attaching(P& plane)
{
  auto id = plane.begin({}, {.attach = true});
  REQUIRE(id);
  return *id;
}

template <class P>
void add(P& plane, kvcache::StepId step, kvcache::SequenceId id, Tokens const& tokens)
{
  auto const added = plane.add(step, id, {tokens});
  REQUIRE(added);
  REQUIRE(*added == static_cast<kvcache::Index>(tokens.size()));
}

/// Adds tokens that may be accepted in part.
template <class P>
void add_draft(P& plane, kvcache::StepId step, kvcache::SequenceId id, Tokens const& tokens)
{
  auto const added = plane.add(step, id, {.tokens = tokens, .draft = true});
  REQUIRE(added);
  REQUIRE(*added == static_cast<kvcache::Index>(tokens.size()));
}

/// A whole step that appends `tokens` to `id`.
template <class P>
void append(P& plane, kvcache::SequenceId id, Tokens const& tokens)
{
  kvcache::StepId const step = begin(plane);
  add(plane, step, id, tokens);
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
}

/// Adds `tokens` in a step of `stream`, and submits it.
template <class P>
kvcache::StepId fly(P& plane,
                    kvcache::SequenceId id,
                    Tokens const& tokens,
                    kvcache::StreamId stream = {},
                    bool draft = false)
{
  auto const step = plane.begin(stream);
  REQUIRE(step);
  REQUIRE(plane.add(*step, id, {.tokens = tokens, .draft = draft}));
  REQUIRE(plane.submit(*step));
  return *step;
}

/// Likewise, as a draft that is accepted whole: attaches to nothing.
template <class P>
void append_draft(P& plane, kvcache::SequenceId id, Tokens const& tokens)
{
  kvcache::StepId const step = begin(plane);
  add_draft(plane, step, id, tokens);
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
}

/// A sequence that has computed all of `prompt` but what was cached.
template <class P>
  requires(!requires { typename P::View; })  // a cache has its own, in facade.hpp
kvcache::SequenceId prefilled(P& plane, Tokens const& prompt)
{
  kvcache::SequenceId const id = open(plane, prompt);
  auto const cached = plane.info(id)->length;
  append(plane, id, Tokens(prompt.begin() + cached, prompt.end()));
  return id;
}

/// Leaves `prompt` in the tree and nobody using it.
template <class P>
void cache_only(P& plane, Tokens const& prompt)
{
  REQUIRE(plane.close(prefilled(plane, prompt)));
}

template <class P>
std::vector<std::uint32_t> pages(P const& plane, kvcache::SequenceId id)
{
  std::vector<std::uint32_t> out;
  for (kvcache::PageId const page : plane.table(id)) {
    out.push_back(page.value);
  }
  return out;
}

template <class P>
kvcache::Index cached_rows(P const& plane, Tokens const& prompt)
{
  return plane.probe({.tokens = prompt}).rows;
}

template <class P>
void check_sound(P const& plane)
{
  kvcache::Report const report = plane.check_invariants();
  CAPTURE(report.broken != nullptr ? report.broken : "", report.where);
  CHECK(report);
  kvcache::Stats const stats = plane.stats();
  CHECK(stats.free + stats.held + stats.cached == stats.capacity);
}

}  // namespace kvcache_test
