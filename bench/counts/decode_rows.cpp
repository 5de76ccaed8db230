// SPDX-License-Identifier: Apache-2.0
// A decode step of 256 running sequences, as in P15, n steps of it: one token each, one in 16 of them crossing into a new page.

#include <cstdint>
#include <span>
#include <vector>

#include "counts/plane.hpp"
#include "counts/rows.hpp"

namespace kvcache_counts {

namespace {

constexpr std::uint32_t sequences = 256;
constexpr std::size_t prompt_rows = 256;

Count decode(std::size_t steps)
{
  Plane p(
    {.pages =
       static_cast<kvcache::PageCount>(sequences * ((prompt_rows + steps) / page_tokens + 2)),
     .page_tokens = page_tokens,
     .max_sequences = sequences,
     .max_step_tokens = static_cast<kvcache::Index>(sequences * (prompt_rows + page_tokens))});
  std::vector<kvcache::SequenceId> ids;
  kvcache::StepId const first = p.begin();
  for (std::uint32_t i = 0; i < sequences; ++i) {
    Text const prompt =
      distinct(prompt_rows + i % page_tokens, static_cast<kvcache::Token>(i * 1000));
    ids.push_back(p.open(prompt));
    p.add(first, ids.back(), prompt);
  }
  p.submit(first);
  p.commit(first);
  std::vector<kvcache::Index> const accepted(sequences, 1);
  auto const step = [&](kvcache::Token token) {
    kvcache::StepId const id = *p.control.begin();
    for (kvcache::SequenceId const sequence : ids) {
      (void)checked(p.control.add(id, sequence, {.tokens = std::span(&token, 1)}));
    }
    p.submit(id);
    (void)checked(p.control.commit(id, std::span<kvcache::Index const>(accepted)));
  };
  for (int i = 0; i < page_tokens; ++i) {
    step(i);  // arrays have their room
  }
  Count count = measured([&] {
    for (std::size_t i = 0; i < steps; ++i) {
      step(static_cast<kvcache::Token>(i));
    }
  });
  count.operations = steps * sequences;
  return count;
}

}  // namespace

std::span<Row const> decode_rows()
{
  static Row const rows[] = {{"decode", decode}};
  return rows;
}

}  // namespace kvcache_counts
