// SPDX-License-Identifier: Apache-2.0
#include "llama/batch.hpp"

#include <vector>

#include "fixture.hpp"
#include "llama/error.hpp"
#include "support/catch.hpp"

using kvcache_test::Contains;
using llama_test::Ids;
using llama_test::recall_runner;
using llama_test::text_of;

TEST_CASE("run_batch: a pool too small for all costs rows, never a token", "[llama][batch]")
{
  auto runner = recall_runner();
  std::vector<Ids> prompts;
  for (std::size_t i = 0; i < 5; ++i) {
    prompts.push_back(text_of(runner, 40 + 3 * i, 20 + i));
  }
  llama::BatchOptions const options{.tokens = 30, .step_tokens = 24};
  for (int const page_tokens : {1, 4, 16}) {
    std::uint32_t const alone = llama::pages_for(52 + 29, page_tokens);
    auto const run = [&](std::uint32_t pages, std::uint64_t& rows) {
      auto const engine = runner.engine(llama::KvType::f16, pages, page_tokens);
      auto batch = llama::run_batch(*engine, prompts, options);
      rows = engine->stats().planned_rows + engine->stats().attached_rows;
      CHECK(engine->stats().sequences == 0);
      CHECK(engine->check_invariants());
      return batch;
    };
    std::uint64_t enough = 0;
    auto const large = run(6 * alone + 6, enough);
    CHECK(large.most_running == 5);
    CHECK(large.suspensions == 0);
    CHECK(large.first.why == kvcache::Why::ok);
    std::size_t suspensions = 0;
    for (std::uint32_t const pages : {alone, alone * 3 / 2, alone * 2, alone * 5 / 2}) {
      CAPTURE(page_tokens, pages);
      std::uint64_t rows = 0;
      auto const small = run(pages, rows);
      CHECK(small.answers == large.answers);
      CHECK(small.most_running < 5);
      CHECK(rows == enough + small.rows_recomputed);
      CHECK((small.first.why == kvcache::Why::no_pages) == (small.suspensions > 0));
      CHECK(small.first.need >= (small.suspensions > 0 ? 1U : 0U));
      suspensions += small.suspensions;
    }
    CHECK(suspensions > 0);
  }
}

TEST_CASE("run_batch: a request that no pool state can hold is refused at once", "[llama][batch]")
{
  auto runner = recall_runner();
  auto const engine = runner.engine(llama::KvType::f16, 4);
  std::vector<Ids> const prompts{text_of(runner, 20), text_of(runner, 50)};
  llama::BatchOptions const options{.tokens = 16, .step_tokens = 64};
  CHECK_THROWS_WITH(llama::run_batch(*engine, prompts, options),
                    Contains("65 rows takes 5 pages; the pool has 4"));
  CHECK(engine->stats().sequences == 0);
}
