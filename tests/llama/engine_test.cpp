// SPDX-License-Identifier: Apache-2.0
#include "llama/engine.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fixture.hpp"
#include "llama/error.hpp"
#include "llama/sampler.hpp"
#include "support/catch.hpp"

using kvcache_test::Contains;
using llama::KvType;
using llama::Work;
using llama_test::cold_logits;
using llama_test::contiguous_logits;
using llama_test::difference;
using llama_test::Ids;
using llama_test::Logits;
using llama_test::paged_logits;
using llama_test::recall_runner;
using llama_test::same_bits;
using llama_test::text_of;

namespace {

/// The greedy continuation, and the logits that chose each token.
struct Continuation {
  Ids ids;
  Logits logits;
};

Continuation greedy_run(llama::Engine& engine,
                        kvcache::Sequence const& sequence,
                        Ids const& text,
                        std::size_t tokens)
{
  Continuation out;
  auto logits = llama::prefill(engine, sequence, text, 64);
  for (std::size_t i = 0; i < tokens; ++i) {
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    out.ids.push_back(llama::greedy(logits));
    Work const work{&sequence, {&out.ids.back(), 1}};
    logits = engine.step({&work, 1});
  }
  return out;
}

}  // namespace

TEST_CASE("Engine: pages give what plain arrays give", "[llama][engine]")
{
  auto runner = recall_runner();
  Ids const text = text_of(runner, 333);
  Logits const expected = contiguous_logits(runner, text);
  CHECK(difference(cold_logits(*runner.engine(KvType::f32), text, 64), expected) <= 1e-3);
  CHECK(difference(cold_logits(*runner.engine(KvType::f16), text, 64), expected) <= 0.05);
  CHECK(difference(cold_logits(*runner.engine(KvType::bf16), text, 64), expected) <= 0.5);
}

TEST_CASE("Engine: the same bits whatever the chunks, pages and threads", "[llama][engine]")
{
  // All products and all of attention sum in an order that depends on the row alone, so this is equality.
  auto const kv = GENERATE(KvType::f32, KvType::f16, KvType::bf16);
  auto runner = recall_runner();
  Ids const text = text_of(runner, 700);  // attention of the last rows is cut in two parts
  auto const engine = runner.engine(kv);
  Logits const expected = cold_logits(*engine, text, 64);
  for (std::size_t chunk : {1U, 7U, 16U, 512U}) {
    INFO("chunk " << chunk);
    CHECK(same_bits(cold_logits(*engine, text, chunk), expected));
  }
  for (int page_tokens : {1, 5, 64, 256}) {
    INFO("page_tokens " << page_tokens);
    CHECK(same_bits(cold_logits(*runner.engine(kv, 800, page_tokens), text, 100), expected));
  }
  for (unsigned threads : {1U, 3U}) {
    INFO("threads " << threads);
    auto other = recall_runner(threads);
    CHECK(same_bits(cold_logits(*other.engine(kv), text, 64), expected));
  }
}

TEST_CASE("Engine: a prefix hit changes no bit", "[llama][engine]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32);
  Ids const text = text_of(runner, 300);
  std::size_t const vocab = runner.vocab();
  Logits const cold =
    cold_logits(*engine, text, 64);  // its sequence has closed, its pages are cached

  for (std::size_t same : {300U, 299U, 160U, 153U, 17U, 3U}) {
    // A prompt that leaves the cached text after `same` tokens, inside a page or at its end.
    Ids prompt = text;
    for (std::size_t i = same; i < prompt.size(); ++i) {
      prompt[i] = text[i] == 40 ? 41 : 40;
    }
    prompt.resize(std::min(prompt.size(), same + 50));
    kvcache::Sequence const sequence = engine->open({.tokens = prompt});
    auto const cached = static_cast<std::size_t>(sequence.cached());
    INFO("same " << same << ", cached " << cached);
    // Whole pages are cached: 18 of 16 tokens. Part of a page is copied; the last token is never taken.
    CHECK(cached == std::min({same, prompt.size() - 1, std::size_t{288}}));
    Logits const warm = paged_logits(*engine, sequence, prompt, 64);
    auto const other = runner.engine(KvType::f32);
    Logits const from_nothing = cold_logits(*other, prompt, 64);
    auto const tail = std::span(from_nothing).subspan(cached * vocab);
    CHECK(same_bits(warm, tail));
    CHECK(engine->check_invariants());
  }
}

TEST_CASE("Engine: another domain shares nothing and answers the same", "[llama][engine]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f16);
  Ids const text = text_of(runner, 100);
  Logits const first = cold_logits(*engine, text, 32);
  kvcache::DomainFields fields{};
  fields.salt = "somebody else";
  kvcache::Domain const domain(fields);
  kvcache::Sequence const sequence = engine->open({.tokens = text, .domain = &domain});
  CHECK(sequence.cached() == 0);
  CHECK(sequence.miss() == kvcache::Miss::other_domain);
  CHECK(same_bits(paged_logits(*engine, sequence, text, 32), first));
}

