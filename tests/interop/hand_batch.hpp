// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The batch of the pictures in `interop/`: pages of 4, a = [ 7 3 5 ] with 11 rows, b = [ 1 ] with 3, of which the
/// step stores the last two of a and the last one of b. And what a refusal says.

#include <kvcache/interop/table_source.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <string>
#include <utility>

#include "support/hand_plan.hpp"

namespace kvcache_test {

struct HandBatch {
  using Layout = kvcache::PagedHeads<float, 8, 4>;
  static constexpr kvcache::Geometry geometry{
    .layers = 2, .kv_heads = 3, .head_dim = 8, .page_tokens = 4};

  kvcache::Pool<Layout> pool =
    std::move(kvcache::Pool<Layout>::create(geometry, pool_sizes(geometry, 9)).value());

  HandBatch()
  {
    kvcache::Plan plan;
    set_table(plan, 2, 0, {7, 3, 5});
    set_table(plan, 0, 0, {1});
    add_chunk(plan, 2, 9, 2);
    add_chunk(plan, 0, 2, 1);
    (void)pool.apply(kvcache_test::in_order(plan)).value();
  }
  [[nodiscard]] kvcache::TableSource source() const
  {
    return kvcache::TableSource::of(pool.view());
  }
};

/// The sentence of a refusal; what must not be refused gives an empty one.
template <class T>
std::string refusal(kvcache::Result<T> const& result)
{
  return result ? std::string() : std::string(result.error().message().text);
}

}  // namespace kvcache_test
