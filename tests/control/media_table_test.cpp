// SPDX-License-Identifier: Apache-2.0
#include <kvcache/control/media_table.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

using kvcache::Index;
using kvcache::Media;
using kvcache::Token;
using kvcache::detail::MediaTable;

namespace {

Media item(std::string const& digest)
{
  return Media({.digest = digest, .kind = "image", .dtype = {}, .dims = {}, .options = {}});
}
Media item(int number)
{
  return item(std::to_string(number));
}
void sweep(MediaTable& table, std::vector<Token> const& used)
{
  table.sweep([&](auto&& mark) {
    for (Token const token : used) {
      mark(token);
    }
  });
}

}  // namespace

TEST_CASE("MediaTable: item, rows and atomic make a name together", "[control][media_table]")
{
  MediaTable table;
  Index const a = *table.intern(item("a"), 4, false);
  Index const b = *table.intern(item("b"), 4, false);
  Index const longer = *table.intern(item("a"), 5, false);
  Index const whole = *table.intern(item("a"), 4, true);
  CHECK(a == 0);
  CHECK(b == 4);
  CHECK(longer == 8);
  CHECK(whole == 13);
  CHECK(table.size() == 4);
  CHECK(*table.intern(item("a"), 4, false) == a);
  CHECK(table.find(item("b"), 4, false) == b);
  CHECK_FALSE(table.find(item("b"), 3, false));
  CHECK_FALSE(table.find(item("c"), 4, false));
  CHECK(table.size() == 4);

  Token const name = MediaTable::name_of(longer, 3);
  CHECK(name == -12);
  CHECK(*table.look_up(name).item == item("a"));
  CHECK(table.look_up(name).rows == 5);
  CHECK(table.look_up(name).index == 3);
  CHECK(table.knows(-17));
  CHECK_FALSE(table.knows(-18));
  CHECK_FALSE(table.knows(0));
  CHECK(table.check_invariants());
}

TEST_CASE("MediaTable: text gives its tokens back", "[control][media_table]")
{
  MediaTable table;
  std::vector<Token> const text = {7, 0x7fffffff, 0, 0x01020304};
  Index const base = *table.intern(Media::text(text), 4, true);
  for (Index i = 0; i < 4; ++i) {
    CHECK(table.text_token(MediaTable::name_of(base, i)) == text[static_cast<std::size_t>(i)]);
  }
}

TEST_CASE("MediaTable: two items of one hash are two items", "[control][media_table]")
{
  // The table looks up 32 bits of a hash: two items that agree in them are soon found.
  std::unordered_map<std::uint32_t, int> seen;
  std::optional<std::pair<int, int>> pair;
  for (int i = 0; !pair && i < 1'000'000; ++i) {
    auto const hash = static_cast<std::uint32_t>(kvcache::mix(item(i).digest(), 4U << 1));
    auto const [at, fresh] = seen.emplace(hash, i);
    pair = fresh ? pair : std::optional(std::pair(at->second, i));
  }
  REQUIRE(pair);
  MediaTable table;
  Index const first = *table.intern(item(pair->first), 4, false);
  CHECK_FALSE(table.find(item(pair->second), 4, false));
  Index const second = *table.intern(item(pair->second), 4, false);
  CHECK(first != second);
  CHECK(*table.find(item(pair->first), 4, false) == first);
  sweep(table, {MediaTable::name_of(second, 0)});
  CHECK_FALSE(table.find(item(pair->first), 4, false));
  CHECK(table.find(item(pair->second), 4, false) == second);
  CHECK(table.check_invariants());
}

TEST_CASE("MediaTable: a sweep keeps what is used, and names come back late",
          "[control][media_table]")
{
  MediaTable table(20, 3);
  Index const a = *table.intern(item("a"), 5, false);
  Index const b = *table.intern(item("b"), 5, false);
  CHECK_FALSE(table.due());
  (void)table.intern(item("c"), 5, false);
  CHECK(table.due());
  sweep(table, {3, MediaTable::name_of(b, 4), 0});
  CHECK_FALSE(table.due());
  CHECK(table.size() == 1);
  CHECK(table.find(item("b"), 5, false) == b);
  CHECK(*table.intern(item("d"), 5, false) == 15);  // not yet 0 to 4 or 10 to 14
  CHECK(*table.intern(item("e"), 3, false) == a);   // the ring went round
  CHECK(*table.intern(item("f"), 2, false) == 3);
  CHECK(*table.intern(item("g"), 4, false) == 10);
  CHECK_FALSE(table.intern(item("h"), 2, false));  // only number 14 is free
  CHECK(*table.intern(item("i"), 1, false) == 14);
  CHECK_FALSE(table.intern(item("j"), 1, false));
  CHECK(table.check_invariants());
  sweep(table, {});
  CHECK(table.size() == 0);
  CHECK(*table.intern(item("j"), 20, false) == 0);
  CHECK_FALSE(table.intern(item("k"), 21, false));
}

TEST_CASE("MediaTable: the last of all names", "[control][media_table]")
{
  MediaTable table;
  Index const most = MediaTable::most_names;
  CHECK(*table.intern(item("a"), most - 1, true) == 0);
  Index const last = *table.intern(item("b"), 1, true);
  CHECK(MediaTable::name_of(last, 0) == -most);
  CHECK(table.look_up(-most).index == 0);
  CHECK_FALSE(table.intern(item("c"), 1, true));
  CHECK_FALSE(table.intern(item("c"), most, true));
  sweep(table, {-most});
  CHECK(*table.intern(item("c"), most - 1, true) == 0);
  CHECK(table.check_invariants());
}

TEST_CASE("MediaTable: random items in a small ring keep their names", "[control][media_table]")
{
  std::printf("MediaTable: seed 11\n");
  kvcache_test::Random random(11);
  MediaTable table(40, 4);
  struct Held {
    int number;
    Index rows;
    Index base;
  };
  std::vector<Held> held;
  int sweeps = 0;
  int refused = 0;
  int swept = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (table.due()) {
      std::vector<Token> used;
      for (Held const& h : held) {
        used.push_back(MediaTable::name_of(
          h.base, static_cast<Index>(random.below(static_cast<std::uint32_t>(h.rows)))));
      }
      auto const before = table.size();
      sweep(table, used);
      swept += static_cast<int>(before - table.size());
      ++sweeps;
    }
    int const number = static_cast<int>(random.below(30));
    auto const rows = static_cast<Index>(random.between(1, 9));
    auto const base = table.intern(item(number), rows, false);
    refused += base ? 0 : 1;
    if (base) {
      for (Held const& h : held) {
        bool const same = h.number == number && h.rows == rows;
        bool const apart = h.base + h.rows <= *base || *base + rows <= h.base;
        REQUIRE((same ? h.base == *base : apart));
      }
      held.push_back({number, rows, *base});
    } else {
      sweep(table, {});
      held.clear();
    }
    if (held.size() > 4) {
      held.erase(held.begin());
    }
    REQUIRE(table.check_invariants());
  }
  CHECK(sweeps > 100);
  CHECK(swept > 1000);
  CHECK(refused > 10);
}
