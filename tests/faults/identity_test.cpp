// SPDX-License-Identifier: Apache-2.0
// Faults of section 1: what may match what. The tree alone is tried in tests/prefix/faults_test.cpp.

#include <kvcache/kvcache.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "faults/verify.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

TEST_CASE("B-001 a guessable key: other tokens with an equal key hit nothing", "[faults][identity]")
{
  verify(
    [](auto& cache) {
      cache.cache({1, 2, 3, 4});
      return cache.hit({9, 9, 9, 4, 5}) == 0 && cache.hit({1, 2, 3, 4, 5}) == 4;
    },
    Bug::trusts_a_weak_key);
}

TEST_CASE("B-001 a guessable key: the secret seed of the tables changes no answer",
          "[faults][identity]")
{
  auto const answer = [](std::uint64_t seed) {
    kvcache::Options<kvcache::Policies<>> options;
    options.pages = 8;
    options.prefix.seed = seed;
    auto cache = RealCache::Cache::create({.layers = 1, .kv_heads = 1}, options);
    Text const text = range(1, 12);
    auto s = cache->open({.tokens = text});
    auto step = cache->prepare({{*s, text}});
    (void)step->commit();
    CHECK(cache->probe({.tokens = text}).rows == 11);
    return cache->digest();
  };
  CHECK(answer(1) == answer(0x123456789abcdefULL));
}

namespace {

using Adapters = std::vector<kvcache::Adapter>;

/// Domains as the library makes them.
struct OwnDomains {
  static kvcache::Domain make(Adapters const& adapters, char const* salt)
  {
    return kvcache::Domain({.model = "m",
                            .weights = {},
                            .salt = salt == nullptr ? std::string_view{} : std::string_view{salt},
                            .adapters = adapters});
  }
};
/// The fault of B-003: names are appended to one string.
struct BareStrings {
  static kvcache::Domain make(Adapters const& adapters, char const* salt)
  {
    std::string all;
    for (kvcache::Adapter const& adapter : adapters) {
      all += adapter.name;
    }
    all += salt == nullptr ? "" : salt;
    return kvcache::Domain({.model = "m", .weights = {}, .salt = all, .adapters = {}});
  }
};
/// The fault of B-005: the request's adapters are not looked at.
struct NoAdapters {
  static kvcache::Domain make(Adapters const&, char const* salt)
  {
    return OwnDomains::make({}, salt);
  }
};

/// Rows that a prompt of domain `asks` hits after one of domain `writes` was cached.
kvcache::Index shared(kvcache::Domain const& writes, kvcache::Domain const& asks)
{
  kvcache::Options<kvcache::Policies<>> options;
  options.pages = 8;
  auto cache = RealCache::Cache::create({.layers = 1, .kv_heads = 1}, options);
  Text const text = range(1, 8);
  {
    auto s = cache->open({.tokens = text, .domain = &writes});
    auto step = cache->prepare({{*s, text}});
    (void)step->commit();
  }
  Text const longer = range(1, 9);
  return cache->probe({.tokens = longer, .domain = &asks}).rows;
}

template <class Domains>
bool kinds_are_apart()
{
  Adapters const x{{.name = "X"}};
  Adapters const ab{{.name = "ab"}};
  Adapters const a{{.name = "a"}};
  auto const make = &Domains::make;
  return shared(make(x, nullptr), make({}, "X")) == 0 &&
         shared(make(ab, "c"), make(a, "bc")) == 0 &&
         shared(make(x, nullptr), make(x, nullptr)) == 8 &&
         shared(make(ab, "c"), make(ab, "c")) == 8;
}

template <class Domains>
bool adapters_are_apart()
{
  auto const make = [](Adapters const& adapters) { return Domains::make(adapters, nullptr); };
  Adapters const zero{{.name = "0", .scale = 1.0F}};
  Adapters const one{{.name = "1", .scale = 1.0F}};
  Adapters const weak{{.name = "0", .scale = 0.5F}};
  Adapters const both{{.name = "0"}, {.name = "1"}};
  Adapters const turned{{.name = "1"}, {.name = "0"}};
  return shared(make(zero), make(one)) == 0 && shared(make(zero), make(weak)) == 0 &&
         shared(make(zero), make({})) == 0 && shared(make(zero), make(zero)) == 8 &&
         shared(make(both), make(turned)) == 8;
}

}  // namespace

TEST_CASE("B-003 two kinds of extra key share one namespace", "[faults][identity]")
{
  CHECK(kinds_are_apart<OwnDomains>());
  CHECK_FALSE(kinds_are_apart<BareStrings>());
}

TEST_CASE("B-005 a per-request adapter choice is ignored", "[faults][identity]")
{
  CHECK(adapters_are_apart<OwnDomains>());
  CHECK_FALSE(adapters_are_apart<NoAdapters>());
}

