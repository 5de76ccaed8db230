// SPDX-License-Identifier: Apache-2.0

#include "fuzz/plan_bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/random_plan.hpp"

namespace {

using namespace kvcache;
using kvcache_test::Fate;
using kvcache_test::PlanFuzz;
using kvcache_test::Random;

std::vector<std::byte> bytes_of_plan(Plan const& plan)
{
  std::vector<std::byte> out;
  REQUIRE(serialise(plan, out));
  return out;
}

/// How often each fate was met.
struct Fates {
  int refused_by_parse = 0;
  int refused_by_pool = 0;
  int applied = 0;

  void count(Fate fate)
  {
    ++(fate == Fate::applied           ? applied
       : fate == Fate::refused_by_pool ? refused_by_pool
                                       : refused_by_parse);
  }
};

/// As a fuzzer does it: some bytes changed, a number made extreme, a part cut out, put in, or put twice.
void mutate(std::vector<std::byte>& bytes, Random& random)
{
  auto const place = [&] {
    return static_cast<std::ptrdiff_t>(random.below(static_cast<std::uint32_t>(bytes.size())));
  };
  for (std::uint32_t n = random.between(1, 3); n > 0 && !bytes.empty(); --n) {
    switch (random.below(5)) {
      case 0:
        bytes[static_cast<std::size_t>(place())] = static_cast<std::byte>(random.below(256));
        break;
      case 1: {
        constexpr std::uint32_t extremes[] = {
          0, 1, 2, 12, 13, 63, 64, 65, 0x7fffffff, 0x80000000, nil - 1, nil};
        std::uint32_t const x = extremes[random.below(12)];
        std::size_t const at = static_cast<std::size_t>(place()) / 4 * 4;
        for (std::size_t i = 0; i < 4 && at + i < bytes.size(); ++i) {
          bytes[at + i] = static_cast<std::byte>(x >> (8 * i));
        }
        break;
      }
      case 2:
        bytes.resize(static_cast<std::size_t>(place()));
        break;
      case 3:
        bytes.insert(bytes.begin() + place(), random.between(1, 30), std::byte{0});
        break;
      default: {
        std::vector<std::byte> const tail(bytes.begin() + place(), bytes.end());
        bytes.insert(bytes.end(), tail.begin(), tail.end());
      }
    }
  }
}

}  // namespace

TEST_CASE("plan_bytes: whatever byte of a plan is changed, nothing is written outside a pool",
          "[fuzz][plan_bytes]")
{
  constexpr std::uint64_t seed = 90;
  CAPTURE(seed);
  Random random(seed);
  PlanFuzz fuzz;
  Fates fates;
  for (int i = 0; i < 3; ++i) {
    std::vector<std::byte> bytes = bytes_of_plan(kvcache_test::random_plan(random, fuzz.sizes));
    REQUIRE(fuzz.run(bytes) == nullptr);
    REQUIRE(fuzz.fate == Fate::applied);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (unsigned const flip : {0x01U, 0x80U, 0xffU}) {
        CAPTURE(at, flip);
        bytes[at] ^= static_cast<std::byte>(flip);
        char const* const wrong = fuzz.run(bytes);
        INFO((wrong != nullptr ? wrong : ""));
        REQUIRE(wrong == nullptr);
        fates.count(fuzz.fate);
        bytes[at] ^= static_cast<std::byte>(flip);
      }
    }
  }
  CHECK(fates.refused_by_parse > 20);
  CHECK(fates.refused_by_pool > 100);
  CHECK(fates.applied > 100);
}

TEST_CASE("plan_bytes: 20,000 mutations of plans, and random bytes, harm nothing",
          "[fuzz][plan_bytes]")
{
  constexpr std::uint64_t seed = 91;
  CAPTURE(seed);
  Random random(seed);
  PlanFuzz fuzz;
  Fates fates;
  std::vector<std::byte> bytes;
  for (int i = 0; i < 20000; ++i) {
    CAPTURE(i);
    if (random.below(10) == 0) {
      bytes.resize(random.below(200));
      for (std::byte& b : bytes) {
        b = static_cast<std::byte>(random.below(256));
      }
    } else {
      bytes = bytes_of_plan(kvcache_test::random_plan(random, fuzz.sizes));
      mutate(bytes, random);
    }
    char const* const wrong = fuzz.run(bytes);
    INFO((wrong != nullptr ? wrong : ""));
    REQUIRE(wrong == nullptr);
    fates.count(fuzz.fate);
  }
  CHECK(fates.refused_by_parse > 1000);
  CHECK(fates.refused_by_pool > 1000);
  CHECK(fates.applied > 500);
  CHECK(LLVMFuzzerTestOneInput(nullptr, 0) == 0);
}
