// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The control plane as the rows of `kvcache_counts` call it: what should succeed does, or the program ends.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace kvcache_counts {

using Control = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;
using Text = std::vector<kvcache::Token>;

inline constexpr std::int32_t page_tokens = 16;

template <class T, class E>
T checked(kvcache::Result<T, E> made)
{
  if (!made) {
    std::fprintf(stderr, "kvcache_counts: %s\n", made.error().message().text);
    std::exit(1);
  }
  return std::move(*made);
}

/// The state before the work of a row.
class Plane {
 public:
  explicit Plane(kvcache::ControlOptions options) : control(checked(Control::create(options))) {}

  kvcache::SequenceId open(std::span<kvcache::Token const> text, kvcache::StreamId stream = {})
  {
    return checked(control.open({.tokens = text, .stream = stream}));
  }
  kvcache::StepId begin(kvcache::StreamId stream = {}) { return checked(control.begin(stream)); }
  void add(kvcache::StepId step, kvcache::SequenceId id, std::span<kvcache::Token const> text)
  {
    (void)checked(control.add(step, id, {.tokens = text}));
  }
  void submit(kvcache::StepId step) { (void)checked(control.submit(step)); }
  void commit(kvcache::StepId step) { (void)checked(control.commit(step)); }
  void close(kvcache::SequenceId id) { (void)checked(control.close(id)); }
  /// One step of one chunk, whole.
  void run(kvcache::SequenceId id,
           std::span<kvcache::Token const> text,
           kvcache::StreamId stream = {})
  {
    kvcache::StepId const step = begin(stream);
    add(step, id, text);
    submit(step);
    commit(step);
  }

  Control control;
};

/// `n` tokens, no two alike.
inline Text distinct(std::size_t n, kvcache::Token first = 0)
{
  Text text(n);
  std::iota(text.begin(), text.end(), first);
  return text;
}

}  // namespace kvcache_counts
