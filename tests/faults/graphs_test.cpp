// SPDX-License-Identifier: Apache-2.0
// Launches that a graph captured once and replays: what they point at must outlive the sequence, and any number of other shapes.
// A replay here reads through the view that it was captured with, as a kernel reads its arguments.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/facade.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// What a replay comes upon: for each token its place and the page of its row.
struct Touched {
  std::vector<Index> places;
  std::vector<std::uint32_t> pages;
  friend bool operator==(Touched const&, Touched const&) = default;
};

template <class View>
Touched replay(View const& view)
{
  Touched out;
  for (Index t = 0; t < view.num_tokens(); ++t) {
    Index const index = view.index(t);
    out.places.push_back(index);
    out.pages.push_back(view.segment.entry(
      0, 0, view.token_row[t], static_cast<std::uint32_t>(index / view.map.tokens.get())));
  }
  return out;
}

Tokens some_tokens(Index n)
{
  Tokens tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 100 * n);
  return tokens;
}

/// A step of nothing, as an engine runs it to replay a graph of which no sequence is left.
void empty_step(Cache& cache)
{
  auto step = cache.prepare({});
  REQUIRE(step);
  REQUIRE(step->commit());
}

/// The fault: token arrays of each shape, of which the 128 used last are kept; the oldest one's memory serves the next.
class ArraysByShape {
 public:
  Index const* places(Index tokens)
  {
    if (arrays_.size() == 128) {
      arrays_.splice(arrays_.begin(), arrays_, std::prev(arrays_.end()));
    } else {
      arrays_.emplace_front(256);
    }
    std::iota(arrays_.front().begin(), arrays_.front().begin() + tokens, 1000 * tokens);
    return arrays_.front().data();
  }

 private:
  std::list<std::vector<Index>> arrays_;
};

}  // namespace

TEST_CASE("B-121 captured graph outlives the sequence", "[faults][graphs]")
{
  Cache cache = make_cache(8);
  auto first = cache.open({.tokens = some_tokens(3)});
  REQUIRE(first);
  auto step = cache.prepare({{*first, some_tokens(3)}});
  REQUIRE(step);
  auto const of_step = step->view();
  auto const captured = of_step.of({});
  Touched const copied = replay(captured);  // the fault: arguments by value
  REQUIRE(copied.places == std::vector<Index>{0, 1, 2});
  REQUIRE(step->commit());
  CHECK_FALSE(of_step.stale());

  first->close();
  empty_step(cache);
  CHECK(replay(captured) == Touched{});
  // A kernel that kept the view of the step asserts where NDEBUG is not defined.
  CHECK(of_step.stale());
  CHECK_FALSE(captured.stale());

  auto second = cache.open({.tokens = some_tokens(2)});
  REQUIRE(second);
  auto next = cache.prepare({{*second, some_tokens(2)}});
  REQUIRE(next);
  Touched const now = replay(captured);
  CHECK(now.places == std::vector<Index>{0, 1});
  CHECK(now == replay(next->view()));
  CHECK_FALSE(now == copied);
  REQUIRE(next->commit());
}

TEST_CASE("B-123 metadata array owned only by an LRU", "[faults][graphs]")
{
  constexpr int shapes = 129;
  CountingDevice device;
  auto cache = Cache::create(small_model, {.pages = 64, .max_step_tokens = 64, .device = &device});
  REQUIRE(cache);
  std::map<Index const*, Cache::View> captured;  // by the slot's array
  std::size_t bytes = 0;
  ArraysByShape arrays;
  Index const* const kept = arrays.places(3);
  std::vector<Index> const kept_places(kept, kept + 3);
  for (int i = 0; i <= shapes; ++i) {
    int const shape = i % shapes;  // the first one again at the end
    // One to three chunks, the first of 1 to 43 tokens; no text was there before.
    auto const chunks = static_cast<std::size_t>(1 + shape / 43);
    std::vector<Tokens> texts(chunks, Tokens{-1});
    texts[0].resize(static_cast<std::size_t>(1 + shape % 43));
    std::vector<Sequence> open;
    open.reserve(chunks);  // a chunk of a step refers to its sequence
    std::vector<Cache::SequenceChunk> step_chunks;
    std::vector<Index> places;
    for (std::size_t c = 0; c < chunks; ++c) {
      std::iota(texts[c].begin(), texts[c].end(), 1000 * i + 100 * static_cast<Token>(c));
      auto sequence = cache->open({.tokens = texts[c]});
      REQUIRE(sequence);
      REQUIRE(sequence->cached() == 0);
      open.push_back(std::move(*sequence));
      step_chunks.push_back({open[c], texts[c]});
      for (std::size_t place = 0; place < texts[c].size(); ++place) {
        places.push_back(static_cast<Index>(place));
      }
    }
    auto step = cache->prepare(step_chunks);
    REQUIRE(step);
    auto const view = step->view().of({});
    auto const graph = captured.try_emplace(view.token_index, view).first->second;
    CAPTURE(i);
    CHECK(replay(graph).places == places);
    REQUIRE(step->commit());
    if (i == 4) {
      bytes = device.live_bytes;
    }
    (void)arrays.places(3 + i);
  }
  CHECK(captured.size() <= Plan::num_slots);
  CHECK(device.live_bytes == bytes);
  CHECK_FALSE(std::vector<Index>(kept, kept + 3) == kept_places);
}
