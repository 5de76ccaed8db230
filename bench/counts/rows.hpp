// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The rows of `kvcache_counts`: work whose cost is stated, as a function of n.

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "counts/measured.hpp"

namespace kvcache_counts {

struct Row {
  std::string_view name;
  std::function<Count(std::size_t n)> run;
};

std::span<Row const> flight_rows();    // beside steps in flight
std::span<Row const> sequence_rows();  // of sequences, pins, domains, and memory
std::span<Row const> decode_rows();    // of a decode step

}  // namespace kvcache_counts
