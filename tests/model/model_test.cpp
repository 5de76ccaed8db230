// SPDX-License-Identifier: Apache-2.0
// Random calls on a real cache against the naive model. KVCACHE_MODEL_OPS sets how many operations (default
// 2,000,000), KVCACHE_MODEL_FIRST the first seed, KVCACHE_MODEL_SEED replays one seed, KVCACHE_MODEL_SCRIPT the listing in
// a file (with the seed's setting).

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <string>

#include "model/operation.hpp"
#include "model/script.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace kvcache_test;

namespace {

constexpr std::size_t script_length = 400;

/// What a child process tells: it stays readable when the child crashes.
struct Shared {
  std::uint64_t seed;
  bool broken;
  Tally tally;
};

/// Runs seeds in a child. Returns the first that breaks, if one does.
std::optional<std::uint64_t> run_seeds(std::uint64_t from, std::uint64_t to, Tally& tally)
{
  auto* const shared = static_cast<Shared*>(
    ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(shared != MAP_FAILED);
  ::new (static_cast<void*>(shared)) Shared{};
  ::fflush(nullptr);
  pid_t const child = ::fork();
  if (child == 0) {
    be_a_child();
    for (std::uint64_t seed = from; seed < to; ++seed) {
      shared->seed = seed;
      shared->broken =
        !verdict_of(setting_of(seed), script_of(seed, script_length), shared->tally).empty();
      if (shared->broken) {
        break;
      }
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  bool const crashed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  std::optional<std::uint64_t> const failed =
    shared->broken || crashed ? std::optional(shared->seed) : std::nullopt;
  tally = shared->tally;
  ::munmap(shared, sizeof(Shared));
  return failed;
}

std::string report(std::uint64_t seed, Script const& script)
{
  Setting const s = setting_of(seed);
  Script const small = shrunk(s, script);
  return "KVCACHE_MODEL_SEED=" + std::to_string(seed) + " breaks: pool of " +
         std::to_string(s.pages) + " pages of " + std::to_string(s.page_tokens) + " tokens, " +
         std::to_string(s.max_sequences) + " sequences of at most " + std::to_string(s.longest()) +
         " tokens, " + std::to_string(s.max_step_tokens) + " tokens a step\nshrunk from " +
         std::to_string(script.size()) + " to " + std::to_string(small.size()) + " operations:\n" +
         listing_of(s, small);
}

}  // namespace

TEST_CASE("KVCache: random calls agree with the naive model", "[model][kv_cache]")
{
  if (auto const seed = number_from("KVCACHE_MODEL_SEED")) {
    Script script = script_of(*seed, script_length);
    if (char const* const path = std::getenv("KVCACHE_MODEL_SCRIPT")) {
      std::ifstream file(path);
      script = parse({std::istreambuf_iterator<char>(file), {}});
    }
    std::string const verdict = verdict_apart(setting_of(*seed), script);
    INFO(verdict << "\n" << (verdict.empty() ? "" : report(*seed, script)));
    REQUIRE(verdict.empty());
    return;
  }
  std::uint64_t const wanted = number_from("KVCACHE_MODEL_OPS").value_or(2'000'000);
  std::uint64_t const seeds = (wanted + script_length - 1) / script_length;
  std::uint64_t const first_seed = number_from("KVCACHE_MODEL_FIRST").value_or(1);
  Tally tally;
  std::optional<std::uint64_t> const failed = run_seeds(first_seed, first_seed + seeds, tally);
  std::printf(
    "model: seeds %llu to %llu, %llu operations: %llu opens, %llu rows hit (%llu hits end inside a "
    "page), "
    "%llu rows planned, %llu commits, %llu copies, %llu pages evicted, %llu merged, %llu "
    "shortages, %llu drops, "
    "%llu fails, %llu sequences closed in a step\n",
    static_cast<unsigned long long>(first_seed),
    static_cast<unsigned long long>(first_seed + seeds - 1),
    static_cast<unsigned long long>(tally.operations),
    static_cast<unsigned long long>(tally.opens),
    static_cast<unsigned long long>(tally.hit_rows),
    static_cast<unsigned long long>(tally.part_hits),
    static_cast<unsigned long long>(tally.planned_rows),
    static_cast<unsigned long long>(tally.commits),
    static_cast<unsigned long long>(tally.copies),
    static_cast<unsigned long long>(tally.evicted),
    static_cast<unsigned long long>(tally.merged),
    static_cast<unsigned long long>(tally.shortages),
    static_cast<unsigned long long>(tally.drops),
    static_cast<unsigned long long>(tally.fails),
    static_cast<unsigned long long>(tally.orphans));
  INFO((failed ? report(*failed, script_of(*failed, script_length)) : std::string()));
  REQUIRE_FALSE(failed.has_value());
  CHECK(tally.operations >= wanted);
  if (wanted >= 100'000) {  // the run was not idle
    for (std::uint64_t const count : {tally.hit_rows,
                                      tally.part_hits,
                                      tally.copies,
                                      tally.evicted,
                                      tally.merged,
                                      tally.shortages,
                                      tally.drops,
                                      tally.fails,
                                      tally.orphans}) {
      CHECK(count >= 100);
    }
  }
}
