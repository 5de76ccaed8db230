// SPDX-License-Identifier: Apache-2.0

// Trees of drafts end to end: positions, masks and moved rows have to be right in every layer for a model to say the
// same. Sums over a tree skip rows, so their order is another and the last bits differ: each tolerance was measured.

#include <cstdio>
#include <string>

#include "fixture.hpp"
#include "llama/error.hpp"
#include "smollm2.hpp"
#include "support/catch.hpp"
#include "tree_logits.hpp"
#include "tree_text.hpp"

using kvcache_test::Contains;
using llama::KvType;
using llama::Work;
using llama_test::Ids;
using llama_test::recall_runner;
using llama_test::text_of;
using llama_test::TreeRun;

namespace {

void print(char const* model, TreeRun const& run, llama_test::TreeLogits const& got)
{
  std::printf(
    "%s, trees, seed %llu, pages of %2d: %zu trees, %zu chunks, %zu rows compared, %llu moved; off "
    "by %.2g\n",
    model,
    static_cast<unsigned long long>(run.seed),
    run.page_tokens,
    got.trees,
    got.chunks,
    got.rows,
    static_cast<unsigned long long>(got.moved),
    got.furthest);
}

void print(char const* model, TreeRun const& run, double lead, llama_test::TreeText const& got)
{
  std::printf(
    "%s, drafts, seed %llu, pages of %2d: %zu steps, %zu drafted, %zu accepted, %llu rows moved, "
    "%llu pages "
    "copied; narrowest lead %.2g, off by %.2g behind it\n",
    model,
    static_cast<unsigned long long>(run.seed),
    run.page_tokens,
    got.steps,
    got.drafted,
    got.accepted,
    static_cast<unsigned long long>(got.moved),
    static_cast<unsigned long long>(got.copied),
    lead,
    got.continued);
}

}  // namespace

TEST_CASE("Engine: of a tree stays the path through what the verdict names",
          "[llama][engine][tree]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32);
  Ids const text = text_of(runner, 20);
  kvcache::Sequence const sequence = engine->open({.tokens = text});
  llama::prefill(*engine, sequence, text, 64);
  Ids const tokens{5, 6, 7, 8, 9};
  kvcache_test::Parents const parents{-1, 0, 0, 1, 2};
  Work const tree{.sequence = &sequence, .tokens = tokens, .parents = parents};
  auto const keep = [&](std::size_t kept) {
    int asked = 0;
    (void)engine->step({&tree, 1}, [&](Work const& of, std::span<float const>) {
      asked += 1;
      CHECK(of.parents.data() == parents.data());
      return kept;
    });
    CHECK(asked == 1);
    CHECK(engine->check_invariants());
    return sequence.length();
  };
  CHECK(keep(0) == 20);
  CHECK(keep(1) == 21);
  CHECK(keep(5) == 24);  // 0, 2, 4
  CHECK(engine->stats().moved_rows == 0);
  CHECK(keep(2) == 26);
  CHECK(engine->stats().moved_rows == 2);
  CHECK_THROWS_WITH(keep(6), Contains("the tree does not have"));
  CHECK(sequence.length() == 26);
  kvcache_test::Parents const forward{-1, 2, 0, 1, 2};
  Work const bad{.sequence = &sequence, .tokens = tokens, .parents = forward};
  CHECK_THROWS_WITH(engine->step({&bad, 1}), Contains("chunk.parents"));
  CHECK(engine->check_invariants());
}

TEST_CASE("Engine: every token of a tree has the logits of its path", "[llama][engine][tree]")
{
  auto runner = recall_runner();
  std::uint64_t seed = 20;
  std::size_t chunks = 0;
  for (KvType const kv : {KvType::f32, KvType::f16}) {
    for (int const page_tokens : {4, 16}) {
      for (std::size_t const sequences : {1U, 4U}) {
        TreeRun const run{.kv = kv,
                          .page_tokens = page_tokens,
                          .seed = ++seed,
                          .sequences = sequences,
                          .steps = 12};
        auto const got = llama_test::compare_trees(runner, run);
        print(kv == KvType::f32 ? "recall, f32" : "recall, f16", run, got);
        CHECK(got.furthest <= (kv == KvType::f32 ? 1e-4 : 5e-3));
        CHECK(got.trees > 5);
        CHECK(got.moved > 5);
        chunks += got.chunks;
      }
    }
  }
  CHECK(chunks > 20);
}

TEST_CASE("Engine: drafts in trees change the steps, never the text", "[llama][engine][tree]")
{
  auto runner = recall_runner();
  std::uint64_t seed = 40;
  for (int const page_tokens : {4, 16}) {
    for (bool const forks : {false, true}) {
      TreeRun const run{.page_tokens = page_tokens, .seed = ++seed};
      Ids const prompt = text_of(runner, 120, seed);
      auto const plain = llama_test::greedy_text(runner, run, prompt, 220);
      auto const got = llama_test::generate_with_trees(runner, run, prompt, plain.text, forks);
      print(forks ? "recall, forks" : "recall", run, plain.lead, got);
      CHECK(plain.lead > 1e-3);  // else equal texts would be luck
      CHECK(got.steps + got.accepted >= 200);
      CHECK(got.accepted > got.steps / 4);
      CHECK(got.accepted < got.drafted);
      CHECK(got.moved > 20);
      CHECK((got.copied > 0) == forks);
      CHECK(got.continued <= 1e-4);
    }
  }
}

TEST_CASE("SmolLM2: trees of drafts give the logits and the text of chains",
          "[llama][smollm2][tree]")
{
  if (!llama_test::smollm2_present("SmolLM2 with trees of drafts")) {
    CHECK_THROWS_AS(llama::Gguf::open((llama_test::smollm2_path() / "absent").string()),
                    llama::Error);
    return;
  }
  auto runner = llama_test::smollm2_runner();
  TreeRun const run{.page_tokens = 4, .seed = 60, .sequences = 2, .steps = 2, .most_tokens = 16};
  auto const logits = llama_test::compare_trees(runner, run);
  print("SmolLM2", run, logits);
  CHECK(logits.furthest <= 1e-4);
  CHECK(logits.moved > 0);

  Ids const prompt =
    runner.tokenizer.encode("one two three four, one two three five, one two three");
  auto const plain = llama_test::greedy_text(runner, run, prompt, 96);
  auto const got = llama_test::generate_with_trees(runner, run, prompt, plain.text, true);
  print("SmolLM2", run, plain.lead, got);
  CHECK(plain.lead > 1e-3);
  CHECK(got.moved > 0);
  CHECK(got.continued <= 1e-4);
}
