// SPDX-License-Identifier: Apache-2.0
// Against double precision: every element type, head size, page size, group, chunk and split, on every path.

#include <kvcache/core/dtype.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "attention/attention_checks.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/paged_pool.hpp"

using namespace kvcache_test;
using kvcache::AttentionOptions;
using kvcache::AttentionShape;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PagedHeads;

namespace {

constexpr std::uint64_t seed = 20260729;
constexpr double tolerance = 1e-5;

struct Case {
  std::int32_t head_dim;
  std::int32_t page_tokens;
  std::int32_t group;
  std::int32_t kv_heads;
  std::vector<Index> lengths;
  std::vector<StepChunk> chunks;
  AttentionOptions options;
};

template <class List>
auto pick(std::mt19937_64& random, List const& list)
{
  return list[std::uniform_int_distribution<std::size_t>(0, std::size(list) - 1)(random)];
}

/// A case whose double precision reference costs at most some tens of milliseconds.
Case random_case(std::mt19937_64& random)
{
  static constexpr std::int32_t dims[] = {8, 16, 24, 64, 72, 80, 96, 128, 192, 256};
  static constexpr std::int32_t pages[] = {1, 4, 16, 64, 256};
  static constexpr std::int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 71};
  static constexpr Index lengths[] = {1, 2, 5, 15, 16, 17, 31, 64, 100, 129, 255, 256, 300, 515};
  static constexpr Index tokens[] = {1, 1, 1, 2, 3, 7, 16, 17, 40};
  static constexpr Index splits[] = {0, 0, 32, 64, 96, 256};
  Case c{.head_dim = pick(random, dims),
         .page_tokens = pick(random, pages),
         .group = pick(random, groups),
         .kv_heads = std::uniform_int_distribution<std::int32_t>(1, 3)(random),
         .lengths = {},
         .chunks = {},
         .options = {}};
  int const sequences = std::uniform_int_distribution<int>(1, 3)(random);
  for (int s = 0; s < sequences; ++s) {
    Index const length = pick(random, lengths);
    Index chunk = std::min(length, pick(random, tokens));
    while (chunk > 1 && chunk * length * c.group * c.kv_heads > 120000) {
      chunk /= 2;  // the reference in double precision is slow
    }
    c.lengths.push_back(length);
    c.chunks.push_back({s, chunk});
  }
  if (std::uniform_int_distribution<int>(0, 4)(random) == 0) {
    c.chunks.push_back({-1, 3});
  }
  c.options.workers = std::uniform_int_distribution<std::int32_t>(1, 5)(random);
  c.options.split_rows = pick(random, splits);
  return c;
}

std::string words(Case const& c)
{
  std::string out = "head_dim " + std::to_string(c.head_dim) + ", page_tokens " +
                    std::to_string(c.page_tokens) + ", group " + std::to_string(c.group) +
                    ", kv_heads " + std::to_string(c.kv_heads) + ", workers " +
                    std::to_string(c.options.workers) + ", split_rows " +
                    std::to_string(c.options.split_rows) + ", chunks";
  for (StepChunk const& chunk : c.chunks) {
    out +=
      " " + std::to_string(chunk.tokens) + " of " +
      (chunk.sequence < 0 ? "padding"
                          : std::to_string(c.lengths[static_cast<std::size_t>(chunk.sequence)]));
  }
  return out;
}

/// One case on every path; adds the worst error of each to `worst`.
template <class T>
void check(Case const& c, std::uint64_t case_seed, WorstErrors& worst)
{
  using Layout = PagedHeads<T>;
  static constexpr Poison poisons[] = {Poison::nan, Poison::infinity, Poison::ones};
  Geometry const geometry{
    .layers = 2, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .page_tokens = c.page_tokens};
  PagedPool<Layout> pool(geometry, c.lengths, c.chunks, poisons[case_seed % 3], case_seed);
  AttentionShape const shape{.query_heads = c.group * c.kv_heads, .kv_heads = c.kv_heads};
  std::vector<float> const q = random_queries(query_floats(pool, shape), case_seed);
  Attended first;
  for (Path const path : paths()) {
    Attended const got = run(pool, shape, c.options, 1, q, path);
    double const error = error_against_double(pool, shape, 1, q, got);
    INFO(name(path) << ", " << kvcache::ElementTraits<T>::name << ", " << words(c) << ", seed "
                    << case_seed);
    CHECK(error <= tolerance);
    worst.add(path, error);
    if (first.out.empty()) {
      first = got;
    }
    CHECK(largest_difference(got.out, first.out) <= tolerance);
    CHECK(largest_difference(got.lse, first.lse) <= tolerance);
  }
}

}  // namespace

