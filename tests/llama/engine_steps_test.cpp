// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "fixture.hpp"
#include "llama/engine.hpp"
#include "llama/error.hpp"
#include "support/catch.hpp"

using kvcache_test::Contains;
using llama::KvType;
using llama::Wanted;
using llama::Work;
using llama_test::cold_logits;
using llama_test::Ids;
using llama_test::Logits;
using llama_test::recall_runner;
using llama_test::same_bits;
using llama_test::text_of;

TEST_CASE("Engine: of a draft stays what the verdict keeps", "[llama][engine][draft]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32);
  Ids const text = text_of(runner, 60);
  std::size_t const vocab = runner.vocab();
  Logits const expected = cold_logits(*runner.engine(KvType::f32), text, 64);
  auto const expected_row = [&](std::size_t row) {
    return std::span(expected).subspan(row * vocab, vocab);
  };
  kvcache::Sequence const sequence = engine->open({.tokens = text});
  for (std::size_t at = 0, kept = 1; at + 9 <= text.size(); at += kept, kept = kept % 8 + 1) {
    CAPTURE(at, kept);
    // Right tokens as far as they are kept, then wrong ones: whose rows nobody may ever see.
    Ids draft(text.begin() + static_cast<std::ptrdiff_t>(at),
              text.begin() + static_cast<std::ptrdiff_t>(at + kept));
    draft.resize(9, 5);
    Work const work{&sequence, draft, Wanted::all, true};
    int asked = 0;
    auto const logits = engine->step({&work, 1}, [&](Work const& of, std::span<float const> mine) {
      asked += 1;
      CHECK(of.tokens.data() == draft.data());
      CHECK(mine.size() == draft.size() * vocab);
      return kept;
    });
    CHECK(asked == 1);
    for (std::size_t row = 0; row < kept; ++row) {
      CHECK(same_bits(logits.subspan(row * vocab, vocab), expected_row(at + row)));
    }
    CHECK(static_cast<std::size_t>(sequence.length()) == at + kept);
  }
  CHECK(engine->stats().committed_rows < engine->stats().planned_rows);
  CHECK(engine->check_invariants());
}

TEST_CASE("Engine: rows that another sequence of the step computes are attached",
          "[llama][engine][sharing]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32);
  Ids const text = text_of(runner, 70);
  std::size_t const vocab = runner.vocab();
  Logits const expected = cold_logits(*runner.engine(KvType::f32), text, 64);
  auto const last = std::span(expected).last(vocab);
  kvcache::Sequence const a = engine->open({.tokens = text});
  kvcache::Sequence const b = engine->open({.tokens = text});
  kvcache::Sequence const c = engine->open({.tokens = text});
  Work const first[] = {{&a, text}, {&b, text}, {&c, std::span(text).first(32), Wanted::none}};
  auto const logits = engine->step(first);
  CHECK(engine->stats().planned_rows == 70 + 6);  // 64 rows of b in four pages, all of c's
  REQUIRE(logits.size() == 2 * vocab);
  CHECK(same_bits(logits.first(vocab), last));
  CHECK(same_bits(logits.last(vocab), last));
  CHECK(c.length() == 32);

  // Nothing at all to compute is a step too; logits of a row that was found are not to be had.
  Work const found{&c, std::span(text).subspan(32, 16), Wanted::none};
  CHECK(engine->step({&found, 1}).empty());
  CHECK(c.length() == 48);
  Work const wants{&c, std::span(text).subspan(48, 16)};
  CHECK_THROWS_WITH(engine->step({&wants, 1}), Contains("logits"));
  CHECK(c.length() == 48);
  Work const rest{&c, std::span(text).subspan(48)};
  CHECK(same_bits(engine->step({&rest, 1}), last));
  CHECK(engine->check_invariants());
}

TEST_CASE("Engine: a prefill that finds all but the end gives the same logits",
          "[llama][engine][sharing]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32);
  Ids const text = text_of(runner, 70);
  kvcache::Sequence const a = engine->open({.tokens = text});
  kvcache::Sequence const b = engine->open({.tokens = text});
  auto const first = llama::prefill(*engine, a, text, 16);
  Logits const expected(first.begin(), first.end());
  CHECK(same_bits(llama::prefill(*engine, b, text, 16), expected));
  CHECK(engine->stats().planned_rows == 70 + 6);
}

TEST_CASE("Engine: a suspended sequence goes on as if nothing had been", "[llama][engine][suspend]")
{
  auto runner = recall_runner();
  Ids text = text_of(runner, 60);
  Logits const expected = cold_logits(*runner.engine(KvType::f32), text, 64);
  for (bool const evicted : {false, true}) {
    auto const engine = runner.engine(KvType::f32, 5);  // 80 tokens
    kvcache::Sequence const sequence = engine->open({.tokens = text});
    std::span<std::int32_t const> const most = std::span(text).first(59);
    llama::prefill(*engine, sequence, most, 64);
    engine->suspend(sequence);
    CHECK(engine->stats().held == 0);
    Work const next{&sequence, std::span(text).last(1)};
    CHECK_THROWS_WITH(engine->step({&next, 1}), Contains("resume"));
    if (evicted) {
      Ids const other = text_of(runner, 75, 8);
      llama::prefill(*engine, engine->open({.tokens = other}), other, 64);
    }
    engine->resume(sequence);
    CHECK((sequence.length() < 16) == evicted);
    CHECK(same_bits(llama::prefill(*engine, sequence, text, 64),
                    std::span(expected).last(runner.vocab())));
    CHECK_THROWS_WITH(engine->resume(sequence), Contains("not suspended"));
  }
}

TEST_CASE("Engine: what a step lacks is a value, and nothing happened",
          "[llama][engine][bad_input]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(KvType::f32, 4);  // 64 tokens
  Ids const text = text_of(runner, 60);
  kvcache::Sequence const a = engine->open({.tokens = text});
  kvcache::Sequence const b = engine->open({.tokens = text_of(runner, 40, 8)});
  Ids const other = text_of(runner, 40, 8);
  Work const both[] = {{&a, std::span(text).first(40)}, {&b, other}};
  auto const refused = engine->try_step(both);
  REQUIRE(!refused);
  CHECK(refused.error().why == kvcache::Why::no_pages);
  CHECK(refused.error().need == 3);
  CHECK(refused.error().free == 1);
  CHECK(a.length() == 0);
  CHECK(engine->stats().free == 4);
  CHECK_THROWS_WITH(engine->step(both), Contains("needs 3 pages, 1 are free"));
  CHECK(engine->try_step({both, 1}));
  CHECK(a.length() == 40);
}
