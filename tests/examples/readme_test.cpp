// SPDX-License-Identifier: Apache-2.0
// README.md has a picture of the page map: it is what a cache does.

#include <kvcache/kvcache.hpp>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/facade.hpp"

namespace {

using namespace kvcache_test;

/// Opens `prompt` and computes what is not cached.
kvcache::Sequence chat(Cache& cache, Tokens const& prompt)
{
  auto sequence = cache.open({.tokens = prompt});
  REQUIRE(sequence);
  Tokens const rest(prompt.begin() + sequence->cached(), prompt.end());
  auto step = cache.prepare({{*sequence, rest}});
  REQUIRE(step);
  REQUIRE(step->commit());
  return std::move(*sequence);
}

std::string ids(Cache const& cache, kvcache::Sequence const& sequence)
{
  std::string out;
  for (kvcache::PageId const page : cache.pages(sequence)) {
    out += "  " + std::to_string(page.value);
  }
  return out;
}

}  // namespace

TEST_CASE("README.md: the picture of the page map is what a cache does", "[examples][docs]")
{
  auto cache = make_cache(20);
  Tokens const system{1, 2, 3, 4, 5, 6, 7, 8};  // two pages of four
  auto const with = [&](Tokens const& more) {
    Tokens all = system;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  auto const a = chat(cache, with({10, 11}));
  auto const b = chat(cache, with({20, 21, 22, 23, 30, 31}));
  auto fork = cache.fork(b);
  REQUIRE(fork);
  {
    auto step = cache.prepare({{*fork, Tokens{40}}});
    REQUIRE(step);
    CHECK(step->plan().copies.size() == 1);
    CHECK(step->commit());
  }
  chat(cache, with({50, 51, 52, 53, 54, 55, 56, 57})).close();

  std::ifstream file(std::string(KVCACHE_SOURCE_DIR) + "/README.md");
  std::string const readme(std::istreambuf_iterator<char>(file), {});
  CHECK_THAT(readme, Contains("\n A   " + ids(cache, a) + "           1 x4"));
  CHECK_THAT(readme, Contains("\n B   " + ids(cache, b) + "        2 x4"));
  CHECK_THAT(readme, Contains("\n fork" + ids(cache, *fork) + "        3 x1"));
  for (std::uint32_t page = 1; page <= 9; ++page) {
    std::uint32_t const holders = cache.holders(kvcache::PageId{page});
    std::string const line = " " + std::to_string(page) + " x" + std::to_string(holders);
    CHECK((readme.find(line) != std::string::npos) == (holders != 0));
  }
  kvcache::Stats const stats = cache.stats();
  CHECK(stats.tree_spans == 3);  // 1 2, then 4 or 7 8
  CHECK(stats.cached == 2);
  CHECK(stats.free == 20 - 8);
  CHECK(cache.probe({.tokens = with({20, 21, 22, 23, 99})}).rows == 12);
  CHECK(cache.probe({.tokens = with({50, 51, 52, 53, 54, 55, 56, 57, 99})}).rows == 16);
}
