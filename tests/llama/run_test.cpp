// SPDX-License-Identifier: Apache-2.0
#include "llama/run.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "capture.hpp"
#include "fixture.hpp"
#include "llama/error.hpp"
#include "llama/terminal.hpp"
#include "support/catch.hpp"
#include "support/json.hpp"

using kvcache_test::Contains;
using kvcache_test::Json;
using llama_test::captured;
using llama_test::Ids;
using llama_test::Logits;

namespace {

llama::Args recall_args(std::string prompt, int n)
{
  llama::Args args;
  args.prompt = std::move(prompt);
  args.n = n;
  args.threads = 2;
  args.progress = false;
  return args;
}

std::string text_of(llama::Args const& args)
{
  return captured([&] { CHECK(llama::run(args) == 0); });
}

}  // namespace

TEST_CASE("run: continues the prompt, whatever the settings of the cache", "[llama][run]")
{
  llama::Args args =
    recall_args("<s> the room of zoe is 1142. tom ran to the river. what is the room of zoe?", 5);
  CHECK(text_of(args) == " 1142.\n");
  for (llama::KvType kv : {llama::KvType::f32, llama::KvType::bf16}) {
    args.kv = kv;
    args.page_tokens += 37;
    args.chunk = 3;
    CHECK(text_of(args) == " 1142.\n");
  }
  args.n = 0;
  CHECK(text_of(args) == "\n");
  args.n = 12;
  args.temperature = 1.0F;
  std::string const sampled = text_of(args);
  CHECK(text_of(args) == sampled);
  args.seed = 2;
  CHECK(text_of(args) != sampled);
}

TEST_CASE("run: --dump has its documented form", "[llama][run]")
{
  llama::Args args = recall_args("<s> the room of zoe is 1142. what is the room of zoe?", 5);
  args.kv = llama::KvType::f32;
  args.chunk = 7;
  args.dump =
    (std::filesystem::temp_directory_path() / ("dump" + std::to_string(::getpid()) + ".json"))
      .string();
  CHECK(text_of(args) == " 1142.\n");
  std::ifstream file(args.dump);
  Json const dump = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  std::remove(args.dump.c_str());

  CHECK(dump.map().size() == 3);
  auto runner = llama_test::recall_runner();
  Ids const prompt = runner.tokenizer.encode(args.prompt);
  CHECK(dump["prompt_tokens"].integers() == prompt);
  CHECK(dump["generated"].integers() == runner.tokenizer.encode("1142."));
  Logits const logits = llama_test::contiguous_logits(runner, prompt);
  REQUIRE(dump["top5"].size() == prompt.size());
  for (std::size_t position = 0; position < prompt.size(); ++position) {
    auto const row = std::span(logits).subspan(position * runner.vocab(), runner.vocab());
    REQUIRE(dump["top5"][position].size() == 5);
    double above = HUGE_VAL;
    for (Json const& entry : dump["top5"][position].list()) {
      auto const id = static_cast<std::size_t>(entry[0].number());
      CHECK(std::fabs(entry[1].number() - static_cast<double>(row[id])) <= 1e-3);
      CHECK(entry[1].number() <= above);
      above = entry[1].number();
    }
  }
}

TEST_CASE("run: what cannot work is refused before the first token", "[llama][run][bad_input]")
{
  auto const refused = [](llama::Args const& args, std::string const& part) {
    CHECK(captured([&] { CHECK_THROWS_WITH(llama::run(args), Contains(part)); }).empty());
  };
  llama::Args args = recall_args("<s> the room of zoe is", 40);
  args.pages = 2;
  refused(args, "--pages is 2; 45 tokens of prompt and answer take 3 pages of 16 tokens");
  args.pages = 3;
  CHECK(!text_of(args).empty());
  args.n = 4093;
  args.pages = 0;
  refused(args, "4098 tokens; the model was made for at most 4096");
  refused(recall_args("the weather of zoe", 1), "weather");
  refused(recall_args(" ", 1), "no tokens");
  args = recall_args("<s>", 4);
  args.dump = "no_such_folder/dump.json";
  refused(args, "no_such_folder/dump.json");
  args.dump.clear();
  args.model = "no_such_model.gguf";
  refused(args, "no_such_model.gguf");
}

TEST_CASE("run: Ctrl-C ends the line and the program", "[llama][run]")
{
  int out[2];
  REQUIRE(::pipe(out) == 0);
  std::fflush(stdout);
  ::pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(out[0]);
    ::dup2(out[1], STDOUT_FILENO);
    int code = 99;
    try {
      code = llama::run(recall_args("<s>", 4000));
    } catch (...) {
    }
    ::_exit(code);
  }
  ::close(out[1]);
  // The first bytes say that the answer has begun; then the key is pressed.
  std::string text;
  char byte = 0;
  while (::read(out[0], &byte, 1) == 1) {
    if (text.empty()) {
      ::kill(child, SIGINT);
    }
    text += byte;
  }
  ::close(out[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == llama::Interrupt::exit_code);
  CHECK(text.size() > 1);
  CHECK(text.back() == '\n');
}
