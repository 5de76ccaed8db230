// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "engine.hpp"

namespace llama {

/// An open sequence, and the letter that stands for it in a page map.
struct Lettered {
  char letter;
  std::string name;
  kvcache::Sequence const* sequence;
};

/// The pool as lines of text, one character a page: `.` free, `+` held by the prefix tree alone, a letter for
/// a page that one sequence holds, a digit (or `*` from ten on) for the number of sequences that share it.
[[nodiscard]] std::string page_map(Engine const& engine, std::span<Lettered const> sequences);

/// One line per sequence: letter, name, tokens, and its pages as runs ("1-12 40 42").
[[nodiscard]] std::string page_lists(Engine const& engine, std::span<Lettered const> sequences);

}  // namespace llama
