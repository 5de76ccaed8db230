// SPDX-License-Identifier: Apache-2.0
// P15: a decode step of 256 running sequences, one token each, one in 16 of them crossing into a new page: begin, 256
// adds, submit and commit, in microseconds. In control alone, and through the facade, which also checks the plan and
// applies it to a pool on the host.
//
// Bars in core time: the reference of a round is one microsecond a step, so the value is microseconds of a core at
// 2.6 GHz. The last bar compares with the least that a step can do: a length and a last page for each of 256 sequences,
// 16 pages from a stack, a token kept.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/kvcache.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"

namespace {

using kvcache::Index;
using kvcache::Token;

constexpr std::uint32_t sequences = 256;
constexpr std::int32_t page_tokens = 16;
constexpr int steps = 512;  // of a round
constexpr Index prompt_rows = 256;
constexpr kvcache::PageCount pages = sequences * ((prompt_rows + steps) / page_tokens + 2);
constexpr std::size_t step_tokens = sequences * (prompt_rows + page_tokens);

kvcache::ControlOptions control_options()
{
  return {.pages = pages,
          .page_tokens = page_tokens,
          .max_sequences = sequences,
          .max_step_tokens = step_tokens};
}

template <class T>
T checked(kvcache::Result<T> made)
{
  if (!made) {
    throw std::runtime_error(std::string("P15: ") + made.error().message().text);
  }
  return std::move(*made);
}

/// Prompts of 256 to 271 tokens, no two alike in their first page, so that each step one in 16 crosses a page.
std::vector<Token> prompt_of(std::uint32_t i)
{
  std::vector<Token> prompt(static_cast<std::size_t>(prompt_rows) + i % page_tokens);
  std::iota(prompt.begin(), prompt.end(), static_cast<Token>(i * 1000));
  return prompt;
}

class ControlSteps {
 public:
  using Plane = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;
  ControlSteps() : plane_(checked(Plane::create(control_options()))) {}

  double run()
  {
    restart();
    std::vector<Index> const accepted(sequences, 1);
    std::size_t crossed = 0;
    double const seconds = kvcache_bench::seconds([&] {
      for (int n = 0; n < steps; ++n) {
        Token const token = n;
        kvcache::StepId const step = *plane_.begin();
        for (kvcache::SequenceId const id : ids_) {
          kvcache_bench::keep(plane_.add(step, id, {.tokens = std::span(&token, 1)}));
        }
        kvcache_bench::keep(plane_.submit(step));
        crossed += plane_.plan(step).ids.size();
        kvcache_bench::keep(plane_.commit(step, accepted));
      }
    });
    if (crossed < sequences * steps / page_tokens ||
        plane_.stats().committed_rows % (sequences * steps) != prefilled_ % (sequences * steps)) {
      throw std::runtime_error("P15: a step did not take its pages");
    }
    return seconds;
  }

 private:
  void restart()
  {
    for (kvcache::SequenceId const id : ids_) {
      plane_.close(id);
    }
    plane_.forget({});
    ids_.clear();
    kvcache::StepId const step = checked(plane_.begin());
    for (std::uint32_t i = 0; i < sequences; ++i) {
      std::vector<Token> const prompt = prompt_of(i);
      ids_.push_back(checked(plane_.open({.tokens = prompt})));
      if (!plane_.add(step, ids_.back(), {.tokens = prompt})) {
        throw std::runtime_error("P15: a prompt found no room");
      }
      prefilled_ += prompt.size();
    }
    checked(plane_.submit(step));
    checked(plane_.commit(step));
  }

  Plane plane_;
  std::vector<kvcache::SequenceId> ids_;
  std::uint64_t prefilled_ = 0;
};

class CacheSteps {
 public:
  using Cache = kvcache::KVCache<kvcache::PagedHeads<kvcache::half, 8, page_tokens>>;
  CacheSteps()
      : cache_(checked(Cache::create(
          {.layers = 1, .kv_heads = 1},
          {.pages = pages, .max_sequences = sequences, .max_step_tokens = step_tokens})))
  {
  }