TEST_CASE("B-008 an encoding that is blind to where one field ends", "[faults][identity]")
{
  auto const all_differ = [](auto const& make) {
    std::vector<std::string> seen;
    for (auto const& [model, salt] : {std::pair<char const*, char const*>{"ab", "c"},
                                      {"a", "bc"},
                                      {"abc", ""},
                                      {"", "abc"},
                                      {"abc", nullptr},
                                      {nullptr, "abc"}}) {
      seen.push_back(make(model, salt));
    }
    bool differ = true;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        differ = differ && seen[i] != seen[j];
      }
    }
    return differ;
  };
  auto const view = [](char const* text) {
    return text == nullptr ? std::string_view{} : std::string_view{text};
  };
  auto const own = [&](char const* model, char const* salt) {
    return std::string(
      kvcache::Domain({.model = view(model), .weights = {}, .salt = view(salt), .adapters = {}})
        .bytes());
  };
  auto const bare = [&](char const* model, char const* salt) {
    return std::string(view(model)) + std::string(view(salt));
  };
  CHECK(all_differ(own));
  CHECK_FALSE(all_differ(bare));
  // The bytes are a contract between processes: {tag, length, bytes} for each field that is there.
  CHECK(own("ab", "c") == std::string("\1\2\0\0\0\0\0\0\0ab\3\1\0\0\0\0\0\0\0c", 21));
  CHECK(own("ab", "") == std::string("\1\2\0\0\0\0\0\0\0ab\3\0\0\0\0\0\0\0\0", 20));
  CHECK(own("ab", nullptr) == std::string("\1\2\0\0\0\0\0\0\0ab", 11));
}

TEST_CASE("B-010 what another tenant cached shows in no answer", "[faults][identity]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 8), 0);
      bool const nothing = cache.hit(range(1, 9), 1) == 0 && cache.hit(range(21, 29), 1) == 0;
      bool const control = cache.hit(range(1, 9), 0) == 8;  // else the first line proves nothing
      int const s = cache.open(range(1, 9), 1);
      return nothing && control && cache.length(s) == 0;
    },
    Bug::ignores_the_domain);

  // A hit says the same of a prompt that another tenant cached and of one that nobody did, but for the reason,
  // which is for operators. A probe leaves no trace that a later one could read.
  RealCache real;
  real.cache(range(1, 8), 0);
  kvcache::Domain const other({.model = "m", .weights = {}, .salt = "1", .adapters = {}});
  Text const cached = range(1, 8);
  Text const fresh = range(21, 28);
  std::uint64_t const digest = real.cache().digest();
  kvcache::Hit const a = real.cache().probe({.tokens = cached, .domain = &other});
  kvcache::Hit const b = real.cache().probe({.tokens = fresh, .domain = &other});
  CHECK(a.rows == b.rows);
  CHECK(a.shared_rows == b.shared_rows);
  CHECK(a.new_pages == b.new_pages);
  CHECK(real.cache().digest() == digest);
}

// ---- B-011: the same calls name the same things in every process

namespace {

/// What two ranks compare after a fixed script.
std::uint64_t rank_digest()
{
  RealCache cache(6);
  cache.cache(range(1, 8), 0);
  cache.cache(range(1, 4), 1);
  int const s = cache.open(range(1, 9), 0);
  cache.append(s, {9, 10, 11});
  int const f = cache.fork(s);
  cache.append(f, {50, 51});
  return cache.cache().digest();
}

/// Runs this program in a process with another environment and returns the number that one of its tests prints.
std::uint64_t in_another_process(char const* which)
{
  std::string const command = std::string("KVCACHE_OTHER=") + std::string(4000, 'x') +
                              " exec /proc/" + std::to_string(::getpid()) + "/exe '[" + which +
                              "]' 2>/dev/null";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  unsigned long long value = 0;
  char line[256];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    (void)std::sscanf(line, "rank digest %llu", &value);
  }
  ::pclose(pipe);
  return value;
}

}  // namespace

TEST_CASE("rank digest", "[faults][rank_digest]")
{
  std::printf("rank digest %llu\n", static_cast<unsigned long long>(rank_digest()));
  std::fflush(stdout);
  CHECK(rank_digest() != 0);
}
TEST_CASE("rank digest with a seed of the process", "[faults][rank_digest_seeded]")
{
  auto const seed = static_cast<std::uint64_t>(::getpid());
  std::printf("rank digest %llu\n",
              static_cast<unsigned long long>(kvcache::mix(rank_digest(), seed)));
  std::fflush(stdout);
  CHECK(seed != 0);
}

TEST_CASE("B-011 keys differ between processes", "[faults][identity]")
{
  CHECK(in_another_process("rank_digest") == rank_digest());
  auto const own = kvcache::mix(rank_digest(), static_cast<std::uint64_t>(::getpid()));
  CHECK_FALSE(in_another_process("rank_digest_seeded") == own);
}

TEST_CASE("B-014 the index outlives the data", "[faults][identity]")
{
  verify(
    [](auto& cache) {
      cache.cache(range(1, 8));
      int const live = cache.open({1, 2, 3, 4, 9});
      bool right = cache.length(live) == 4 && cache.cached() == 1;
      cache.forget(0);  // new weights
      right = right && cache.hit(range(1, 9)) == 0 && cache.cached() == 0;
      right = right && cache.reads(live);  // what is open keeps its rows
      cache.append(live, {9, 10, 11, 12});
      right = right && cache.reads(live) && cache.hit({1, 2, 3, 4, 9, 10, 11, 12, 13}) == 0;
      cache.close(live);
      return right && cache.free() == 8 && cache.cached() == 0;
    },
    Bug::keeps_forgotten);
}
