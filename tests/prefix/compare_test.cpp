// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/compare.hpp>

#include <cstddef>
#include <vector>

#include "support/catch.hpp"

using kvcache::Token;
using kvcache::detail::common_tokens;

TEST_CASE("common_tokens: finds the first difference wherever it lies", "[prefix][compare]")
{
  for (std::size_t const count : {0U, 1U, 15U, 16U, 17U, 255U, 256U, 257U, 300U, 800U}) {
    std::vector<Token> a(count + 1);
    for (std::size_t i = 0; i <= count; ++i) {
      a[i] = static_cast<Token>(i * 7);
    }
    std::vector<Token> b = a;
    CHECK(common_tokens(a.data(), b.data(), count) == count);
    bool right = true;
    for (std::size_t at = 0; at <= count; ++at) {  // at == count lies past the end
      b[at] ^= 0x01000000;
      right = right && common_tokens(a.data(), b.data(), count) == at;
      b[at] = a[at];
    }
    CAPTURE(count);
    CHECK(right);
  }
}
