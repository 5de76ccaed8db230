// SPDX-License-Identifier: Apache-2.0
#include "llama/args.hpp"

#include <string>
#include <vector>

#include "llama/error.hpp"
#include "support/catch.hpp"

using kvcache_test::Contains;
using llama::UsageError;

namespace {

llama::Args parse(std::vector<char const*> const& words)
{
  return llama::parse_args(words);
}

}  // namespace

TEST_CASE("parse_args: every argument arrives", "[llama][args]")
{
  llama::Args const a = parse(
    {"--model",       "m.gguf", "--prompt",      "hi",     "--n",         "12",
     "--temp",        "0.8",    "--top-p",       "0.9",    "--seed",      "18446744073709551615",
     "--kv",          "bf16",   "--threads",     "3",      "--chunk",     "7",
     "--page-tokens", "256",    "--pages",       "99",     "--chat",      "--dump",
     "d.json",        "--demo", "--no-progress", "--help", "--tokenizer", "t.bin",
     "--bench",       "--json", "b.json"});
  CHECK(a.model == "m.gguf");
  CHECK(a.prompt == "hi");
  CHECK(a.n == 12);
  CHECK(a.temperature == 0.8F);
  CHECK(a.top_p == 0.9F);
  CHECK(a.seed == 18446744073709551615U);
  CHECK(a.kv == llama::KvType::bf16);
  CHECK(a.threads == 3);
  CHECK(a.chunk == 7);
  CHECK(a.page_tokens == 256);
  CHECK(a.pages == 99);
  CHECK(a.chat);
  CHECK(a.dump == "d.json");
  CHECK(a.demo);
  CHECK(a.tokenizer == "t.bin");
  CHECK(a.bench);
  CHECK(a.json == "b.json");
  CHECK_FALSE(a.progress);
  CHECK(a.help);
}

TEST_CASE("parse_args: defaults", "[llama][args]")
{
  llama::Args const a = parse({"--prompt", "--n"});  // the value may look like an option
  CHECK(a.prompt == "--n");
  CHECK(a.model.empty());
  CHECK(a.temperature == 0.0F);
  CHECK(a.threads >= 1);
  CHECK(a.pages == 0);
  CHECK(a.progress);
  CHECK(parse({"--demo"}).demo);
  CHECK(parse({"--bench"}).bench);
  CHECK(parse({"--help"}).help);
}

TEST_CASE("parse_args: a bad argument gets a sentence with what is right",
          "[llama][args][bad_input]")
{
  struct Case {
    std::vector<char const*> words;
    char const* sentence;
  };
  std::vector<Case> const cases = {
    {{}, "--prompt is missing"},
    {{"--prompt", ""}, "--prompt is missing or empty"},
    {{"hello"}, "there is no argument 'hello'"},
    {{"--promt", "x"}, "there is no argument '--promt'"},
    {{"--prompt"}, "--prompt has no value; a text is right"},
    {{"--model", ""}, "--model is ''; the path of a GGUF file is right"},
    {{"--n", "-1"}, "--n is '-1'; a whole number from 0 up is right"},
    {{"--n", "3x"}, "--n is '3x'"},
    {{"--n", "99999999999"}, "--n is '99999999999'"},
    {{"--temp", "-0.1"}, "--temp is '-0.1'; a number from 0"},
    {{"--temp", "nan"}, "--temp is 'nan'"},
    {{"--temp", "hot"}, "--temp is 'hot'"},
    {{"--top-p", "0"}, "--top-p is '0'; a number above 0 and at most 1 is right"},
    {{"--top-p", "1.5"}, "--top-p is '1.5'"},
    {{"--seed", "-1"}, "--seed is '-1'; a whole number from 0 up is right"},
    {{"--kv", "int8"}, "--kv is 'int8'; f32, f16 or bf16 is right"},
    {{"--threads", "0"}, "--threads is '0'; a whole number from 1 to 1024 is right"},
    {{"--chunk", "0"}, "--chunk is '0'; a whole number from 1 up is right"},
    {{"--page-tokens", "257"}, "--page-tokens is '257'; a whole number from 1 to 256 is right"},
    {{"--pages", "0"}, "--pages is '0'"},
    {{"--dump", ""}, "--dump is ''"},
    {{"--json", ""}, "--json is ''"},
    {{"--tokenizer", ""}, "--tokenizer is ''; the path of a llama2.c tokenizer is right"},
    {{"--kv", "\x1b[2J"}, "'\\x1b[2J'"},
  };
  for (Case const& bad : cases) {
    INFO(bad.sentence);
    CHECK_THROWS_AS(parse(bad.words), UsageError);
    CHECK_THROWS_WITH(parse(bad.words), Contains(bad.sentence));
  }
}

TEST_CASE("usage: names every argument", "[llama][args]")
{
  std::string const text = llama::usage();
  for (char const* name : {"--model",
                           "--prompt",
                           "--n ",
                           "--temp",
                           "--top-p",
                           "--seed",
                           "--kv",
                           "--threads",
                           "--chunk",
                           "--page-tokens",
                           "--pages",
                           "--chat",
                           "--dump",
                           "--demo",
                           "--bench",
                           "--json",
                           "--tokenizer",
                           "--no-progress",
                           "--help"}) {
    CHECK_THAT(text, Contains(name));
  }
}
