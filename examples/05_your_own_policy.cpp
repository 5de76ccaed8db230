// SPDX-License-Identifier: Apache-2.0
// Your own replacement and your own allocator, in your code, against the shipped ones: chats among documents.
// Read first: 05_your_policy.hpp, 05_your_allocator.hpp; then include/kvcache/cache/policies.hpp, how they get in.

#include <kvcache/kvcache.hpp>
#include <kvcache/replace/sieve.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "05_your_allocator.hpp"
#include "05_your_policy.hpp"

namespace {

using Layout = kvcache::PagedHeads<kvcache::half, 64, 16>;
using Tokens = std::vector<kvcache::Token>;

/// How much of the chats' prompts was cached, and of their system prompts alone.
struct Score {
  double hits;
  double system_hits;
  bool sound;
};

/// `count` tokens that no other text has.
Tokens text(std::uint64_t name, std::size_t count)
{
  Tokens out(count);
  for (kvcache::Token& token : out) {
    name = kvcache::mix(name, 1);
    token = static_cast<kvcache::Token>(name % 100'000);
  }
  return out;
}

/// Opens `prompt`, computes what is not cached and `answer` after it. Returns the cached rows.
template <class Cache>
std::size_t serve(Cache& cache, Tokens prompt, Tokens const& answer)
{
  auto sequence = cache.open({.tokens = prompt});
  kvcache::Index const cached = sequence->cached();
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  prompt.erase(prompt.begin(), prompt.begin() + cached);
  cache.prepare({{*sequence, prompt}})->commit();  // an engine would decode token by token
  return static_cast<std::size_t>(cached);
}

/// Eight chats of six turns under three system prompts, in no order; every other request is a document that is read
/// once. Between two turns of a chat come about as many documents as 400 pages hold.
template <class Cache>
Score replay(Cache cache)
{
  struct Chat {
    Tokens text;
    std::size_t system = 0;
    int turns = 0;
  };
  std::array const systems{text(1, 512), text(2, 256), text(3, 768)};
  std::array<Chat, 8> chats;
  std::uint64_t random = 7;
  auto const below = [&random](std::size_t n) {
    random = kvcache::mix(random, 1);
    return static_cast<std::size_t>(random % n);
  };
  std::size_t asked = 0, found = 0, system_asked = 0, system_found = 0;
  for (std::uint64_t request = 100; request < 500; request += 2) {
    serve(cache, text(request, 800 + below(800)), {});
    Chat& chat = chats[below(chats.size())];
    if (chat.turns++ % 6 == 0) {
      Tokens const& system = systems[below(systems.size())];
      chat = {.text = system, .system = system.size(), .turns = 1};
    }
    Tokens const question = text(request + 1, 20 + below(60));
    Tokens const answer = text(request + 1'000'000, 30 + below(90));
    chat.text.insert(chat.text.end(), question.begin(), question.end());
    std::size_t const cached = serve(cache, chat.text, answer);
    asked += chat.text.size();
    found += cached;
    system_asked += chat.system;
    system_found += std::min(chat.system, cached);
    chat.text.insert(chat.text.end(), answer.begin(), answer.end());
  }
  auto const share = [](std::size_t part, std::size_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  return {.hits = share(found, asked),
          .system_hits = share(system_found, system_asked),
          .sound = static_cast<bool>(cache.check_invariants())};
}

/// A cache with these parts; what is not named is the shipped one.
template <class... Parts>
auto cache_of(kvcache::PageCount pages)
{
  using Cache = kvcache::KVCache<Layout, kvcache::Policies<Parts...>>;
  return *Cache::create({.layers = 1, .kv_heads = 1}, {.pages = pages});
}

Score print(char const* name, Score score)
{
  std::printf("%-26s %6.1f %% %14.1f %%\n", name, 100.0 * score.hits, 100.0 * score.system_hits);
  return score;
}

/// How many of a sequence's 40 pages lie in the upper half of 400.
template <class... Parts>
int in_upper_half()
{
  auto cache = cache_of<Parts...>(400);
  Tokens const prompt = text(5, 640);
  auto sequence = cache.open({.tokens = prompt});
  cache.prepare({{*sequence, prompt}})->commit();
  auto const pages = cache.pages(*sequence);
  return static_cast<int>(
    std::count_if(pages.begin(), pages.end(), [](auto page) { return page.value > 200; }));
}

}  // namespace

int main()
{
  std::printf("%-26s %8s %16s\n", "found of the prompts of", "chats", "system prompts");
  Score const lru = print("LRU (shipped)", replay(cache_of<>(400)));
  Score const sieve = print("SIEVE (shipped)", replay(cache_of<kvcache::Sieve>(400)));
  Score const mine = print("KeepAskedAgain", replay(cache_of<KeepAskedAgain>(400)));
  Score const both = print("  and BothHalves", replay(cache_of<BothHalves, KeepAskedAgain>(400)));
  int const shipped = in_upper_half<>();
  int const halves = in_upper_half<BothHalves>();
  std::printf(
    "of 40 pages of a sequence, the upper half of the pool has %d (PageAllocator) and %d "
    "(BothHalves)\n",
    shipped,
    halves);
  bool const sound = lru.sound && sieve.sound && mine.sound && both.sound;
  bool const gains = mine.hits > lru.hits + 0.1 && mine.system_hits > lru.system_hits;
  bool const equal = both.hits >= mine.hits && both.hits <= mine.hits;
  return sound && gains && equal && shipped == 0 && halves == 20 ? 0 : 1;
}
