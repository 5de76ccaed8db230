// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/span_store.hpp>

#include <utility>

#include "support/catch.hpp"

using namespace kvcache;
using detail::SpanBuffer;
using detail::SpanStore;

namespace {

std::uint32_t make(SpanStore& spans)
{
  Token const token = 1;
  PageId const page{1};
  std::uint32_t const id = spans.reserve_one();
  spans.reserve_buffer(1);
  SpanBuffer buffer = spans.make_buffer(1);
  buffer.append(&token, &page, 1, 1);
  spans.use(id, std::move(buffer));
  return id;
}

}  // namespace

TEST_CASE("SpanStore: ids are given in order, and the latest returned first",
          "[prefix][span_store]")
{
  SpanStore spans(8, 1);
  for (std::uint32_t id = 0; id < 20; ++id) {
    CHECK(make(spans) == id);
  }
  spans.release(3);
  spans.release(11);
  CHECK(spans.size() == 18);
  CHECK_FALSE(spans.in_use(11));
  CHECK(spans.in_use(12));
  CHECK(make(spans) == 11);
  CHECK(make(spans) == 3);
  CHECK(make(spans) == 20);
  CHECK(spans.bound() == 21);
}

TEST_CASE("SpanStore: a reserved id that is not used leaves no trace", "[prefix][span_store]")
{
  SpanStore spans(8, 1);
  CHECK(spans.reserve_one() == 0);
  CHECK(spans.reserve_one() == 0);
  CHECK(spans.bound() == 0);
  make(spans);
  CHECK(spans.in_domain(0, DomainId{0}));
  CHECK_FALSE(spans.in_domain(0, DomainId{1}));
  auto const before = spans.bytes();
  CHECK(spans.blocks().num_blocks() == 1);
  spans.release(0);
  CHECK(spans.blocks().num_blocks() == 0);
  CHECK(spans.bytes() == before);  // ready for the next one
}
