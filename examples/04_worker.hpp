// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The worker of 04_scheduler_and_worker.cpp: a pool and a model, no scheduler.

#include <kvcache/control/plan_bytes.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstdio>

#include "04_messages.hpp"
#include "04_processes.hpp"
#include "llama/sampler.hpp"

/// Runs what comes from `input` until nobody is there any more.
inline int work(int input, int output)
{
  Decoder decoder;
  kvcache::Error error{};
  kvcache::Geometry const geometry = Layout::complete(decoder.geometry(), error);
  auto pool = kvcache::Pool<Layout>::create(geometry, sizes());
  Tokens picked(sizes().max_sequences, 0);  // by table row
  kvcache::Plan plan;
  for (;;) {
    std::vector<Header> header(1);
    if (!read_all(input, bytes_of(header))) {
      return 0;  // the scheduler has left
    }
    std::vector<std::byte> bytes(header[0].plan_bytes);
    Tokens tokens(header[0].tokens);
    if (!read_all(input, bytes) || !read_all(input, bytes_of(tokens))) {
      return 0;
    }
    // Bytes may be anything, and a plan may be another pool's: both are checked before a byte of ours changes.
    if (auto const parsed = kvcache::parse_plan(bytes, plan); !parsed) {
      std::fprintf(stderr, "worker: no plan: %s\n", parsed.error().message().text);
      return 1;
    }
    if (auto const applied = pool->apply(plan); !applied) {
      std::fprintf(stderr, "worker: not my plan: %s\n", applied.error().message().text);
      return 1;
    }
    if (tokens.size() != static_cast<std::size_t>(plan.num_tokens())) {
      std::fprintf(stderr, "worker: %zu tokens for %d rows\n", tokens.size(), plan.num_tokens());
      return 1;
    }
    // A step that was planned before its tokens were known begins with what the step before it picked.
    std::size_t at = 0;
    for (kvcache::PlannedChunk const& chunk : plan.chunks) {
      if (tokens[at] == yours) {
        tokens[at] = picked[chunk.row.value];
      }
      at += static_cast<std::size_t>(chunk.tokens);
    }
    auto const logits = decoder.run(pool->view(plan.slot), tokens);
    Picks result(1, 0);
    at = 0;
    for (kvcache::PlannedChunk const& chunk : plan.chunks) {
      at += static_cast<std::size_t>(chunk.tokens);
      picked[chunk.row.value] = llama::greedy(decoder.row(logits, at - 1));
      result.push_back(picked[chunk.row.value]);
    }
    result[0] = has_input(input) ? 1 : 0;  // is there more to do before anybody has read this?
    if (!write_all(output, bytes_of(result))) {
      return 0;
    }
  }
}
