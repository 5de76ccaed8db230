// SPDX-License-Identifier: Apache-2.0
// A domain is known while something names it: a page, a sequence, a pin, what a step may put back, an event that can be read.

#include <cstddef>
#include <string>

#include "support/catch.hpp"
#include "support/plane.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

SequenceId open_in(Plane& p, Tokens const& prompt, Domain const& domain)
{
  auto const id = p.open({.tokens = prompt, .domain = &domain});
  REQUIRE(id);
  return *id;
}

/// Takes every page that nobody uses, and gives them back.
void flush(Plane& p, PageCount pages, Token first)
{
  Domain const other({.salt = Text("other", 5)});
  Tokens const all = numbers(first, first + static_cast<Token>(4 * pages) - 1);
  SequenceId const id = open_in(p, all, other);
  append(p, id, all);
  REQUIRE(p.close(id));
}

}  // namespace

TEST_CASE("Domains: a sequence names its domain, suspended too, and then its pages do",
          "[control][domains]")
{
  Plane p = make_plane(8);
  Domain const a({.salt = Text("a", 1)});
  CHECK_FALSE(p.domain_id(a));
  SequenceId const id = open_in(p, numbers(1, 6), a);
  REQUIRE(p.domain_id(a));
  auto const first = *p.domain_id(a);
  append(p, id, numbers(1, 6));
  REQUIRE(p.suspend(id));
  flush(p, 8, 1000);  // its page left the tree
  REQUIRE(p.domain_id(a));
  CHECK(*p.domain_id(a) == first);
  check_sound(p);
  REQUIRE(p.resume(id));
  append(p, id, numbers(1, 6));
  REQUIRE(p.close(id));
  CHECK(p.domain_id(a));  // a page is cached
  CHECK(p.use_of(a).indexed == 1);
  flush(p, 8, 2000);
  CHECK_FALSE(p.domain_id(a));
  check_sound(p);

  REQUIRE(p.close(open_in(p, {1}, a)));
  CHECK_FALSE(p.domain_id(a));
  SequenceId const again = open_in(p, numbers(1, 6), a);
  CHECK_FALSE(*p.domain_id(a) == first);
  CHECK(p.info(again)->length == 0);
  check_sound(p);
}

TEST_CASE("Domains: a pin and a step that may put a page back name theirs", "[control][domains]")
{
  Plane p = make_plane(8);
  Domain const a({.salt = Text("a", 1)});
  SequenceId const id = open_in(p, numbers(1, 4), a);
  append(p, id, numbers(1, 4));
  REQUIRE(p.close(id));
  SECTION("a pin")
  {
    auto const pin = p.pin({.tokens = numbers(1, 4), .domain = &a});
    REQUIRE(pin);
    p.forget(a);
    CHECK(p.domain_id(a));
    check_sound(p);
    REQUIRE(p.unpin(*pin));
    CHECK_FALSE(p.domain_id(a));
  }
  SECTION("a step's journal")
  {
    Tokens const all = numbers(1000, 1031);
    SequenceId const other = open(p, all);
    StepId const step = begin(p);
    add(p, step, other, all);  // evicts the page
    CHECK(p.use_of(a).indexed == 0);
    REQUIRE(p.domain_id(a));
    check_sound(p);
    SECTION("dropped: the page is found again")
    {
      REQUIRE(p.drop(step));
      CHECK(p.use_of(a).indexed == 1);
      CHECK(p.domain_id(a));
    }
    SECTION("retired: nobody names it")
    {
      REQUIRE(p.submit(step));
      REQUIRE(p.commit(step));
      CHECK_FALSE(p.domain_id(a));
    }
  }
  check_sound(p);
}

TEST_CASE("Domains: a fork names the domain of its parent", "[control][domains]")
{
  Plane p = make_plane(8);
  Domain const a({.salt = Text("a", 1)});
  SequenceId const parent = open_in(p, numbers(1, 3), a);
  append(p, parent, numbers(1, 3));  // no whole page: none is in the tree
  SequenceId const child = fork(p, parent);
  REQUIRE(p.close(parent));
  CHECK(p.domain_id(a));
  check_sound(p);
  append(p, child, {4});
  REQUIRE(p.close(child));
  CHECK(p.domain_id(a));  // its page does
  p.forget(a);
  CHECK_FALSE(p.domain_id(a));
  check_sound(p);
}

TEST_CASE("Domains: an event that can be read names its domain", "[control][domains]")
{
  Plane p = make_plane(
    {.pages = 8, .page_tokens = 4, .max_sequences = 4, .max_step_tokens = 64, .event_capacity = 2});
  Domain const a({.salt = Text("a", 1)});
  SequenceId const id = open_in(p, numbers(1, 4), a);
  append(p, id, numbers(1, 4));
  REQUIRE(p.close(id));
  p.forget(a);  // stored, cleared
  REQUIRE(p.domain_id(a));
  CHECK(p.events().at(p.events().next() - 1).domain == *p.domain_id(a));
  check_sound(p);
  cache_only(p, numbers(1, 8));  // two events that name another
  CHECK_FALSE(p.domain_id(a));
  check_sound(p);
}

TEST_CASE("Domains: one that comes back does not undo a forget", "[control][domains]")
{
  Plane p = make_plane(16);
  Domain const a({.salt = Text("a", 1)});
  SequenceId const old = open_in(p, numbers(1, 6), a);
  append(p, old, numbers(1, 6));
  p.forget(a);  // `old` goes on with old weights
  SequenceId const fresh = open_in(p, numbers(1, 6), a);
  CHECK(p.info(fresh)->length == 0);
  REQUIRE(p.close(fresh));
  append(p, old, numbers(7, 12));  // three whole pages of old weights
  REQUIRE(p.close(old));
  CHECK_FALSE(p.domain_id(a));
  SequenceId const later = open_in(p, numbers(1, 13), a);
  CHECK(p.info(later)->length == 0);
  check_sound(p);
}

TEST_CASE("Domains: a salt a request costs no memory that stays", "[control][domains]")
{
  Plane p = make_plane(8);
  auto const serve = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      std::string const salt = "request-" + std::to_string(i);
      Domain const domain({.salt = salt});
      SequenceId const id = open_in(p, numbers(1, 5), domain);
      append(p, id, numbers(1, 5));
      REQUIRE(p.close(id));
    }
  };
  serve(0, 1000);
  std::uint64_t const before = p.stats().index_bytes;
  serve(1000, 11'000);
  CHECK(p.stats().index_bytes < before + 100);  // a salt is a few letters longer
  check_sound(p);
}
