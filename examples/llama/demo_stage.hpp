// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "args.hpp"
#include "engine.hpp"
#include "model.hpp"
#include "terminal.hpp"
#include "tokenizer.hpp"

namespace llama {

using Tokens = std::vector<std::int32_t>;

/// Ctrl-C was pressed: leave the demo.
struct Stopped {};

/// What the parts of the demo work with.
struct Stage {
  Args const& args;
  Model const& model;
  Tokenizer const& tokenizer;
  Threads& threads;

  [[nodiscard]] std::unique_ptr<Engine> engine(std::size_t pages) const
  {
    return make_engine(model,
                       threads,
                       {.kv = args.kv,
                        .page_tokens = args.page_tokens,
                        .pages = static_cast<std::uint32_t>(pages),
                        .max_sequences = 64,
                        .max_step_tokens = chunk()});
  }
  /// Tokens of a step; enough for a token of each of eight requests, or for a draft.
  [[nodiscard]] int chunk() const { return std::clamp(args.chunk, 16, 512); }
  [[nodiscard]] std::uint32_t pages(std::size_t tokens) const
  {
    return pages_for(tokens, args.page_tokens);
  }
};

[[nodiscard]] inline std::string grouped(std::uint64_t number)
{
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) {
    text.insert(at - 3, 1, ',');
  }
  return text;
}

inline void heading(char const* number, std::string const& text)
{
  Colour const bold("1");
  std::printf("\n%s  %s\n", number, text.c_str());
}

inline void table_row(char const* what, std::string const& left, std::string const& right)
{
  std::printf("   %-34s %18s %18s\n", what, left.c_str(), right.c_str());
}
inline void table_row(char const* what, std::size_t left, std::size_t right)
{
  table_row(what, grouped(left), grouped(right));
}

/// Part 4. Returns whether the texts with drafts are those without.
[[nodiscard]] bool show_drafts(Stage const& stage);
/// Part 5. Returns whether the texts from the small pool are those from the large one.
[[nodiscard]] bool show_small_pool(Stage const& stage);

}  // namespace llama
