// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Many requests over a pool that may be too small for all of them.
///
///   waiting --- room for its text ---> running --- all tokens there ---> done
///      ^                                  |
///      +------ a step lacks pages: -------+
///              the youngest is suspended
///
/// A suspended request keeps its tokens and gives up its pages. What it published stays cached until others take the
/// room, so it pays again only for what is gone by then.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine.hpp"

namespace llama {

struct BatchOptions {
  std::size_t tokens = 0;       // to generate for each prompt, at least one
  std::size_t step_tokens = 0;  // of one step, over all requests; at least one a request
};

/// What a batch gave and cost.
struct Batch {
  std::vector<std::vector<std::int32_t>> answers;  // by prompt
  std::size_t steps = 0;
  std::size_t most_running = 0;  // requests at the same time
  std::size_t suspensions = 0;   // each is resumed later
  std::size_t rows_kept = 0;     // of the rows of suspended requests, those still cached at resume
  std::size_t rows_recomputed = 0;  // the others
  kvcache::Shortage first{};        // of pages; `why` is ok where there was none
};

/// Runs all prompts to their end, greedily. **Errors** `Error` for a request that has no room even alone.
[[nodiscard]] Batch run_batch(Engine& engine,
                              std::span<std::vector<std::int32_t> const> prompts,
                              BatchOptions const& options);

}  // namespace llama
