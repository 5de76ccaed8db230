// SPDX-License-Identifier: Apache-2.0
#include <kvcache/control/media.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

using kvcache::Media;
using kvcache::Token;

namespace {

using Dims = std::vector<std::uint64_t>;

Media picture(std::string_view digest, std::string_view kind, Dims const& dims = {})
{
  return Media({.digest = digest, .kind = kind, .dtype = {}, .dims = dims, .options = {}});
}
Media shaped(Dims const& dims)
{
  return picture("x", "image", dims);
}
std::string hex(std::string_view bytes)
{
  std::string out;
  for (char const byte : bytes) {
    constexpr char digits[] = "0123456789abcdef";
    out += digits[static_cast<unsigned char>(byte) / 16];
    out += digits[static_cast<unsigned char>(byte) % 16];
  }
  return out;
}

}  // namespace

TEST_CASE("Media: shape, type and ends of fields tell items apart", "[control][media]")
{
  CHECK(shaped({30, 150}) != shaped({150, 30}));
  CHECK(shaped({30, 150}) != shaped({4500}));
  CHECK(shaped({30, 150}) != shaped({30, 150, 1}));
  CHECK(shaped({30, 150}) == shaped({30, 150}));
  CHECK(picture("ab", "c") != picture("a", "bc"));
  CHECK(picture("abc", "") != picture("ab", "c"));
  CHECK(picture("ab", "") != picture("ab", {}));  // empty is not absent

  // The same word in each field in turn.
  std::vector<Media> const all = {
    Media({.digest = "x", .kind = {}, .dtype = {}, .dims = {}, .options = {}}),
    Media({.digest = "x", .kind = "x", .dtype = {}, .dims = {}, .options = {}}),
    Media({.digest = "x", .kind = {}, .dtype = "x", .dims = {}, .options = {}}),
    Media({.digest = "x", .kind = {}, .dtype = {}, .dims = Dims{'x'}, .options = {}}),
    Media({.digest = "x", .kind = {}, .dtype = {}, .dims = {}, .options = "x"}),
    Media({.digest = "y", .kind = {}, .dtype = {}, .dims = {}, .options = {}}),
    Media::text(std::vector<Token>{'x'}),
    Media()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CAPTURE(i, j);
      CHECK(all[i] != all[j]);
      CHECK(all[i].digest() != all[j].digest());
    }
  }
}

TEST_CASE("Media: the bytes and the digest are a contract between processes", "[control][media]")
{
  Dims const dims = {30, 150};
  Media const all(
    {.digest = "\xab\xcd", .kind = "image", .dtype = "u8", .dims = dims, .options = "r=1"});
  CHECK(hex(all.bytes()) ==
        "010200000000000000abcd"
        "020500000000000000696d616765"
        "0302000000000000007538"
        "0410000000000000001e000000000000009600000000000000"
        "050300000000000000723d31");
  CHECK(hex(Media::text(std::vector<Token>{1, 0x01020304}).bytes()) ==
        "0608000000000000000100000004030201");
  CHECK(all.digest() == 0xccc5603481cc4658ULL);
  CHECK(shaped({150, 30}).digest() == 0x52a9e992d21dfc90ULL);
  CHECK(Media::text(std::vector<Token>{1, 0x01020304}).digest() == 0x4ac371a428b77062ULL);
  CHECK(Media().bytes().empty());
}

TEST_CASE("Media: an item without a digest says so", "[control][media]")
{
  CHECK_FALSE(Media().has_digest());
  CHECK_FALSE(picture("", "image").has_digest());
  CHECK_FALSE(picture({}, "image").has_digest());
  CHECK(picture("a", {}).has_digest());
  CHECK(Media::text({}).has_digest());
}