TEST_CASE("Engine: forks and batches change no bit", "[llama][engine]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32);
  Ids const text = text_of(runner, 105);  // ends inside a page
  Continuation const alone = greedy_run(*engine, engine->open({.tokens = text}), text, 24);

  engine->forget({});
  kvcache::Sequence const base = engine->open({.tokens = text});
  auto const first = llama::prefill(*engine, base, text, 64);
  CHECK(llama::greedy(first) == alone.ids[0]);
  std::vector<kvcache::Sequence> forks;
  for (int i = 0; i < 4; ++i) {
    forks.push_back(engine->fork(base));
    CHECK(forks.back().length() == 105);
  }
  CHECK(engine->stats().held == 7);
  // Four forks in one step with a stranger that prefills beside them: three go their own way, fork 2 stays greedy.
  Ids const stranger_text = text_of(runner, 90, 8);
  kvcache::DomainFields fields{};
  fields.salt = "stranger";
  kvcache::Domain const elsewhere(fields);
  kvcache::Sequence const stranger = engine->open({.tokens = stranger_text, .domain = &elsewhere});
  std::array<std::int32_t, 4> next{13, 40, alone.ids[0], 50};
  std::size_t const vocab = runner.vocab();
  for (std::size_t step = 0; step + 1 < alone.ids.size(); ++step) {
    std::vector<Work> works;
    for (std::size_t i = 0; i < 4; ++i) {
      works.push_back({&forks[i], {&next[i], 1}});
    }
    if (step < 9) {
      works.insert(works.begin() + 1, {&stranger, std::span(stranger_text).subspan(step * 10, 10)});
    }
    auto const logits = engine->step(works);
    REQUIRE(logits.size() == works.size() * vocab);
    std::size_t const at = step < 9 ? 3 : 2;
    auto const mine = logits.subspan(at * vocab, vocab);
    CHECK(same_bits(mine, std::span(alone.logits).subspan((step + 1) * vocab, vocab)));
    if (step == 0) {
      REQUIRE(engine->copies().size() == 4);  // the base keeps its part page, each fork copies it
      for (auto const& copy : engine->copies()) {
        CHECK(copy.source == engine->pages(base)[6]);
        CHECK(copy.rows == 9);
      }
    }
    next = {13, 40, llama::greedy(mine), 50};
    CHECK(engine->check_invariants());
  }
  // The base has not changed under its forks.
  CHECK(base.length() == 105);
  Continuation const again = greedy_run(
    *engine,
    base,
    [&] {
      Ids longer = text;
      longer.push_back(alone.ids[0]);
      return longer;
    }(),
    23);
  CHECK(std::equal(again.ids.begin(), again.ids.end(), alone.ids.begin() + 1));
  CHECK(same_bits(again.logits, std::span(alone.logits).subspan(vocab)));
}

TEST_CASE("Engine: what was cut is computed again to the same bits", "[llama][engine]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f16);
  Ids const text = text_of(runner, 120);
  Logits const all = cold_logits(*engine, text, 50);
  kvcache::Sequence const sequence = engine->open({.tokens = text});
  llama::prefill(*engine, sequence, text, 50);
  for (int length : {119, 96, 61, 0}) {
    engine->truncate(sequence, length);
    CHECK(sequence.length() == length);
    Logits const tail = paged_logits(*engine, sequence, text, 50);
    std::size_t const first = static_cast<std::size_t>(length) * runner.vocab();
    CHECK(same_bits(tail, std::span(all).subspan(first)));
  }
}

TEST_CASE("Engine: what it refuses leaves everything as it was", "[llama][engine][bad_input]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32, 8);  // 128 tokens
  Ids const text = text_of(runner, 60);
  kvcache::Sequence const sequence = engine->open({.tokens = text});
  llama::prefill(*engine, sequence, text, 64);
  std::uint32_t const held = engine->stats().held;

  Ids const outside{160};
  Work const bad_token{&sequence, outside};
  CHECK_THROWS_WITH(engine->step({&bad_token, 1}), Contains("160"));
  Ids const negative{5, -1};
  Work const negative_token{&sequence, negative};
  CHECK_THROWS_AS(engine->step({&negative_token, 1}), llama::Error);
  Work const nothing{&sequence, {}};
  CHECK_THROWS_AS(engine->step({&nothing, 1}), llama::Error);
  Work const twice[] = {{&sequence, {text.data(), 1}}, {&sequence, {text.data(), 1}}};
  CHECK_THROWS_AS(engine->step(twice), llama::Error);
  kvcache::Sequence const closed;
  Work const stale{&closed, {text.data(), 1}};
  CHECK_THROWS_WITH(engine->step({&stale, 1}), Contains("sequence"));
  Ids const much = text_of(runner, 70);
  Work const too_much[] = {{&sequence, much}};
  CHECK_THROWS_AS(engine->step(too_much), llama::Error);
  kvcache::Sequence const second = engine->open({.tokens = much});
  Work const both[] = {{&sequence, {text.data(), 1}}, {&second, much}};
  CHECK_THROWS_WITH(engine->step(both), Contains("full") && Contains("--pages"));

  CHECK(engine->stats().held == held);
  CHECK(sequence.length() == 60);
  CHECK(second.length() == second.cached());
  CHECK(engine->check_invariants());
  // And the sequence goes on as if nothing had been asked.
  auto const other = runner.engine(KvType::f32);
  Ids longer = text;
  longer.push_back(3);
  Logits const expected = cold_logits(*other, longer, 64);
  Work const next{&sequence, {&longer.back(), 1}};
  auto const logits = engine->step({&next, 1});
  CHECK(same_bits(logits, std::span(expected).last(logits.size())));
}

TEST_CASE("Engine: options that cannot work are named", "[llama][engine][bad_input]")
{
  auto runner = recall_runner();
  CHECK_THROWS_WITH(runner.engine(KvType::f16, 0), Contains("pages = 0"));
  CHECK_THROWS_WITH(runner.engine(KvType::f16, 8, 300), Contains("page_tokens = 300"));
}
