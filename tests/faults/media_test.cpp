// SPDX-License-Identifier: Apache-2.0
// Faults of section 1 that are about pictures: what their rows are called, and what a name says.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faults/subject.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

using Dims = std::vector<std::uint64_t>;

struct Shown {
  kvcache::Media item;
  kvcache::Index first;
  kvcache::Index rows;
};

kvcache::Media picture(std::string_view digest, Dims const& dims = {})
{
  return kvcache::Media(
    {.digest = digest, .kind = "image", .dtype = "u8", .dims = dims, .options = {}});
}

/// The library: rows of pictures are declared.
struct Declared {
  static std::vector<kvcache::MediaSpan> spans(std::vector<Shown> const& shown)
  {
    std::vector<kvcache::MediaSpan> out;
    for (Shown const& s : shown) {
      out.push_back({.item = &s.item, .first = s.first, .rows = s.rows});
    }
    return out;
  }
};
/// The fault of B-006: all that counts are token ids, and every picture expands to the same one.
struct TokensOnly {
  static std::vector<kvcache::MediaSpan> spans(std::vector<Shown> const&) { return {}; }
};

/// A cache of pages of 4 tokens where prompts may show pictures, known as `Names` says.
template <class Names>
class Gallery {
 public:
  Gallery() : cache_(make()) {}

  void cache(Text const& text, std::vector<Shown> const& shown)
  {
    auto const media = Names::spans(shown);
    auto s = cache_.open({.tokens = text, .media = media});
    auto const hit = static_cast<std::size_t>(s->length());
    auto step = cache_.prepare({{*s, std::span(text).subspan(hit)}});
    (void)step->commit();
  }
  /// A chat: the second turn shows pictures.
  void chat(Text const& first, Text const& turn, std::vector<Shown> const& shown)
  {
    auto const media = Names::spans(shown);
    auto s = cache_.open({.tokens = first});
    auto const hit = static_cast<std::size_t>(s->length());
    (void)cache_.prepare({{*s, std::span(first).subspan(hit)}})->commit();
    (void)cache_
      .prepare({{.sequence = *s,
                 .tokens = turn,
                 .count = 0,
                 .draft = false,
                 .parents = {},
                 .media = media}})
      ->commit();
  }
  /// Rows that a prompt hits whose next token comes after `text`.
  kvcache::Hit hit(Text text, std::vector<Shown> const& shown)
  {
    auto const media = Names::spans(shown);
    text.push_back(1000);
    return cache_.probe({.tokens = text, .media = media});
  }
  bool sound() { return static_cast<bool>(cache_.check_invariants()); }

 private:
  static RealCache::Cache make()
  {
    kvcache::Options<kvcache::Policies<>> options;
    options.pages = 8;
    auto cache = RealCache::Cache::create({.layers = 1, .kv_heads = 1}, options);
    return std::move(*cache);
  }
  RealCache::Cache cache_;
};

template <class Names>
bool pictures_are_apart()
{
  kvcache::Media const a = picture("A");
  kvcache::Media const b = picture("B");
  Text const inside = {5, 6, 99, 99, 99, 99, 7, 8};
  Text const behind = {5, 6, 7, 8, 99, 99, 99, 99};
  Text const shifted = {5, 6, 7, 99, 99, 99, 99, 8};
  Gallery<Names> gallery;
  gallery.cache(inside, {{a, 2, 4}});
  kvcache::Hit const other = gallery.hit(inside, {{b, 2, 4}});
  bool right = other.shared_rows == 0 && other.rows == 2;  // the words before the picture
  right = right && gallery.hit(inside, {{a, 2, 4}}).rows == 8;
  gallery.cache(behind, {{a, 4, 4}});
  right = right && gallery.hit(behind, {{b, 4, 4}}).rows == 4;  // the page of text is shared
  right = right && gallery.hit(behind, {{a, 4, 4}}).rows == 8;
  // Rows 3 to 6 hold the picture; what is cached has it from row 4 on.
  right = right && gallery.hit(shifted, {{a, 3, 4}}).rows == 3;
  Text const turn = {99, 99, 99, 9};
  Gallery<Names> chats;
  chats.chat({1, 2, 3, 4}, turn, {{a, 4, 3}});
  right = right && chats.hit(joined({1, 2, 3, 4}, turn), {{b, 4, 3}}).rows == 4;
  right = right && chats.hit(joined({1, 2, 3, 4}, turn), {{a, 4, 3}}).rows == 8;
  return right && gallery.sound() && chats.sound();
}

/// What the twin of B-008 makes a key of: the bytes of the fields, one behind the other, and no shape.
std::string glued(kvcache::MediaFields const& fields)
{
  return std::string(fields.digest) + std::string(fields.kind) + std::string(fields.dtype) +
         std::string(fields.options);
}
std::string own(kvcache::MediaFields const& fields)
{
  return std::string(kvcache::Media(fields).bytes());
}

template <class Key>
bool all_differ(std::vector<kvcache::MediaFields> const& all, Key const& key)
{
  bool differ = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      differ = differ && key(all[i]) != key(all[j]);
    }
  }
  return differ;
}

}  // namespace

TEST_CASE("B-006 a different image behind the same placeholder tokens", "[faults][media]")
{
  CHECK(pictures_are_apart<Declared>());
  CHECK_FALSE(pictures_are_apart<TokensOnly>());
}

TEST_CASE("B-008 a picture's key that is blind to its shape, or to where one field ends",
          "[faults][media]")
{
  Dims const wide = {30, 150};
  Dims const high = {150, 30};
  Dims const flat = {4500};
  auto const shaped = [](Dims const& dims) {
    return kvcache::MediaFields{
      .digest = "x", .kind = "image", .dtype = "u8", .dims = dims, .options = {}};
  };
  auto const typed = [](std::string_view kind, std::string_view options) {
    return kvcache::MediaFields{
      .digest = "x", .kind = kind, .dtype = {}, .dims = {}, .options = options};
  };
  std::vector<kvcache::MediaFields> const shapes = {shaped(wide), shaped(high), shaped(flat)};
  std::vector<kvcache::MediaFields> const ends = {
    typed("ab", "c"), typed("a", "bc"), typed("abc", ""), typed("abc", {})};
  CHECK(all_differ(shapes, own));
  CHECK_FALSE(all_differ(shapes, glued));
  CHECK(all_differ(ends, own));
  CHECK_FALSE(all_differ(ends, glued));

  // The same through a cache; the twin leaves the shape out of both.
  auto const hits = [&](Dims const& cached, Dims const& asked) {
    Text const text = {99, 99, 99, 99, 7, 8, 9, 10};
    Gallery<Declared> gallery;
    gallery.cache(text, {{picture("x", cached), 0, 4}});
    return gallery.hit(text, {{picture("x", asked), 0, 4}}).rows;
  };
  CHECK(hits(wide, high) == 0);
  CHECK(hits(wide, flat) == 0);
  CHECK(hits(wide, wide) == 8);
  CHECK_FALSE(hits({}, {}) == 0);
  // The bytes are a contract between processes: {tag, length, bytes} for each field that is there.
  CHECK(own(typed("ab", {})) == std::string("\1\1\0\0\0\0\0\0\0x\2\2\0\0\0\0\0\0\0ab", 21));
  CHECK(own({.digest = "x", .kind = {}, .dtype = {}, .dims = flat, .options = {}}) ==
        std::string("\1\1\0\0\0\0\0\0\0x\4\10\0\0\0\0\0\0\0\x94\x11\0\0\0\0\0\0", 27));
}
