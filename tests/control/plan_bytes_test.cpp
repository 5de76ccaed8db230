// SPDX-License-Identifier: Apache-2.0

#include <kvcache/control/plan_bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/random_plan.hpp"

namespace {

using namespace kvcache;

/// One of everything.
Plan small_plan()
{
  Plan plan;
  plan.step = StepId{0x0102030405060708};
  plan.stream = StreamId{1};
  plan.slot = 4;
  plan.tables = {{RowId{3}, 2, 2, 0}};
  plan.ids = {PageId{17}, PageId{0x12345678}};
  plan.moves = {{PageId{17}, PageId{18}, 3, 1}};
  plan.copies = {{PageId{4}, PageId{18}, 5}};
  plan.parents = {-1, 0};
  plan.chunks = {{SequenceId{9, 2}, RowId{3}, 40, 2, 0, 0}, {SequenceId{1, 1}, RowId{0}, 7, 1, 6}};
  return plan;
}

std::vector<std::byte> bytes_of(Plan const& plan)
{
  std::vector<std::byte> out;
  REQUIRE(serialise(plan, out));
  return out;
}

/// The field and the figures of a refusal.
struct Refusal {
  std::string field;
  std::int64_t value;
  std::int64_t limit;
  friend bool operator==(Refusal const&, Refusal const&) = default;
};

Refusal refusal(std::span<std::byte const> bytes)
{
  Plan plan = small_plan();
  auto const parsed = parse_plan(bytes, plan);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().why == Why::bad_config);
  CHECK(plan == small_plan());  // unchanged
  return {parsed.error().field, parsed.error().value, parsed.error().limit};
}

void put_u32(std::vector<std::byte>& bytes, std::size_t at, std::uint32_t x)
{
  for (std::size_t i = 0; i < 4; ++i) {
    bytes[at + i] = static_cast<std::byte>(x >> (8 * i));
  }
}

}  // namespace

TEST_CASE("plan_bytes: the bytes of a plan are these", "[control][plan_bytes]")
{
  constexpr std::uint8_t golden[] = {
    'K',  'V',  'P',  'L',  1,    0,    0,    0,     // magic, version
    8,    7,    6,    5,    4,    3,    2,    1,     // step
    1,    0,    0,    0,    4,    0,    0,    0,     // stream, slot
    1,    0,    0,    0,    2,    0,    0,    0,     // tables, ids
    1,    0,    0,    0,    1,    0,    0,    0,     // moves, copies
    2,    0,    0,    0,    2,    0,    0,    0,     // parents, chunks
    3,    0,    0,    0,    2,    0,    0,    0,     // row 3, from 2
    2,    0,    0,    0,    0,    0,    0,    0,     // two entries, ids from 0
    17,   0,    0,    0,    0x78, 0x56, 0x34, 0x12,  // ids
    17,   0,    0,    0,    18,   0,    0,    0,     // move from page 17 to 18
    3,    0,    0,    0,    1,    0,    0,    0,     // row 3 to 1
    4,    0,    0,    0,    18,   0,    0,    0,     // copy page 4 to 18
    5,    0,    0,    0,                             // rows
    0xff, 0xff, 0xff, 0xff, 0,    0,    0,    0,     // parents
    9,    0,    0,    0,    2,    0,    0,    0,     // sequence 9.2
    3,    0,    0,    0,    40,   0,    0,    0,     // row, first index
    2,    0,    0,    0,    0,    0,    0,    0,     // tokens, slack
    0,    0,    0,    0,                             // parents from 0
    1,    0,    0,    0,    1,    0,    0,    0,     // sequence 1.1
    0,    0,    0,    0,    7,    0,    0,    0,     // row, first index
    1,    0,    0,    0,    6,    0,    0,    0,     // tokens, slack
    0xff, 0xff, 0xff, 0xff                           // no tree
  };
  auto const all = std::as_bytes(std::span(golden));
  std::vector<std::byte> const want(all.begin(), all.end());
  CHECK(bytes_of(small_plan()) == want);
  CHECK(plan_bytes(small_plan()) == want.size());
  auto const parsed = parse_plan(want);
  REQUIRE(parsed);
  CHECK(*parsed == small_plan());
}

TEST_CASE("plan_bytes: plans come back as they were, into used memory too", "[control][plan_bytes]")
{
  constexpr std::uint64_t seed = 2026;
  CAPTURE(seed);
  kvcache_test::Random random(seed);
  ControlOptions sizes{.pages = 40, .page_tokens = 4, .max_sequences = 9, .max_step_tokens = 60};
  REQUIRE(sizes.complete().why == Why::ok);
  std::vector<std::byte> bytes;
  Plan again;
  for (int i = 0; i < 300; ++i) {
    Plan const plan = i == 0 ? Plan{} : kvcache_test::random_plan(random, sizes);
    REQUIRE(serialise(plan, bytes));
    REQUIRE(bytes.size() == plan_bytes(plan));
    REQUIRE(parse_plan(bytes, again));
    REQUIRE(again == plan);
  }
}

TEST_CASE("plan_bytes: bytes that end early or late are refused", "[control][plan_bytes]")
{
  std::vector<std::byte> bytes = bytes_of(small_plan());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    // A vector of its own, so that a sanitizer sees a read past the end.
    std::vector<std::byte> const part(bytes.begin(),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(size));
    Refusal const told = refusal(part);
    if (size < 48) {
      CHECK(told == Refusal{"plan bytes", static_cast<std::int64_t>(size), 48});
    }
  }
  auto const size = static_cast<std::int64_t>(bytes.size());
  bytes.push_back(std::byte{0});
  CHECK(refusal(bytes) == Refusal{"plan bytes", size + 1, size});
  bytes.resize(bytes.size() + 30);
  CHECK(refusal(bytes) == Refusal{"plan bytes", size + 31, size});
}

TEST_CASE("plan_bytes: a refusal names the field and what would be right", "[control][plan_bytes]")
{
  std::vector<std::byte> const good = bytes_of(small_plan());
  auto const with = [&](std::size_t at, std::uint32_t x) {
    std::vector<std::byte> bytes = good;
    put_u32(bytes, at, x);
    return refusal(bytes);
  };
  CHECK(with(0, 5) == Refusal{"plan.magic", 5, 0x4c50564b});
  CHECK(with(4, 2) == Refusal{"plan.version", 2, 1});
  CHECK(with(4, 0) == Refusal{"plan.version", 0, 1});
  std::int64_t const body = static_cast<std::int64_t>(good.size()) - 48;
  for (std::uint32_t const x : {1000U, nil, nil / 16 + 2}) {  // the last one wraps 32 bits
    CHECK(with(24, x) == Refusal{"plan.tables", x, body / 16});
    CHECK(with(28, x) == Refusal{"plan.ids", x, (body - 16) / 4});
    CHECK(with(32, x) == Refusal{"plan.moves", x, (body - 24) / 16});
    CHECK(with(36, x) == Refusal{"plan.copies", x, (body - 40) / 12});
    CHECK(with(40, x) == Refusal{"plan.parents", x, (body - 52) / 4});
    CHECK(with(44, x) == Refusal{"plan.chunks", x, (body - 60) / 28});
  }
  CHECK(with(44, 1).field == "plan bytes");  // a chunk is left over
  CHECK(std::string(parse_plan(std::span(good).first(48 + 16 + 7)).error().message().text) ==
        "plan.ids = 2 (bad configuration): is more than the bytes hold, which is at most 1");
}
