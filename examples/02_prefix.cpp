// SPDX-License-Identifier: Apache-2.0
// Who shares what: three chats with one system prompt, another tenant, two answers by fork, and an eviction.
// A token is a character here and a page holds 8: every figure can be counted by hand.
// Read first: include/kvcache/prefix/radix_tree.hpp, then include/kvcache/control/control.hpp.

#include <kvcache/kvcache.hpp>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using Cache = kvcache::KVCache<kvcache::PagedHeads<kvcache::half, 64, 8>>;
using Tokens = std::vector<kvcache::Token>;

Tokens tokens_of(std::string const& text)
{
  return {text.begin(), text.end()};
}

bool all_as_expected = true;
void expect(char const* what, long got, long want)
{
  if (got != want) {
    std::printf("!! %s is %ld, not %ld\n", what, got, want);
    all_as_expected = false;
  }
}

/// One step that computes `tokens` of `sequence`. An engine runs its kernels over `step->view()` before the commit.
void compute(Cache& cache, kvcache::Sequence const& sequence, Tokens const& tokens)
{
  auto step = cache.prepare({{sequence, tokens}});
  expect("steps refused", step ? 0 : 1, 0);
  step->commit();
}

/// Opens `system` and `question`, computes what is not cached, prints a line.
kvcache::Sequence ask(Cache& cache,
                      std::string const& system,
                      std::string const& question,
                      int want_cached,
                      kvcache::Domain const* domain = nullptr)
{
  Tokens const prompt = tokens_of(system + question);
  kvcache::Hit const hit = cache.probe({.tokens = prompt, .domain = domain});
  auto sequence = cache.open({.tokens = prompt, .domain = domain});
  auto const cached = sequence->cached();
  compute(cache, *sequence, Tokens(prompt.begin() + cached, prompt.end()));
  std::printf("%-22.22s %6zu %6d %6d %5u  %s\n",
              question.c_str(),
              prompt.size(),
              cached,
              hit.shared_rows,
              sequence->info().pages,
              name(sequence->miss()));
  expect("cached", cached, want_cached);
  expect("what probe foresaw", hit.rows, cached);
  return std::move(*sequence);
}

void print_pages(Cache const& cache, char const* what, kvcache::Sequence const& sequence)
{
  std::printf("%-12s", what);
  for (kvcache::PageId const page : cache.pages(sequence)) {
    std::printf(" %2u(x%u)", page.value, cache.holders(page));
  }
  std::printf("\n");
}

void print_totals(Cache const& cache)
{
  kvcache::Stats const s = cache.stats();
  std::printf(
    "pages: %u held + %u cached + %u free = %u\n\n", s.held, s.cached, s.free, s.capacity);
}

}  // namespace

int main()
{
  auto made = Cache::create({.layers = 2, .kv_heads = 2}, {.pages = 24, .max_sequences = 8});
  Cache& cache = *made;
  std::string const kind = "You are brief and kind.\n";  // 24 characters: three pages

  std::printf(
    "%-22s %6s %6s %6s %5s  %s\n", "prompt", "tokens", "cached", "shared", "pages", "why not more");
  {
    auto a = ask(cache, kind, "What is a KV cache?", 0);
    auto b = ask(cache, kind, "Tell me a joke.", 24);
    auto c = ask(cache, kind, "What is a page table?", 24 + 10);  // to "What is a ", inside a page
    expect("held", cache.stats().held, 6 + 2 + 2);
    print_totals(cache);
  }
  std::printf("all three ended, what they published stays; a second tenant sees none of it:\n");
  ask(cache, kind, "What is a KV cache?", 40);
  kvcache::Domain const tenant({.salt = "tenant 7"});
  ask(cache, kind, "What is a KV cache?", 0, &tenant);
  print_totals(cache);

  std::printf("two answers from one prompt; page(xholders), the tree is one of them:\n");
  auto red = ask(cache, kind, "Name a colour:", 24);
  auto green = cache.fork(red);
  print_pages(cache, "before", red);
  auto const copied = cache.stats().copied_pages;
  compute(cache, red, tokens_of(" red"));  // the first to write copies the page in its middle
  compute(cache, *green, tokens_of(" sea green"));
  print_pages(cache, "red", red);
  print_pages(cache, "sea green", *green);
  expect("copies", static_cast<long>(cache.stats().copied_pages - copied), 1);
  print_totals(cache);

  std::printf("a long prompt takes the room of what nobody uses:\n");
  ask(cache, "", std::string(120, 'x'), 0).close();
  ask(cache, kind, "Tell me a joke.", 24);
  print_totals(cache);
  return all_as_expected && cache.check_invariants() ? 0 : 1;
}
