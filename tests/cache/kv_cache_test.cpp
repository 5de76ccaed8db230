// SPDX-License-Identifier: Apache-2.0

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/facade.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

std::string refusal(Geometry const& geometry, Options<Policies<>> const& options)
{
  auto const made = Cache::create(geometry, options);
  REQUIRE_FALSE(made);
  return made.error().message().text;
}

struct alignas(128) Line {
  std::byte bytes[128];
};

}  // namespace

TEST_CASE("KVCache: what is stored is found again and read back", "[cache][kv_cache]")
{
  Cache cache = make_cache(12);
  Tokens const prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  {
    Sequence const first = prefilled(cache, prompt);
    CHECK(first.length() == 9);
    CHECK(first.cached() == 0);
    CHECK(first.miss() == Miss::never_seen);
  }
  CHECK(cache.stats().sequences == 0);
  CHECK(cache.stats().cached == 2);
  Hit const hit = cache.probe({.tokens = prompt});
  CHECK(hit.rows == 8);
  Sequence const second = prefilled(cache, prompt);  // reads all rows, cached ones included
  CHECK(second.cached() == 8);
  CHECK(second.miss() == Miss::last_token);

  Tokens const half{1, 2, 3, 4, 5, 6, 70, 80};
  Sequence const third = prefilled(cache, half);
  CHECK(third.cached() == 6);
  CHECK(third.miss() == Miss::partial);
  CHECK(cache.pages(third)[0] == cache.pages(second)[0]);
  CHECK(cache.pages(third)[1] != cache.pages(second)[1]);
  CHECK(cache.holders(cache.pages(third)[0]) == 3);
  CHECK(cache.check_invariants());
}

TEST_CASE("KVCache: fork, write on both sides, truncate, write again", "[cache][kv_cache]")
{
  Cache cache = make_cache(12);
  Tokens history{1, 2, 3, 4, 5, 6};
  Sequence const a = prefilled(cache, history);
  auto forked = cache.fork(a);
  REQUIRE(forked);
  CHECK(forked->length() == 6);
  CHECK(forked->cached() == 6);
  Tokens other = history;
  append(cache, *forked, {70, 71, 72}, other);
  append(cache, a, {7, 8, 9, 10}, history);
  append(cache, *forked, {73}, other);

  auto const kept = cache.truncate(*forked, 7);
  REQUIRE(kept);
  CHECK(*kept == 7);
  other.resize(7);
  append(cache, *forked, {90, 91}, other);
  append(cache, a, {11}, history);
  CHECK(cache.check_invariants());
}

TEST_CASE("KVCache: a batch of prefill, decode and draft in one step", "[cache][kv_cache]")
{
  Cache cache = make_cache(16);
  Tokens const decode_history{1, 2, 3, 4, 5};
  Tokens const draft_history{11, 12, 13};
  Sequence const decode = prefilled(cache, decode_history);
  Sequence const draft = prefilled(cache, draft_history);
  auto prefill = cache.open({.tokens = Tokens{21, 22, 23, 24, 25, 26}});
  REQUIRE(prefill);
  Tokens const chunk{21, 22, 23, 24, 25, 26};
  Tokens const one{6};
  Tokens const drafted{14, 15, 16};
  auto step = cache.prepare({{*prefill, chunk}, {decode, one}, {draft, drafted, 0, true}});
  REQUIRE(step);
  auto const kv = step->view();
  run_kernels(kv, {21, 22, 23, 24, 25, 26, 6, 14, 15, 16});
  CHECK(kv.num_chunks() == 3);
  CHECK(count_wrong(kv, 5, chunk) == 0);
  CHECK(count_wrong(kv, 2, {21, 22, 23}) == 0);  // causal: within the chunk too
  CHECK(count_wrong(kv, 6, {1, 2, 3, 4, 5, 6}) == 0);
  CHECK(count_wrong(kv, 9, {11, 12, 13, 14, 15, 16}) == 0);
  REQUIRE(step->commit(std::vector<Index>{6, 1, 2}));
  CHECK(prefill->length() == 6);
  CHECK(decode.length() == 6);
  CHECK(draft.length() == 5);
  CHECK(cache.check_invariants());
}

TEST_CASE("KVCache: of two equal prompts of a step that attaches the second computes what it must",
          "[cache][kv_cache]")
{
  Cache cache = make_cache(16);
  Tokens const prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  auto a = cache.open({.tokens = prompt});
  auto b = cache.open({.tokens = prompt});
  REQUIRE((a && b));
  auto step = cache.prepare({{*a, prompt}, {*b, prompt}}, {}, {.attach = true});
  REQUIRE(step);
  auto const kv = step->view();
  Tokens computed;
  for (StepToken const token : step->tokens()) {
    computed.push_back(token.token);
  }
  CHECK(computed == Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 9});
  run_kernels(kv, computed);
  CHECK(count_wrong(kv, 8, prompt) == 0);
  CHECK(count_wrong(kv, 9, prompt) == 0);
  REQUIRE(step->commit());
  CHECK(b->length() == 9);
  CHECK(cache.pages(*a)[1] == cache.pages(*b)[1]);
  CHECK(cache.stats().held == 4);
  CHECK(cache.stats().attached_rows == 8);
  CHECK(cache.check_invariants());
}

