// SPDX-License-Identifier: Apache-2.0
#include "llama/page_map.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "fixture.hpp"
#include "llama/recall_text.hpp"
#include "support/catch.hpp"

using llama_test::Ids;

TEST_CASE("page_map: a character for each page says who holds it", "[llama][page_map]")
{
  auto runner = llama_test::recall_runner();
  auto const engine = runner.engine(llama::KvType::f16, 70);
  CHECK(llama::page_map(*engine, {}) == "      1  " + std::string(64, '.') + "\n     65  ......\n");

  Ids text = runner.tokenizer.encode(llama::make_recall_text(256, 0, 1).context);
  text.resize(40);  // two whole pages and a half
  kvcache::Sequence const base = engine->open({.tokens = text});
  llama::prefill(*engine, base, text, 64);
  std::vector<kvcache::Sequence> forks;
  for (int i = 0; i < 11; ++i) {
    forks.push_back(engine->fork(base));
  }
  std::vector<llama::Lettered> all{{'p', "base", &base}};
  auto const count = [&](char wanted) {
    std::string const map = llama::page_map(*engine, all);
    return std::count(map.begin(), map.end(), wanted);
  };
  CHECK(count('p') == 3);  // only `base` is listed so far
  all.push_back({'a', "first", &forks[0]});
  CHECK(count('2') == 3);

  llama::Work const work{&forks[0], {text.data(), 1}};
  static_cast<void>(engine->step({&work, 1}));  // takes its copy of the part page
  CHECK(count('2') == 2);
  CHECK(count('p') == 1);
  CHECK(count('a') == 1);
  for (std::size_t i = 1; i < forks.size(); ++i) {
    all.push_back({'x', "another", &forks[i]});
  }
  CHECK(count('*') == 3);  // eleven or twelve hold each: more than a digit says
  std::string const lists = llama::page_lists(*engine, std::span(all).first(2));
  CHECK_THAT(lists, kvcache_test::Contains("p  base ") && kvcache_test::Contains("40 tokens"));
  CHECK_THAT(lists, kvcache_test::Contains("a  first ") && kvcache_test::Contains("41 tokens"));

  forks.clear();
  all.resize(1);
  CHECK(count('.') == 67);
  CHECK(count('+') == 0);
  all.clear();
  CHECK(count('+') == 3);  // held by a sequence that is not listed, or by the tree
}
