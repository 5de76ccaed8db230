// SPDX-License-Identifier: Apache-2.0
// What a call costs beside n pages, forks or sequences that steps in flight have.

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "counts/plane.hpp"
#include "counts/rows.hpp"

namespace kvcache_counts {

namespace {

using kvcache::Index;
using kvcache::PageCount;
using kvcache::SequenceId;
using kvcache::StepId;
using kvcache::StreamId;
using kvcache::Token;

constexpr Index many_tokens = 1 << 24;

/// A prefill of n pages is in flight, and the pool has no page left.
struct Prefill {
  explicit Prefill(std::size_t n)
      : p({.pages = static_cast<PageCount>(n),
           .page_tokens = page_tokens,
           .max_sequences = 4,
           .max_step_tokens = many_tokens})
  {
    Text const text = distinct(n * page_tokens);
    StepId const step = p.begin();
    p.add(step, p.open(text), text);
    p.submit(step);
  }
  Plane p;
};

Count stats_beside_prefill(std::size_t n)
{
  Prefill s(n);
  return measured([&] { keep(s.p.control.stats()); });
}
Count refused_beside_prefill(std::size_t n)
{
  Prefill s(n);
  SequenceId const late = s.p.open({});
  StepId const step = s.p.begin();
  Text const page = distinct(page_tokens, -1 + (1 << 30));
  return measured([&] {
    if (s.p.control.add(step, late, {.tokens = page})) {
      std::abort();
    }
  });
}

/// n forks of a sequence of one page and a half.
struct Forks {
  explicit Forks(std::size_t n)
      : p({.pages = static_cast<PageCount>(2 * n + 8),
           .page_tokens = page_tokens,
           .max_sequences = static_cast<std::uint32_t>(n + 2),
           .max_step_tokens = many_tokens})
  {
    Text const text = distinct(page_tokens + page_tokens / 2);
    ids.push_back(p.open(text));
    p.run(ids[0], text);
    while (ids.size() < n) {
      ids.push_back(checked(p.control.fork(ids[0])));
    }
  }
  /// Each writes a token of its own: all but one copy the part page.
  StepId add_all()
  {
    StepId const step = p.begin();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      auto const token = static_cast<Token>(i);
      p.add(step, ids[i], std::span(&token, 1));
    }
    return step;
  }
  Plane p;
  std::vector<SequenceId> ids;
};

Count add_forks(std::size_t n)
{
  Forks s(n);
  return measured([&] { s.add_all(); });
}
Count stats_beside_forks(std::size_t n)
{
  Forks s(n);
  s.p.submit(s.add_all());
  return measured([&] { keep(s.p.control.stats()); });
}
Count fail_forks(std::size_t n)
{
  Forks s(n);
  StepId const step = s.add_all();
  s.p.submit(step);
  return measured([&] { (void)checked(s.p.control.fail(step)); });
}
Count drop_forks(std::size_t n)
{
  Forks s(n);
  StepId const step = s.add_all();
  return measured([&] { (void)checked(s.p.control.drop(step)); });
}

Count fail_plain(std::size_t n)
{
  Plane p({.pages = static_cast<PageCount>(2 * n + 8),
           .page_tokens = page_tokens,
           .max_sequences = static_cast<std::uint32_t>(n + 2),
           .max_step_tokens = many_tokens});
  std::vector<SequenceId> ids;
  StepId step = p.begin();
  for (std::size_t i = 0; i < n; ++i) {
    Text const text = distinct(8, static_cast<Token>(i * 8));
    ids.push_back(p.open(text));
    p.add(step, ids.back(), text);
  }
  p.submit(step);
  p.commit(step);
  step = p.begin();
  Token const token = 3;
  for (SequenceId const id : ids) {
    p.add(step, id, std::span(&token, 1));
  }
  p.submit(step);
  return measured([&] { (void)checked(p.control.fail(step)); });
}

/// n cached spans of one page that a step of stream 1 may still read, and behind them, younger, one long cached span.
Count evict_beside_fenced(std::size_t n)
{
  Plane p({.pages = static_cast<PageCount>(2 * n + 24),
           .page_tokens = page_tokens,
           .max_sequences = static_cast<std::uint32_t>(n + 24),
           .max_step_tokens = many_tokens});
  StreamId const other{1};
  std::vector<SequenceId> ids;
  StepId step = p.begin(other);
  for (std::size_t i = 0; i < n; ++i) {
    Text const text = distinct(page_tokens, static_cast<Token>(i * page_tokens));
    ids.push_back(p.open(text, other));
    p.add(step, ids.back(), text);
  }
  p.submit(step);
  p.commit(step);
  step = p.begin(other);
  Token const token = 7;
  for (SequenceId const id : ids) {
    p.add(step, id, std::span(&token, 1));
  }
  p.submit(step);
  for (SequenceId const id : ids) {
    p.close(id);
  }
  Text const rest = distinct(p.control.stats().free * std::size_t{page_tokens}, 1 << 28);
  SequenceId const filler = p.open(rest);
  p.run(filler, rest);
  p.close(filler);
  SequenceId const late = p.open({});
  step = p.begin();
  Text const page = distinct(page_tokens, 1 << 29);
  return measured([&] { p.add(step, late, page); });
}

/// A commit that merges a prompt of 64 pages, two sequences of n live.
Count merge_among_slots(std::size_t n)
{
  Plane p({.pages = 4096,
           .page_tokens = page_tokens,
           .max_sequences = static_cast<std::uint32_t>(n),
           .max_step_tokens = 1 << 20});
  Text const text = distinct(64 * page_tokens);
  StepId steps[2];
  for (std::uint32_t i = 0; i < 2; ++i) {
    StreamId const stream{i};
    SequenceId const id = p.open(text, stream);
    steps[i] = p.begin(stream);
    p.add(steps[i], id, text);
    p.submit(steps[i]);
  }
  p.commit(steps[0]);
  Count const count = measured([&] { p.commit(steps[1]); });
  if (p.control.stats().merged_pages != 64) {
    std::abort();
  }
  return count;
}
Count drop_among_slots(std::size_t n)
{
  Plane p(
    {.pages = 4096, .page_tokens = page_tokens, .max_sequences = static_cast<std::uint32_t>(n)});
  StepId const step = p.begin();
  return measured([&] { (void)checked(p.control.drop(step)); });
}

}  // namespace

std::span<Row const> flight_rows()
{
  static Row const rows[] = {{"stats_beside_prefill", stats_beside_prefill},
                             {"refused_beside_prefill", refused_beside_prefill},
                             {"add_forks", add_forks},
                             {"stats_beside_forks", stats_beside_forks},
                             {"fail_forks", fail_forks},
                             {"drop_forks", drop_forks},
                             {"fail_plain", fail_plain},
                             {"evict_beside_fenced", evict_beside_fenced},
                             {"merge_among_slots", merge_among_slots},
                             {"drop_among_slots", drop_among_slots}};
  return rows;
}

}  // namespace kvcache_counts
