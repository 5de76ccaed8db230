// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The faults that the naive cache can have, each named for what it does.

#include <cstdint>

namespace kvcache_test {

enum class Bug : std::uint8_t {
  none,
  trusts_a_weak_key,         // B-001
  ignores_the_domain,        // B-003, B-005, B-010
  keeps_forgotten,           // B-014
  ignores_fresh_tail,        // B-016
  takes_a_page_too_many,     // B-019
  publishes_short_keys,      // B-021
  misfiles_a_child,          // B-023
  counts_shared_twice,       // B-025
  keeps_a_lock,              // B-026
  evicts_the_front,          // B-028
  publishes_at_reserve,      // B-031
  publishes_part_pages,      // B-033
  frees_twice,               // B-036
  fork_forgets_the_parent,   // B-041
  leaks_when_refused,        // B-043
  loses_duplicates,          // B-046
  shares_the_tail,           // B-047
  counts_slots_on,           // B-050
  keeps_rejected_pages,      // B-116
  admits_anything,           // B-128
  asks_for_a_page_too_many,  // B-132
  commits_what_was_closed    // B-133
};

}  // namespace kvcache_test
