// SPDX-License-Identifier: Apache-2.0
// docs/plug-into-your-kernel.md: its code is cut from files that compile, and what it says of addresses is so.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "kernel_by_hand.hpp"
#include "support/catch.hpp"
#include "support/facade.hpp"
#include "support/read_file.hpp"

namespace {

using namespace kvcache_test;
using kvcache::Index;
using Lines = std::vector<std::string>;

Lines lines_of(std::string const& text)
{
  std::istringstream stream(text);
  Lines lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Whether `snippet` stands in `source` line by line, all of it indented by as much.
bool stands_in(Lines const& snippet, Lines const& source)
{
  for (std::size_t first = 0; first + snippet.size() <= source.size(); ++first) {
    std::size_t const at = source[first].find_first_not_of(' ');
    if (at == std::string::npos || source[first].substr(at) != snippet[0]) {
      continue;
    }
    bool same = true;
    for (std::size_t i = 1; i < snippet.size() && same; ++i) {
      std::string const wanted = snippet[i].empty() ? "" : std::string(at, ' ') + snippet[i];
      same = source[first + i] == wanted;
    }
    if (same) {
      return true;
    }
  }
  return false;
}

/// How many blocks of code a document has, and how many do not stand in the file that the line before them names.
struct Audit {
  int blocks = 0;
  int wrong = 0;
};

Audit audit(std::string const& document, std::string const& root)
{
  Audit result;
  Lines const lines = lines_of(document);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i] != "```cpp") {
      continue;
    }
    std::string const mark = "<!-- cut from ";
    std::string const before = i == 0 ? "" : lines[i - 1];
    std::string const path = before.rfind(mark, 0) == 0
                               ? before.substr(mark.size(), before.find(" -->") - mark.size())
                               : "";
    Lines snippet;
    while (++i < lines.size() && lines[i] != "```") {
      snippet.push_back(lines[i]);
    }
    bool const right = !path.empty() && !snippet.empty() &&
                       stands_in(snippet, lines_of(read_file(root + "/" + path)));
    if (!right) {
      UNSCOPED_INFO("not in '" << path << "': " << (snippet.empty() ? "" : snippet[0]) << " ...");
    }
    ++result.blocks;
    result.wrong += right ? 0 : 1;
  }
  return result;
}

}  // namespace

TEST_CASE("docs/plug-into-your-kernel.md: every block of code stands in a file that compiles",
          "[examples][docs]")
{
  std::string const root = KVCACHE_SOURCE_DIR;
  Audit const own = audit(read_file(root + "/docs/plug-into-your-kernel.md"), root);
  CHECK(own.wrong == 0);
  CHECK(own.blocks >= 10);
  std::string const mark = "<!-- cut from examples/01_your_kernel.hpp -->\n```cpp\n";
  std::string const line = "float const before = largest;\n";
  CHECK(audit(mark + line + "```\n", root).wrong == 0);
  CHECK(audit("```cpp\n" + line + "```\n", root).wrong == 1);  // of no file
  CHECK(audit(mark + "float const before = larger;\n```\n", root).wrong == 1);
  CHECK(audit(mark + line + "float sum = 0.0F;\n```\n", root).wrong == 1);  // not what comes next
  CHECK(audit(mark + "```\n", root).wrong == 1);
}

TEST_CASE("docs/plug-into-your-kernel.md: the compiler's sentence is the one that a test expects",
          "[examples][docs]")
{
  std::string const root = KVCACHE_SOURCE_DIR;
  std::string const source = read_file(root + "/tests/compile_fail/replacement_without_victim.cpp");
  std::string const mark = "// expect: ";
  std::size_t const at = source.find(mark) + mark.size();
  std::string const sentence = source.substr(at, source.find('\n', at) - at);
  CHECK_THAT(read_file(root + "/docs/plug-into-your-kernel.md"),
             Contains("\nerror: static assertion failed: " + sentence + "\n"));
}