TEST_CASE("KVCache: two equal drafts of one step share afterwards, and both read right",
          "[cache][kv_cache]")
{
  Cache cache = make_cache(16);
  Tokens const prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  auto a = cache.open({.tokens = prompt});
  auto b = cache.open({.tokens = prompt});
  REQUIRE((a && b));
  auto step = cache.prepare({{*a, prompt, 0, true}, {*b, prompt, 0, true}});
  REQUIRE(step);
  Tokens both = prompt;
  both.insert(both.end(), prompt.begin(), prompt.end());
  run_kernels(step->view(), both);
  REQUIRE(step->commit());
  CHECK(cache.pages(*a)[1] == cache.pages(*b)[1]);
  CHECK(cache.stats().held == 4);
  Tokens history_a = prompt;
  Tokens history_b = prompt;
  append(cache, *b, {10}, history_b);  // through the table that the delta mended
  append(cache, *a, {11}, history_a);
}

TEST_CASE("KVCache: create names the field that cannot work", "[cache][kv_cache]")
{
  CHECK(refusal({.layers = 0, .kv_heads = 2}, {.pages = 4}) ==
        "layers = 0 (bad configuration): must be 1 to 4096");
  CHECK(refusal({.layers = 2, .kv_heads = 2, .head_dim = 16}, {.pages = 4}) ==
        "head_dim = 16 (bad configuration): must be 0 or what the layout fixes, 8");
  CHECK(refusal(small_model, {.pages = 0}) == "pages = 0 (bad configuration): must be at least 1");
  CHECK(refusal(small_model, {.pages = 4, .max_sequences = 0}) ==
        "max_sequences = 0 (bad configuration): must be 1 to 1048576");
  CHECK(refusal(small_model, {.pages = 4, .max_step_tokens = -1}) ==
        "max_step_tokens = -1 (bad configuration): must be 1 to 16777216");
  CHECK(
    refusal({.layers = 4096, .kv_heads = 4096}, {.pages = 300}) ==
    "pages = 300 (bad configuration): pages x layers x kv_heads must fit 32 bits, so at most 254");
}

TEST_CASE("KVCache: pages live in the caller's memory where it is given", "[cache][kv_cache]")
{
  std::size_t const bytes = 7 * 4 * 256;
  std::vector<Line> memory(bytes / sizeof(Line));
  std::byte* const data = memory.data()->bytes;
  {
    auto made =
      Cache::create(small_model, {.pages = 6, .max_sequences = 2, .storage = {data, bytes}});
    REQUIRE(made);
    CHECK(made->footprint().pool_bytes(6) == bytes);
    Tokens const prompt{1, 2, 3};
    Sequence const a = prefilled(*made, prompt);
    auto const* const first = reinterpret_cast<float const*>(data + made->footprint().page_bytes() *
                                                                      made->pages(a)[0].value);
    CHECK(*first == stamp(1, 0, 0, 0));
  }
  *data = std::byte{1};  // still ours
  CHECK(refusal(small_model, {.pages = 6, .storage = {data, bytes - 1}}) ==
        "storage.bytes = 7167 (bad configuration): must be at least 7168");
}

TEST_CASE("KVCache: a device that has no memory is an error, and nothing leaks",
          "[cache][kv_cache]")
{
  for (int const succeed : {0, 1, 2}) {
    kvcache_test::CountingDevice device;
    device.fail_after = succeed;
    {
      auto const made = Cache::create(small_model, {.pages = 6, .device = &device});
      CHECK(made.has_value() == (succeed == 2));
      CHECK((made || made.error().why == Why::no_memory));
    }
    CHECK(device.live_blocks() == 0);
    CHECK(device.wrong_frees == 0);
  }
}

TEST_CASE("KVCache: two caches that make the same calls have one digest", "[cache][kv_cache]")
{
  Cache first = make_cache(12);
  Cache second = make_cache(12);
  for (Cache* const cache : {&first, &second}) {
    Tokens const prompt{1, 2, 3, 4, 5};
    (void)prefilled(*cache, prompt);
  }
  CHECK(first.digest() == second.digest());
  first.forget({});
  CHECK(first.digest() != second.digest());
  CHECK(first.probe({.tokens = Tokens{1, 2, 3, 4, 5}}).rows == 0);
  CHECK(first.geometry().head_dim == 8);
  CHECK(first.geometry().page_tokens == 4);
}
