// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/text.hpp>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"

using kvcache::Text;

namespace {

std::string copy_of(std::string_view text)
{
  return std::string(text);
}

}  // namespace

TEST_CASE("Text: it comes from what has chars in a row, and goes to a string_view", "[core][text]")
{
  std::string const owned("a\0b", 3);
  std::vector<char> const chars{'x', 'y'};
  CHECK(Text("ab").size() == 2);
  CHECK(Text(owned).size() == 3);
  CHECK(copy_of(Text(owned)) == owned);
  CHECK(copy_of(Text(chars)) == "xy");
  CHECK(copy_of(Text(std::string_view("q"))) == "q");
  CHECK(std::string(Text(owned)) == owned);
  CHECK(Text(owned)[2] == 'b');
  static_assert(Text("abc").size() == 3 && Text("abc")[1] == 'b');
  static_assert(!std::is_convertible_v<std::vector<int>, Text>);
  static_assert(!std::is_convertible_v<Text, std::string>);
}

TEST_CASE("Text: absent is not empty, and neither has chars", "[core][text]")
{
  Text const absent{};
  Text const none(static_cast<char const*>(nullptr));
  Text const empty("");
  CHECK(absent.data() == nullptr);
  CHECK(none.data() == nullptr);
  CHECK(none.empty());
  CHECK(empty.data() != nullptr);
  CHECK(empty.empty());
  CHECK(Text(std::string_view{}).data() == nullptr);
}

TEST_CASE("Text: order is that of string_view", "[core][text]")
{
  std::vector<std::string> const texts{
    "", "a", "aa", "ab", "b", std::string("\0", 1), "\xff", "\x7f"};
  for (std::string const& a : texts) {
    for (std::string const& b : texts) {
      int const order = Text(a).compare(b);
      int const want = std::string_view(a).compare(b);
      CHECK((order < 0) == (want < 0));
      CHECK((order > 0) == (want > 0));
      CHECK((Text(a) == Text(b)) == (a == b));
    }
  }
}