TEST_CASE("attend: equals attention in double precision over random shapes, on every path",
          "[attention][attend]")
{
  std::mt19937_64 random(seed);
  WorstErrors worst;
  std::map<std::int32_t, int> dims;
  std::map<std::int32_t, int> groups;
  std::map<std::int32_t, int> pages;
  int const cases = cases_of(240);
  for (int i = 0; i < cases; ++i) {
    Case const c = random_case(random);
    ++dims[c.head_dim];
    ++groups[c.group];
    ++pages[c.page_tokens];
    std::uint64_t const case_seed = random();
    if (i % 3 == 0) {
      check<float>(c, case_seed, worst);
    } else if (i % 3 == 1) {
      check<kvcache::half>(c, case_seed, worst);
    } else {
      check<kvcache::bfloat16>(c, case_seed, worst);
    }
  }
  if (cases == 240) {
    CHECK(dims.size() == 10);
    CHECK(groups.size() == 10);
    CHECK(pages.size() == 5);
  }
  REQUIRE(worst.report("random cases", cases, seed));
}

TEST_CASE("attend: static and dynamic layouts give the same bits", "[attention][attend]")
{
  using kvcache::bfloat16;
  Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = 64, .page_tokens = 16};
  AttentionShape const shape{.query_heads = 6, .kv_heads = 2};
  PagedPool<PagedHeads<bfloat16>> a(geometry, {83, 20}, {{0, 9}, {1, 1}}, Poison::nan, seed);
  PagedPool<PagedHeads<bfloat16, 64, 16>> b(
    geometry, {83, 20}, {{0, 9}, {1, 1}}, Poison::ones, seed);
  std::vector<float> const q = random_queries(query_floats(a, shape), seed);
  for (Path const path : paths()) {
    INFO(name(path));
    CHECK(same_bits(run(a, shape, {}, 0, q, path), run(b, shape, {}, 0, q, path)));
  }
}

// faults B-099: head sizes that are not the usual ones.
TEST_CASE("attend: every multiple of 8 up to 256 is a head size", "[attention][attend][B-099]")
{
  AttentionShape const shape{.query_heads = 4, .kv_heads = 2};
  for (std::int32_t dim = 8; dim <= 256; dim += 8) {
    Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = dim, .page_tokens = 4};
    PagedPool<PagedHeads<kvcache::half>> pool(geometry, {21}, {{0, 3}}, Poison::nan, seed);
    std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
    for (Path const path : paths()) {
      INFO("head_dim " << dim << " on " << name(path));
      CHECK(error_against_double(pool, shape, 0, q, run(pool, shape, {}, 0, q, path)) <= tolerance);
    }
    // The broken twin: a kernel for powers of two, which does not see the elements behind the last one.
    auto const usual = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(dim)));
    std::vector<float> seen = q;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      seen[i] =
        static_cast<std::int32_t>(i % static_cast<std::size_t>(dim)) < usual ? seen[i] : 0.0F;
    }
    double const error =
      error_against_double(pool, shape, 0, q, run(pool, shape, {}, 0, seen, Path::portable));
    INFO("head_dim " << dim);
    CHECK((error <= tolerance) == (dim == usual));
  }
  for (std::int32_t const dim : {36, 0, 260, 576}) {
    Geometry const geometry{.layers = 1, .kv_heads = 2, .head_dim = dim, .page_tokens = 4};
    CHECK(std::string(geometry.validate().field) == "head_dim");
  }
}

// faults B-100: groups that are no power of two, and pairs that do not divide.
TEST_CASE("attend: query head q reads KV head q / group", "[attention][attend][B-100]")
{
  struct Heads {
    std::int32_t query;
    std::int32_t kv;
  };
  Heads const pairs[] = {{28, 4}, {24, 4}, {40, 8}, {64, 4}, {71, 1}, {3, 3}, {64, 1}};
  for (Heads const heads : pairs) {
    Geometry const geometry{.layers = 1, .kv_heads = heads.kv, .head_dim = 64, .page_tokens = 16};
    AttentionShape const shape{.query_heads = heads.query, .kv_heads = heads.kv};
    PagedPool<PagedHeads<kvcache::bfloat16>> pool(
      geometry, {50, 18}, {{0, 2}, {1, 1}}, Poison::nan, seed);
    std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
    for (Path const path : paths()) {
      INFO(heads.query << "/" << heads.kv << " on " << name(path));
      Attended const got = run(pool, shape, {}, 0, q, path);
      CHECK(error_against_double(pool, shape, 0, q, got) <= tolerance);
      if (heads.kv > 1 && heads.query > heads.kv) {  // the broken twin: heads dealt out in turn
        Rules const twin{.kv_head_of = [&](std::int32_t head) { return head % heads.kv; }};
        CHECK(error_against_double(pool, shape, 0, q, got, twin) > 1e-2);
      }
    }
  }
  CHECK(std::string(AttentionShape{.query_heads = 30, .kv_heads = 4}.validate().field) ==
        "query_heads");
}