  double run()
  {
    restart();
    std::vector<Index> const accepted(sequences, 1);
    std::vector<Token> tokens(sequences);  // the engine's own, as is its list of what runs
    std::vector<Cache::SequenceChunk> chunks;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      chunks.push_back({open_[i], std::span(tokens).subspan(i, 1)});
    }
    return kvcache_bench::seconds([&] {
      for (int n = 0; n < steps; ++n) {
        for (Token& token : tokens) {
          token = n;
        }
        auto step = cache_.prepare(chunks);
        if (!step || !step->commit(accepted)) {
          throw std::runtime_error("P15: a step failed");
        }
      }
    });
  }

 private:
  void restart()
  {
    open_.clear();
    cache_.forget({});
    auto step = checked(cache_.begin());
    for (std::uint32_t i = 0; i < sequences; ++i) {
      std::vector<Token> const prompt = prompt_of(i);
      open_.push_back(checked(cache_.open({.tokens = prompt})));
      if (!step.add(open_.back(), {.tokens = prompt})) {
        throw std::runtime_error("P15: a prompt found no room");
      }
    }
    checked(step.submit());
    checked(step.commit());
  }

  Cache cache_;
  std::vector<kvcache::Sequence> open_;
};

/// What no step can do without.
class LeastSteps {
 public:
  LeastSteps() : lines_(sequences), free_(pages)
  {
    std::iota(free_.begin(), free_.end(), 1U);
    for (std::uint32_t i = 0; i < sequences; ++i) {
      lines_[i].tokens.resize(static_cast<std::size_t>(prompt_rows + page_tokens + steps));
      lines_[i].table.resize(lines_[i].tokens.size() / page_tokens + 1);
    }
  }
  double run()
  {
    for (std::uint32_t i = 0; i < sequences; ++i) {
      lines_[i].length = static_cast<std::uint32_t>(prompt_rows) + i % page_tokens;
    }
    std::size_t top = free_.size();
    return kvcache_bench::seconds([&] {
      for (int n = 0; n < steps; ++n) {
        for (Line& line : lines_) {
          if (line.length % page_tokens == 0) {
            line.table[line.length / page_tokens] = free_[--top];
          }
          line.tokens[line.length] = n;
          kvcache_bench::keep(line.length += 1);
        }
      }
    });
  }

 private:
  struct Line {
    std::uint32_t length = 0;
    std::vector<Token> tokens;
    std::vector<std::uint32_t> table;
  };
  std::vector<Line> lines_;
  std::vector<std::uint32_t> free_;
};

template <class Subject>
bool add_microseconds(char const* what, double goal)
{
  return kvcache_bench::add({.bar = "P15",
                             .what = what,
                             .goal = goal,
                             .higher_is_better = false,
                             .core_time = true,
                             .prepare = []() -> std::function<kvcache_bench::Round()> {
                               auto const subject = std::make_shared<Subject>();
                               return [subject]() -> kvcache_bench::Round {
                                 return {.reference = steps * 1e-6, .subject = subject->run()};
                               };
                             }});
}

bool const registered =
  add_microseconds<ControlSteps>("decode step of 256 sequences, control alone, us at 2.6 GHz",
                                 16) &&
  add_microseconds<CacheSteps>("decode step of 256 sequences, facade and pool, us at 2.6 GHz",
                               16) &&
  kvcache_bench::add({.bar = "P15",
                      .what = "decode step of 256 sequences, control / the least stores",
                      .goal = 60,
                      .higher_is_better = false,
                      .prepare = []() -> std::function<kvcache_bench::Round()> {
                        auto const least = std::make_shared<LeastSteps>();
                        auto const subject = std::make_shared<ControlSteps>();
                        return [=]() -> kvcache_bench::Round {
                          double const reference = least->run();
                          return {.reference = reference, .subject = subject->run()};
                        };
                      }});

}  // namespace
