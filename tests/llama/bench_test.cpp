// SPDX-License-Identifier: Apache-2.0
#include "llama/bench.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "capture.hpp"
#include "llama/error.hpp"
#include "support/catch.hpp"
#include "support/json.hpp"

using kvcache_test::Contains;
using kvcache_test::Json;

TEST_CASE("bench: a line and an entry for each length that the model has", "[llama][bench]")
{
  auto const path = std::filesystem::temp_directory_path() / "kvcache_llama_bench.json";
  llama::Args args;  // the recall model, made for 2,048 tokens and no more
  args.bench = true;
  args.threads = 2;
  args.json = path.string();
  std::string const said = llama_test::captured([&] { CHECK(llama::bench(args) == 0); });
  CHECK_THAT(said, Contains("bytes of weights") && Contains("weights read"));
  CHECK_THAT(said, Contains("7900: longer than the model was made for"));

  std::ifstream in(path, std::ios::binary);
  Json const list = Json::parse(std::string{std::istreambuf_iterator<char>(in), {}});
  REQUIRE(list.size() >= 1);
  CHECK(list[0]["context"].number() == 512);
  for (Json const& entry : list.list()) {
    CHECK(entry["prefill"].number() > 0);
    CHECK(entry["decode"].number() > 0);
  }
  std::filesystem::remove(path);

  args.json = "/absent/bench.json";
  CHECK_THROWS_WITH(llama_test::captured([&] { (void)llama::bench(args); }),
                    Contains("--json '/absent/bench.json'"));
}
