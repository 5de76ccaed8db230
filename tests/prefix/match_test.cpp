// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/match.hpp>

#include <set>
#include <string>

#include "support/catch.hpp"

using namespace kvcache;

TEST_CASE("Match: rows are whole pages and the part of one", "[prefix][match]")
{
  Match match;
  CHECK(match.rows(16) == 0);
  match.full_pages = 3;
  match.partial_rows = 5;
  CHECK(match.rows(16) == 53);
  CHECK(match.span.value == nil);
}

TEST_CASE("Miss: each reason has a sentence of its own", "[prefix][match]")
{
  std::set<std::string> sentences;
  for (Miss const miss : {Miss::none,
                          Miss::never_seen,
                          Miss::evicted,
                          Miss::other_domain,
                          Miss::last_token,
                          Miss::partial}) {
    sentences.insert(name(miss));
  }
  CHECK(sentences.size() == 6);
  CHECK(sentences.count("unknown") == 0);
}
