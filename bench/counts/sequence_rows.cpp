// SPDX-License-Identifier: Apache-2.0
// What n calls cost, and what stays allocated after them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "counts/plane.hpp"
#include "counts/rows.hpp"

namespace kvcache_counts {

namespace {

using kvcache::Index;
using kvcache::PageCount;
using kvcache::SequenceId;
using kvcache::Token;

constexpr Index many_tokens = 1 << 24;

Count truncate_by_pages(std::size_t n)
{
  Plane p({.pages = static_cast<PageCount>(n + 8),
           .page_tokens = page_tokens,
           .max_sequences = 4,
           .max_step_tokens = many_tokens});
  Text const text = distinct(n * page_tokens + 1);
  SequenceId const id = p.open(text);
  p.run(id, text);
  return measured([&] {
    for (std::size_t i = n; i-- > 0;) {
      (void)checked(p.control.truncate(id, static_cast<Index>(i * page_tokens)));
    }
  });
}

Count pins_of_one_prefix(std::size_t n)
{
  Plane p({.pages = 64, .page_tokens = page_tokens, .max_sequences = 4});
  Text const text = distinct(page_tokens);
  p.run(p.open(text), text);
  return measured([&] {
    for (std::size_t i = 0; i < n; ++i) {
      (void)checked(p.control.pin({.tokens = text}));
    }
  });
}

/// n tenants, each with a salt of its own, come and go; each cached page leaves for those that come after it.
Count salts(std::size_t n)
{
  Plane p({.pages = 16, .page_tokens = page_tokens, .max_sequences = 4});
  Text const text = distinct(page_tokens + 1);
  auto const request = [&](std::size_t i) {
    std::string const salt = "request-" + std::to_string(i);
    kvcache::Domain const domain({.salt = salt});
    SequenceId const id = checked(p.control.open({.tokens = text, .domain = &domain}));
    p.run(id, text);
    p.close(id);
  };
  for (std::size_t i = 0; i < 1000; ++i) {
    request(i);
  }
  return measured([&] {
    for (std::size_t i = 0; i < n; ++i) {
      request(1000 + i);
    }
  });
}

/// n / 64 sequences of 16,384 tokens are open at once, and closed.
Count closed_slots(std::size_t n)
{
  std::size_t const sequences = n / 64 + 1;
  constexpr std::size_t rows = 16384;
  Plane p({.pages = static_cast<PageCount>(rows / page_tokens * 2),
           .page_tokens = page_tokens,
           .max_sequences = static_cast<std::uint32_t>(sequences + 1),
           .max_step_tokens = many_tokens});
  Text const text = distinct(rows + 1);
  SequenceId const first = p.open(text);
  p.run(first, std::span(text).first(rows));
  p.close(first);  // cached from now on, and the arrays of one sequence have been there
  return measured([&] {
    std::vector<SequenceId> ids;
    for (std::size_t i = 0; i < sequences; ++i) {
      ids.push_back(p.open(text));
    }
    for (SequenceId const id : ids) {
      p.close(id);
    }
  });
}

}  // namespace

std::span<Row const> sequence_rows()
{
  static Row const rows[] = {{"truncate_by_pages", truncate_by_pages},
                             {"pins_of_one_prefix", pins_of_one_prefix},
                             {"salts", salts},
                             {"closed_slots", closed_slots}};
  return rows;
}

}  // namespace kvcache_counts
