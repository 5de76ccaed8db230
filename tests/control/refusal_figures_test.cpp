// SPDX-License-Identifier: Apache-2.0
// Sentences of refusals whose figure may be 0, which they must not lose.

#include <string>

#include "support/catch.hpp"
#include "support/plane.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

template <class R>
std::string refusal(R const& result)
{
  REQUIRE_FALSE(result);
  return result.error().message().text;
}

}  // namespace

TEST_CASE("Refusals: the figure is printed where it is 0", "[control][errors]")
{
  Plane p = make_plane(8);
  Tokens const some{1, 2};
  CHECK(refusal(p.open({.tokens = some, .promised = -1})) ==
        "promised = -1 (bad configuration): must be at least 0");
  CHECK(refusal(p.open({.max_tokens = -1})) ==
        "max_tokens = -1 (bad configuration): must be 0 (unknown), or at least the tokens of the "
        "prompt, 0");
  Media const cat({.digest = Text("cat", 3)});
  MediaSpan const early{.item = &cat, .first = -1, .rows = 1};
  CHECK(refusal(p.open({.tokens = some, .media = std::span(&early, 1)})) ==
        "media.first = -1 (bad configuration): must not lie before the text, nor before the end of "
        "the span before it, row 0");
  SequenceId const id = open(p, some);
  StepId const step = begin(p);
  std::vector<Index> const parents{0, 0};
  CHECK(refusal(p.add(step, id, {.tokens = some, .parents = parents})) ==
        "chunk.parents = 0 (bad configuration): must be -1, or the place of a token before this "
        "one, which stands at 0");
  std::vector<SequenceId> const none;
  std::vector<Index> const one{0};
  CHECK(refusal(p.reorder(none, one)) ==
        "parents = 1 (bad configuration): must be one for each sequence: 0");
  REQUIRE(p.submit(step));  // of no chunks
  CHECK(refusal(p.commit(step, one)) ==
        "outcomes = 1 (bad configuration): must be none (all accepted), or one for each chunk that "
        "was added: 0");
  check_sound(p);
}
