// SPDX-License-Identifier: Apache-2.0
#include "smollm2.hpp"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>

#include "fixture.hpp"
#include "llama/sampler.hpp"
#include "support/catch.hpp"
#include "support/json.hpp"
#include "support/read_file.hpp"

using kvcache_test::Json;
using kvcache_test::read_file;
using llama::KvType;
using llama::Work;
using llama_test::Ids;
using llama_test::Logits;
using llama_test::Runner;

namespace {

namespace fs = std::filesystem;

fs::path reference_path()
{
  return fs::path(KVCACHE_TEST_DATA_DIR) / "models/smollm2-135m/reference.json";
}

/// Whether model and reference are here; says so where they are not.
bool present(char const* what)
{
  if (!fs::exists(reference_path())) {
    std::cout << "not run: " << what << " (needs " << reference_path() << ")\n";
    return false;
  }
  return llama_test::smollm2_present(what);
}

/// The furthest that a logit named by the reference is from it.
double furthest(Logits const& logits, std::size_t vocab, Json const& top5)
{
  REQUIRE(logits.size() == top5.size() * vocab);
  double most = 0;
  for (std::size_t position = 0; position < top5.size(); ++position) {
    for (Json const& entry : top5[position].list()) {
      auto const id = static_cast<std::size_t>(entry[0].number());
      double const here = static_cast<double>(logits[position * vocab + id]);
      most = std::max(most, std::fabs(here - entry[1].number()));
    }
  }
  return most;
}

}  // namespace

TEST_CASE("SmolLM2: tokens, logits and greedy answers are the reference's", "[llama][smollm2]")
{
  if (!present("SmolLM2's logits against a float32 evaluation")) {
    CHECK_THROWS_AS(llama::Gguf::open((llama_test::smollm2_path() / "absent").string()),
                    llama::Error);
    return;
  }
  Runner runner = llama_test::smollm2_runner();
  Json const prompts = Json::parse(read_file(reference_path()));
  REQUIRE(prompts.size() == 5);
  std::size_t greedy_tokens = 0;
  for (Json const& prompt : prompts.list()) {
    INFO(prompt["prompt"].text());
    Ids const text = prompt["tokens"].integers();
    CHECK(runner.tokenizer.encode(prompt["prompt"].text()) == text);
    double const f16 = furthest(llama_test::cold_logits(*runner.engine(KvType::f16), text, 512),
                                runner.vocab(),
                                prompt["top5_f32"]);
    double const bf16 = furthest(llama_test::cold_logits(*runner.engine(KvType::bf16), text, 512),
                                 runner.vocab(),
                                 prompt["top5_f32"]);
    auto const engine = runner.engine(KvType::f32);
    kvcache::Sequence const sequence = engine->open({.tokens = text});
    Logits const logits = llama_test::paged_logits(*engine, sequence, text, 512);
    double const f32 = furthest(logits, runner.vocab(), prompt["top5_f32"]);
    std::printf("SmolLM2, %2zu tokens: off by %.4f (f32), %.4f (f16), %.4f (bf16)\n",
                text.size(),
                f32,
                f16,
                bf16);
    CHECK(f32 <= 0.002);
    CHECK(f16 <= 0.03);
    CHECK(bf16 <= 0.1);

    Ids const expected = prompt["greedy_f32"].integers();
    Ids said{llama::greedy(std::span(logits).last(runner.vocab()))};
    while (said.size() < expected.size()) {
      Work const work{&sequence, {&said.back(), 1}};
      said.push_back(llama::greedy(engine->step({&work, 1})));
    }
    CHECK(said == expected);
    greedy_tokens += said.size();
  }
  CHECK(greedy_tokens == 240);
}

TEST_CASE("SmolLM2: pages, chunks, forks and plain arrays agree", "[llama][smollm2]")
{
  if (!present("SmolLM2 by pages, chunks and forks")) {
    CHECK_THROWS_AS(llama::Gguf::open((llama_test::smollm2_path() / "absent").string()),
                    llama::Error);
    return;
  }
  Runner runner = llama_test::smollm2_runner();
  Json const prompts = Json::parse(read_file(reference_path()));
  Ids text;
  for (Json const& prompt : prompts.list()) {
    Ids const ids = prompt["tokens"].integers();
    text.insert(text.end(), ids.begin(), ids.end());
  }
  text.resize(77);
  auto const engine = runner.engine(KvType::f32);
  Logits const paged = llama_test::cold_logits(*engine, text, 64);
  CHECK(llama_test::difference(paged, llama_test::contiguous_logits(runner, text)) <= 1e-3);
  for (std::size_t chunk : {1U, 7U, 16U, 512U}) {
    INFO("chunk " << chunk);
    CHECK(llama_test::same_bits(llama_test::cold_logits(*engine, text, chunk),
                                paged));  // one order of sums, so equal
  }
  // The same with rounded activations: whole numbers, and again one order of sums.
  auto const halves = runner.engine(KvType::f16);
  Logits const rounded = llama_test::cold_logits(*halves, text, 64);
  CHECK(llama_test::difference(rounded, paged) <= 0.05);
  for (std::size_t chunk : {1U, 7U, 512U}) {
    INFO("chunk " << chunk);
    CHECK(llama_test::same_bits(llama_test::cold_logits(*halves, text, chunk), rounded));
  }
  // Forked inside a page after 53 tokens, the rest computed by the fork.
  engine->forget({});
  Ids const start(text.begin(), text.begin() + 53);
  kvcache::Sequence const base = engine->open({.tokens = start});
  llama::prefill(*engine, base, start, 64);
  kvcache::Sequence const fork = engine->fork(base);
  Logits const rest = llama_test::paged_logits(*engine, fork, text, 64);
  CHECK(llama_test::same_bits(rest, std::span(paged).subspan(53 * runner.vocab())));
  CHECK(engine->stats().copied_pages == 1);
  CHECK(engine->check_invariants());
}
