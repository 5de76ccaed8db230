// SPDX-License-Identifier: Apache-2.0

#include <type_traits>
#include <vector>

#include "consumer.hpp"

// The inline namespace is named after the version, so that two versions in one program are two sets of symbols.
#define NAMESPACE(major, minor) v##major##_##minor
#define NAMESPACE_OF(major, minor) NAMESPACE(major, minor)
static_assert(
  std::is_same_v<kvcache::Geometry,
                 kvcache::NAMESPACE_OF(KVCACHE_VERSION_MAJOR, KVCACHE_VERSION_MINOR)::Geometry>);

int rows_after_one_step(Cache& cache)
{
  std::vector<kvcache::Token> const prompt{1, 2, 3};
  auto sequence = cache.open({.tokens = prompt});
  auto step = cache.prepare({{*sequence, prompt}});
  return step && step->commit() ? static_cast<int>(sequence->length()) : -1;
}
