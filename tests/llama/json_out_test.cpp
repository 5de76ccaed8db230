// SPDX-License-Identifier: Apache-2.0
#include "llama/json_out.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "llama/error.hpp"
#include "support/catch.hpp"
#include "support/json.hpp"

using kvcache_test::Contains;
using kvcache_test::Json;

TEST_CASE("top_five: best first, lower id first among equals", "[llama][json_out]")
{
  using Pairs = std::vector<std::pair<std::int32_t, float>>;
  std::vector<float> const logits = {1, 7, 7, 3, 2, 9, 0};
  CHECK(llama::top_five(logits) == Pairs{{5, 9.0F}, {1, 7.0F}, {2, 7.0F}, {3, 3.0F}, {4, 2.0F}});
  CHECK(llama::top_five(std::vector<float>{1, 2}) == Pairs{{1, 2.0F}, {0, 1.0F}});
  CHECK(
    llama::top_five(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 2, 1})[1].first ==
    2);
}

TEST_CASE("to_json: reads back as the same numbers", "[llama][json_out]")
{
  llama::Dump dump;
  dump.prompt_tokens = {504, 3575};
  dump.top5 = {{{29, 27.3534F}, {28, 0.1F}}, {{7, std::numeric_limits<float>::infinity()}}};
  dump.generated = {1, 2, 49151};
  Json const read = Json::parse(llama::to_json(dump));
  CHECK(read["prompt_tokens"].integers() == dump.prompt_tokens);
  CHECK(read["generated"].integers() == dump.generated);
  REQUIRE(read["top5"].size() == 2);
  CHECK(read["top5"][0][0][0].number() == 29);
  CHECK(static_cast<float>(read["top5"][0][0][1].number()) == 27.3534F);
  CHECK(static_cast<float>(read["top5"][0][1][1].number()) == 0.1F);
  CHECK(read["top5"][1][0][1].is_null());
  CHECK(Json::parse(llama::to_json({}))["generated"].size() == 0);
}

TEST_CASE("write_dump: writes the file or names it", "[llama][json_out]")
{
  std::string const path = "dump_test_" + std::to_string(::getpid()) + ".json";
  llama::write_dump({.prompt_tokens = {1}, .top5 = {}, .generated = {2}}, path);
  std::ifstream in(path);
  std::string const text{std::istreambuf_iterator<char>(in), {}};
  std::remove(path.c_str());
  CHECK(Json::parse(text)["generated"].integers() == std::vector<int>{2});
  CHECK_THROWS_WITH(llama::write_dump({}, "no_such_folder/dump.json"),
                    Contains("--dump 'no_such_folder/dump.json'"));
}

TEST_CASE("Json: the tests' reader refuses what is not JSON", "[llama][json_out]")
{
  CHECK(
    Json::parse(R"( {"a": [1, -2.5e1, true, null], "b": "x\n\u00e9\ud83d\ude42"} )")["b"].text() ==
    "x\n\xc3\xa9\xf0\x9f\x99\x82");
  for (char const* bad : {"", "{", "[1,]", "[1 2]", "{\"a\" 1}", "\"open", "1x", "[1]]", "nul"}) {
    INFO(bad);
    CHECK_THROWS(Json::parse(bad));
  }
  CHECK_THROWS(Json::parse(std::string(100'000, '[')));
}
