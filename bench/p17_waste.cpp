// SPDX-License-Identifier: Apache-2.0
// P17: memory that holds no token. One request at a time goes through control, as an engine has it: open, the rest of
// the prompt and the answer in a step, commit, close. The pool has 1,048,576 slots, so most of the trace is evicted.
//
//   slots      pages of the sequence at its end x page_tokens, over all requests / their tokens
//   metadata   `Stats::index_bytes` at the end of the trace / tokens cached then, where nearly all slots are in use.
//              The allocator has 4 bytes a page beside it, and 4 for each page that was free at the same time.
//
// These are counts, not times: a round gives the same figures each time. The trace is the chat trace of
// prefix_trace.hpp; where the data folder has a published one, there are bars for it too, else a line says so.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "harness.hpp"
#include "prefix_trace.hpp"

namespace {

constexpr std::int32_t pool_tokens = 1 << 20;

#if defined(KVCACHE_BENCH_DATA_DIR)
std::string const published_trace =
  std::string(KVCACHE_BENCH_DATA_DIR) + "/traces/mooncake/conversation_trace.jsonl";
#else
std::string const published_trace;
#endif

struct Figures {
  double tokens = 0;
  double slots = 0;
  double cached_tokens = 0;
  double index_bytes = 0;
};

class Replay {
 public:
  using Plane = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;

  explicit Replay(std::int32_t page_tokens)
      : page_tokens_(page_tokens), plane_(make_plane(page_tokens))
  {
  }

  void serve(kvcache_bench::Request const& request)
  {
    auto const sequence = checked(plane_.open({.tokens = request.prompt}));
    kvcache::Index const cached = checked(plane_.info(sequence)).cached;
    auto const step = checked(plane_.begin());
    if (!plane_.add(
          step, sequence, {.tokens = request.text.subspan(static_cast<std::size_t>(cached))})) {
      throw std::runtime_error("P17: a request found no room");
    }
    checked(plane_.submit(step));
    checked(plane_.commit(step));
    kvcache::SequenceInfo const info = checked(plane_.info(sequence));
    if (info.length != static_cast<kvcache::Index>(request.text.size())) {
      throw std::runtime_error("P17: rows were lost");
    }
    figures_.tokens += info.length;
    figures_.slots += static_cast<double>(info.pages) * page_tokens_;
    plane_.close(sequence);
  }

  [[nodiscard]] Figures figures()
  {
    kvcache::Stats const stats = plane_.stats();
    figures_.cached_tokens = static_cast<double>(stats.cached) * page_tokens_;
    figures_.index_bytes = static_cast<double>(stats.index_bytes);
    if (stats.cached < stats.capacity / 10 * 9) {
      throw std::runtime_error("P17: the trace did not fill the pool");
    }
    return figures_;
  }

 private:
  template <class T>
  static T checked(kvcache::Result<T> made)
  {
    if (!made) {
      throw std::runtime_error(std::string("P17: ") + made.error().message().text);
    }
    return std::move(*made);
  }
  static Plane make_plane(std::int32_t page_tokens)
  {
    return checked(
      Plane::create({.pages = static_cast<kvcache::PageCount>(pool_tokens / page_tokens),
                     .page_tokens = page_tokens,
                     .max_sequences = 1,
                     .max_step_tokens = 1 << 18}));
  }

  std::int32_t page_tokens_;
  Plane plane_;
  Figures figures_;
};

Figures chat(std::int32_t page_tokens)
{
  Replay replay(page_tokens);
  kvcache_bench::ChatTrace trace;
  for (std::size_t i = 0; i < kvcache_bench::ChatTrace::num_requests; ++i) {
    trace.next([&](kvcache_bench::Request const& request) { replay.serve(request); });
  }
  return replay.figures();
}

Figures published(std::int32_t page_tokens)
{
  Replay replay(page_tokens);
  kvcache_bench::BlockTrace trace(published_trace);
  while (trace.next([&](kvcache_bench::Request const& request) { replay.serve(request); })) {
  }
  return replay.figures();
}

bool add(std::string what,
         std::int32_t page_tokens,
         double goal,
         bool metadata,
         Figures (*of)(std::int32_t))
{
  return kvcache_bench::add(
    {.bar = "P17",
     .what = std::move(what) + ", page " + std::to_string(page_tokens),
     .goal = goal,
     .higher_is_better = false,
     .prepare = [page_tokens, metadata, of]() -> std::function<kvcache_bench::Round()> {
       Figures const f = of(page_tokens);
       return [f, metadata]() -> kvcache_bench::Round {
         return metadata
                  ? kvcache_bench::Round{.reference = f.cached_tokens, .subject = f.index_bytes}
                  : kvcache_bench::Round{.reference = f.tokens, .subject = f.slots};
       };
     }});
}

/// The first bar of the chat trace says when it is the only one.
Figures chat_alone_or_not(std::int32_t page_tokens)
{
  if (!kvcache_bench::BlockTrace(published_trace).is_open()) {
    std::printf("P17: the published trace \"%s\" is not there: only the generated one was used\n",
                published_trace.c_str());
  }
  return chat(page_tokens);
}

bool add_published()
{
  return !kvcache_bench::BlockTrace(published_trace).is_open() ||
         (add("slots / tokens, Mooncake conversation trace", 16, 1.003, false, published) &&
          add("slots / tokens, Mooncake conversation trace", 64, 1.012, false, published));
}

bool const registered =
  add("slots / tokens, generated chat trace", 16, 1.003, false, chat_alone_or_not) &&
  add("slots / tokens, generated chat trace", 64, 1.012, false, chat) && add_published() &&
  add("index bytes a cached token, chat trace", 16, 6, true, chat) &&
  add("index bytes a cached token, chat trace", 1, 10, true, chat);

}  // namespace
