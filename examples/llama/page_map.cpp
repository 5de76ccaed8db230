// SPDX-License-Identifier: Apache-2.0
#include "page_map.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace llama {
namespace {

constexpr std::size_t pages_a_line = 64;
constexpr std::size_t line_width = 78;

/// "1-12 40 42", cut with dots where it would not fit `room` characters.
std::string runs_of(std::span<kvcache::PageId const> pages, std::size_t room)
{
  std::string out;
  for (std::size_t i = 0; i < pages.size();) {
    std::size_t end = i + 1;
    while (end < pages.size() && pages[end].value == pages[end - 1].value + 1) {
      ++end;
    }
    std::string run(1, ' ');
    run += std::to_string(pages[i].value);
    if (end > i + 1) {
      run += '-';
      run += std::to_string(pages[end - 1].value);
    }
    if (out.size() + run.size() + 4 > room && end < pages.size()) {
      return out + " ...";
    }
    out += run;
    i = end;
  }
  return out;
}

}  // namespace

std::string page_map(Engine const& engine, std::span<Lettered const> sequences)
{
  std::size_t const pages = engine.stats().capacity;
  std::vector<std::uint32_t> users(pages + 1, 0);
  std::string cells(pages + 1, '.');
  for (Lettered const& lettered : sequences) {
    for (kvcache::PageId const page : engine.pages(*lettered.sequence)) {
      users[page.value] += 1;
      cells[page.value] = lettered.letter;
    }
  }
  for (std::uint32_t page = 1; page <= pages; ++page) {
    if (users[page] > 1) {
      cells[page] = users[page] < 10 ? static_cast<char>('0' + users[page]) : '*';
    } else if (users[page] == 0 && engine.holders(kvcache::PageId{page}) > 0) {
      cells[page] = '+';
    }
  }
  std::string out;
  for (std::size_t first = 1; first <= pages; first += pages_a_line) {
    char label[24];
    std::snprintf(label, sizeof label, "%7zu  ", first);
    out += label + cells.substr(first, std::min(pages_a_line, pages + 1 - first)) + "\n";
  }
  return out;
}

std::string page_lists(Engine const& engine, std::span<Lettered const> sequences)
{
  std::string out;
  for (Lettered const& lettered : sequences) {
    char start[80];
    std::snprintf(start,
                  sizeof start,
                  "      %c  %-24.24s %5d tokens, pages",
                  lettered.letter,
                  lettered.name.c_str(),
                  static_cast<int>(lettered.sequence->length()));
    std::string const line = start;
    out += line + runs_of(engine.pages(*lettered.sequence), line_width - line.size()) + "\n";
  }
  return out;
}

}  // namespace llama