TEMPLATE_TEST_CASE_SIG(
  "docs/plug-into-your-kernel.md: the address by hand is where the view's tiles are",
  "[examples][docs]",
  ((kvcache::RowOrder Order), Order),
  kvcache::RowOrder::hnd,
  kvcache::RowOrder::planes,
  kvcache::RowOrder::nhd)
{
  using AnyCache = kvcache::KVCache<kvcache::PagedHeads<float, 8, 4, Order>>;
  kvcache::Geometry model = small_model;
  model.arrangement = GENERATE(kvcache::Arrangement::page_first, kvcache::Arrangement::layer_first);
  auto cache = AnyCache::create(model, {.pages = 20});
  REQUIRE(cache);
  auto other = prefilled(*cache, {9, 9, 9, 9, 9});
  Tokens const prompt{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  auto sequence = cache->open({.tokens = prompt});
  REQUIRE(sequence);
  auto step = cache->prepare({{*sequence, prompt}});
  REQUIRE(step);
  auto const kv = step->view();
  run_kernels(kv, prompt);
  int rows = 0;
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    for (std::int32_t head = 0; head < 2; ++head) {
      for (auto const tile : kv.tiles(layer, head, 9)) {
        auto const raw = tile.raw();
        for (Index r = 0; r < tile.rows(); ++r, ++rows) {
          auto const* const key = key_by_hand(kv,
                                              static_cast<std::uint32_t>(layer),
                                              static_cast<std::uint32_t>(head),
                                              9,
                                              tile.first() + r);
          CHECK(key == raw.k + static_cast<std::size_t>(r) * raw.row_elements);
          CHECK(key[0] == tile.key(r, 0));
          CHECK(key[kv.map.value_elements()] == tile.value(r, 0));
        }
      }
    }
  }
  CHECK(rows == 2 * 2 * 10);
  std::uint32_t const heads =
    Order == kvcache::RowOrder::hnd ? 1 : 2;  // as the page's table has it
  CHECK(kv.map.row_elements() == (Order == kvcache::RowOrder::nhd ? 16U : 8U));
  CHECK(kv.map.value_elements() == 8 * 4 * heads);
}

TEST_CASE("docs/plug-into-your-kernel.md: own loads see the token's branch alone",
          "[examples][docs]")
{
  auto cache = make_cache(20);
  auto sequence = prefilled(cache, {1, 2, 3});
  Tokens const guesses{50, 10, 60, 20};  // 50 -> 10, and 60 -> 20: two branches
  std::vector<std::int32_t> const parents{-1, 0, -1, 2};
  auto step = cache.prepare({{.sequence = sequence, .tokens = guesses, .parents = parents}});
  REQUIRE(step);
  auto const kv = step->view();
  run_kernels(kv, guesses);
  float const q[8] = {1.0F};
  auto const largest = [&](Index token) { return largest_logit(kv, 0, 0, token, q); };
  CHECK(largest(1) == stamp(50, 3, 0, 0));
  CHECK(largest(3) == stamp(60, 5, 0, 0));
  CHECK(kv.position(1) == 4);
  CHECK(kv.position(3) == 4);  // siblings' children: 3 rows of text, then their parent
  CHECK(kv.index(3) == 6);
}

TEST_CASE("docs/plug-into-your-kernel.md: the step behind a draft begins where the kernel said",
          "[examples][docs]")
{
  auto cache = make_cache(20);
  auto sequence = prefilled(cache, {1, 2, 3, 4, 5});
  Tokens const guesses{50, 51, 52};
  auto draft = cache.prepare({{.sequence = sequence, .tokens = guesses, .draft = true}});
  REQUIRE(draft);
  CHECK(draft->view().index(0) == 5);
  keep_accepted(draft->view(), 0, 2);
  auto next = cache.prepare({{sequence, Tokens{60}}});  // before the host knows of it
  REQUIRE(next);
  CHECK(next->plan().chunks[0].first_index == 8);
  CHECK(next->view().index(0) == 7);
  std::vector<Index> const accepted{2};
  CHECK(draft->commit(accepted));
  CHECK(next->commit());
  CHECK(sequence.length() == 8);
}
