// SPDX-License-Identifier: Apache-2.0

// Rows of media in sequences: which prompts meet, where an atomic span may end, how long a declaration lasts.

#include <kvcache/control/media.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

using Spans = std::vector<MediaSpan>;

constexpr Token pad = 99;  // stands at every row of every picture

Media picture(char const* digest)
{
  return Media({.digest = digest, .kind = "image", .dtype = {}, .dims = {}, .options = {}});
}
Media const cat = picture("cat");
Media const dog = picture("dog");

using kvcache_test::open;  // beside the one below

SequenceId open(Plane& plane, Tokens const& prompt, Spans const& media)
{
  auto id = plane.open({.tokens = prompt, .media = media});
  REQUIRE(id);
  return *id;
}
Index hit(Plane const& plane, Tokens const& prompt, Spans const& media, Index tail = 1)
{
  return plane.probe({.tokens = prompt, .fresh_tail = tail, .media = media}).rows;
}
/// Leaves the prompt in the tree.
void cache(Plane& plane, Tokens const& prompt, Spans const& media)
{
  SequenceId const id = open(plane, prompt, media);
  auto const cached = plane.info(id)->length;
  append(plane, id, Tokens(prompt.begin() + cached, prompt.end()));
  REQUIRE(plane.close(id));
}
/// The refusal of a chunk, which leaves no trace.
Error refusal(Plane& plane, SequenceId id, Chunk const& chunk)
{
  StepId const step = begin(plane);
  std::uint64_t const digest = plane.digest();
  auto const added = plane.add(step, id, chunk);
  REQUIRE_FALSE(added);
  CHECK(plane.digest() == digest);
  REQUIRE(plane.drop(step));
  return added.error().detail;
}
Error refusal(Plane& plane, Tokens const& prompt, Spans const& media)
{
  std::uint64_t const digest = plane.digest();
  auto const opened = plane.open({.tokens = prompt, .media = media});
  REQUIRE_FALSE(opened);
  CHECK(plane.digest() == digest);
  CHECK(hit(plane, prompt, media) == 0);
  return opened.error();
}
Tokens names(Plane const& plane, SequenceId id)
{
  auto const tokens = plane.tokens(id);
  return {tokens.begin(), tokens.end()};
}

// Rows 2 to 6 are the cat, pages end at 4 and 8.
Tokens const look = {1, 2, pad, pad, pad, pad, pad, 3, 4, 5, 6, 7, 8};
Spans const at_2 = {{.item = &cat, .first = 2, .rows = 5}};
Spans const whole_at_2 = {{.item = &cat, .first = 2, .rows = 5, .atomic = true}};

}  // namespace

TEST_CASE("Media rows: prompts meet where items, rows and places do", "[control][media]")
{
  Plane plane = make_plane(16);
  cache(plane, look, at_2);
  CHECK(hit(plane, look, at_2) == 12);
  CHECK(hit(plane, look, {{.item = &dog, .first = 2, .rows = 5}}) == 2);
  CHECK(hit(plane, look, {{.item = &cat, .first = 2, .rows = 4}}) == 2);
  CHECK(hit(plane, look, {{.item = &cat, .first = 3, .rows = 4}}) == 2);
  CHECK(hit(plane, look, whole_at_2) == 2);
  CHECK(hit(plane, look, {}) == 2);
  Media const copy = picture("cat");
  CHECK(hit(plane, look, {{.item = &copy, .first = 2, .rows = 5}}) == 12);
  Tokens other = look;
  other[4] = 17;  // what token stands at a row of a picture is of no account
  CHECK(hit(plane, other, at_2) == 12);
  SequenceId const id = open(plane, other, {{.item = &dog, .first = 2, .rows = 5}});
  CHECK(plane.info(id)->length == 2);
  append(plane, id, Tokens(other.begin() + 2, other.end()));
  CHECK(names(plane, id)[2] < 0);
  CHECK(names(plane, id)[7] == 3);
  CHECK(hit(plane, look, {{.item = &dog, .first = 2, .rows = 5}}) == 12);
  CHECK(hit(plane, look, at_2) == 12);
  check_sound(plane);
}

TEST_CASE("Media rows: text that attends both ways is named by all of it", "[control][media]")
{
  Plane plane = make_plane(16);
  Tokens const text = numbers(1, 9);
  Spans const both = {{.first = 0, .rows = 8, .atomic = true}};
  cache(plane, text, both);
  CHECK(hit(plane, text, both) == 8);
  CHECK(hit(plane, text, {}) == 0);
  CHECK(hit(plane, text, {{.first = 0, .rows = 4, .atomic = true}}) == 0);
  Tokens other = text;
  other[6] = 77;
  CHECK(hit(plane, other, both) == 0);  // row 0 saw row 6

  // A row that is added again must be the one that was declared.
  SequenceId const id = open(plane, other, both);
  Error const error = refusal(plane, id, {.tokens = text});
  CHECK(error.why == Why::bad_token);
  CHECK(error.value == 7);
  CHECK(error.limit == 6);
  append(plane, id, other);
  CHECK(plane.info(id)->length == 9);
  check_sound(plane);
}

TEST_CASE("Media rows: a hit ends before an atomic span or behind it", "[control][media][atomic]")
{
  Plane plane = make_plane(16);
  cache(plane, look, whole_at_2);
  CHECK(hit(plane, look, whole_at_2) == 12);
  CHECK(hit(plane, {1, 2, pad, pad, pad, pad, pad, 77, 78}, whole_at_2) == 7);
  for (Index tail = 1; tail <= 13; ++tail) {
    CAPTURE(tail);
    Index const limit = 13 - tail;
    CHECK(hit(plane, look, whole_at_2, tail) == (limit >= 7 ? limit : limit >= 2 ? 2 : limit));
  }
  Plane small = make_plane(16);  // the same where its second page is gone
  cache(small, look, whole_at_2);
  SequenceId const big = open(small, numbers(200, 258));
  append(small, big, numbers(200, 258));  // 15 pages: of look's three, the first one stays
  REQUIRE(small.close(big));
  CHECK(hit(small, look, whole_at_2) == 2);
  SequenceId const id = open(small, look, whole_at_2);
  CHECK(small.info(id)->length == 2);
  append(small, id, Tokens(look.begin() + 2, look.end()));
  CHECK(names(small, id)[2] == names(small, id)[6] + 4);
  check_sound(small);
}

TEST_CASE("Media rows: a chunk does not end inside an atomic span", "[control][media][atomic]")
{
  Plane plane = make_plane(16);
  SequenceId const id = open(plane, look, whole_at_2);
  Error error = refusal(plane, id, {.tokens = std::span(look).first(4)});
  CHECK(error.value == 4);
  CHECK(error.limit == 2);
  append(plane, id, {1, 2});
  error = refusal(plane, id, {.tokens = std::span(look).subspan(2, 4)});
  CHECK(error.why == Why::bad_config);
  CHECK(error.value == 4);
  CHECK(error.limit == 5);
  append(plane, id, {pad, pad, pad, pad, pad});
  append(plane, id, {3});
  CHECK(plane.info(id)->length == 8);

  // Not atomic: anywhere.
  SequenceId const other = open(plane, look, at_2);
  append(plane, other, {pad, pad});
  append(plane, other, {pad, pad, pad, 3});
  CHECK(plane.info(other)->length == 8);
  CHECK(hit(plane, look, at_2) == 8);
  check_sound(plane);
}

TEST_CASE("Media rows: only named tokens that are no drafts lie on media", "[control][media]")
{
  Plane plane = make_plane(16);
  SequenceId const id = open(plane, look, at_2);
  std::vector<Index> const parents = {-1, 0, 1};
  Tokens const three = {1, 2, pad};
  Error error = refusal(plane, id, {.tokens = {}, .count = 3});
  CHECK(error.field == std::string("chunk.count"));
  CHECK(error.limit == 2);
  CHECK(refusal(plane, id, {.tokens = three, .draft = true}).field == std::string("chunk.draft"));
  CHECK(refusal(plane, id, {.tokens = three, .parents = parents}).field ==
        std::string("chunk.draft"));
  Tokens const negative = {1, 2, -77};
  CHECK(refusal(plane, id, {.tokens = negative}).why == Why::bad_token);

  // Rows behind drafts may still move, media do not.
  StepId const first = begin(plane);
  add_draft(plane, first, id, {1, 2});
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  Tokens const rest(look.begin() + 2, look.end());
  auto const added = plane.add(second, id, {.tokens = rest});
  REQUIRE_FALSE(added);
  CHECK(added.error().why == Why::busy);
  REQUIRE(plane.drop(second));
  REQUIRE(plane.commit(first));
  append(plane, id, rest);
  CHECK(hit(plane, look, at_2) == 12);
  check_sound(plane);
}

TEST_CASE("Media rows: what cannot be declared is refused by name", "[control][media]")
{
  Plane plane = make_plane(
    {.pages = 16, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 8, .vocabulary = 100});
  Media const nameless = picture("");
  auto const field = [&](Spans const& media) {
    Error const error = refusal(plane, look, media);
    return std::pair(std::string(error.field), error.limit.value);
  };
  using Field = std::pair<std::string, std::int64_t>;
  CHECK(field({{.item = &cat, .first = 2, .rows = 0}}) == Field("media.rows", 1));
  CHECK(field({{.item = &cat, .first = -1, .rows = 2}}).first == "media.first");
  CHECK(field({{.item = &cat, .first = 4, .rows = 2}, {.item = &cat, .first = 5, .rows = 2}}) ==
        Field("media.first", 6));
  CHECK(field({{.item = &cat, .first = 4, .rows = 2}, {.item = &cat, .first = 2, .rows = 2}}) ==
        Field("media.first", 6));
  CHECK(field({{.item = nullptr, .first = 2, .rows = 2}}).first == "media.item");
  CHECK(field({{.item = &nameless, .first = 2, .rows = 2}}).first == "media.item");
  CHECK(field({{.item = &cat, .first = 12, .rows = 2}}) == Field("media.rows", 13));
  CHECK(field({{.item = &cat, .first = 2, .rows = 0x7fffffff}}).first == "media.rows");
  CHECK(field({{.item = &cat, .first = 2, .rows = 9, .atomic = true}}) == Field("media.rows", 8));

  // Tokens keep to the vocabulary, but for the placeholders of media, which are never looked at.
  Tokens strange = look;
  strange[3] = 5000;
  REQUIRE(plane.open({.tokens = strange, .media = at_2}));
  strange[8] = 100;
  CHECK(refusal(plane, strange, at_2).why == Why::bad_token);
  Spans const text = {{.first = 7, .rows = 2, .atomic = true}};
  CHECK(refusal(plane, strange, text).why == Why::bad_token);
  check_sound(plane);
}

TEST_CASE("Media rows: a turn declares its own, also past the end of its first chunk",
          "[control][media]")
{
  Plane plane = make_plane(16);
  SequenceId const id = prefilled(plane, {1, 2, 3});
  Tokens const turn = {4, pad, pad, pad, pad, 5};
  Spans const media = {{.item = &cat, .first = 4, .rows = 2},
                       {.item = &dog, .first = 6, .rows = 2}};
  StepId const step = begin(plane);
  REQUIRE(plane.add(step, id, {.tokens = std::span(turn).first(2), .media = media}));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
  CHECK(plane.info(id)->length == 5);

  // What is declared may be said again; something else at its rows may not.
  Spans const again = {media[1]};
  Spans const clash = {{.item = &cat, .first = 7, .rows = 3}};
  Tokens const rest(turn.begin() + 2, turn.end());
  CHECK(refusal(plane, id, {.tokens = rest, .media = clash}).limit == 6);
  CHECK(refusal(plane, id, {.tokens = rest, .media = media}).field == std::string("media.first"));
  StepId const next = begin(plane);
  REQUIRE(plane.add(next, id, {.tokens = rest, .media = again}));
  REQUIRE(plane.submit(next));
  REQUIRE(plane.commit(next));

  Tokens const all = {1, 2, 3, 4, pad, pad, pad, pad, 5};
  CHECK(hit(plane, all, media) == 8);
  CHECK(hit(plane, all, {media[0]}) == 6);
  check_sound(plane);
}

TEST_CASE("Media rows: a dropped or failed step takes its declaration back, not that of open",
          "[control][media]")
{
  Plane plane = make_plane(16);
  SequenceId const id = open(plane, look, at_2);
  append(plane, id, {1, 2});
  Spans const later = {{.item = &dog, .first = 13, .rows = 3}};
  std::uint64_t const digest = plane.digest();
  StepId const dropped = begin(plane);
  Tokens const rest(look.begin() + 2, look.end());
  REQUIRE(plane.add(dropped, id, {.tokens = rest, .media = later}));
  CHECK(plane.digest() != digest);
  REQUIRE(plane.drop(dropped));
  CHECK(plane.digest() == digest);

  StepId const failed = begin(plane);
  REQUIRE(plane.add(failed, id, {.tokens = rest, .media = later}));
  REQUIRE(plane.submit(failed));
  REQUIRE(plane.fail(failed));
  CHECK(plane.info(id)->length == 2);
  append(plane, id, rest);  // rows 2 to 6 are the cat's again
  CHECK(hit(plane, look, at_2) == 12);
  append(plane, id, {pad, pad, pad});
  CHECK(names(plane, id).back() == pad);  // row 15 is nobody's
  check_sound(plane);
}

TEST_CASE("Media rows: cuts, forks and pauses", "[control][media][atomic]")
{
  Plane plane = make_plane(16);
  SequenceId const id = open(plane, look, whole_at_2);
  append(plane, id, look);
  Tokens const all = names(plane, id);
  SequenceId const twin = fork(plane, id);
  CHECK(names(plane, twin) == all);

  CHECK(*plane.truncate(twin, 7) == 7);
  CHECK(*plane.truncate(twin, 5) == 2);  // not inside the cat
  append(plane, twin, {pad});
  CHECK(names(plane, twin).back() == pad);  // the cat is forgotten there

  REQUIRE(plane.suspend(id));
  CHECK(names(plane, id) == all);
  auto const back = plane.resume(id);
  REQUIRE(back);
  CHECK(back->rows == 12);
  append(plane, id, {all.back()});
  CHECK(*plane.truncate(id, 9) == 9);
  append(plane, id, {70});
  CHECK(names(plane, id)[6] == all[6]);

  // Names go in again at their rows.
  REQUIRE(plane.suspend(id));
  plane.forget(Domain());
  REQUIRE(plane.resume(id)->rows == 0);
  append(plane, id, Tokens(all.begin(), all.begin() + 9));
  CHECK(names(plane, id) == Tokens(all.begin(), all.begin() + 9));
  Tokens const shifted = {all[3]};
  CHECK(refusal(plane, id, {.tokens = shifted}).why == Why::bad_token);

  // A picture that is not atomic may be cut, and its first rows stay named.
  SequenceId const other = open(plane, look, at_2);
  append(plane, other, look);
  CHECK(*plane.truncate(other, 5) == 5);
  append(plane, other, {pad});
  CHECK(names(plane, other)[4] < 0);
  CHECK(names(plane, other)[5] == pad);
  check_sound(plane);
}

TEST_CASE("Media rows: prompts of one step compute an atomic span once, and as a whole",
          "[control][media][atomic]")
{
  // 4 and 5 rows of pages of 4: attaching by pages alone would stop in the middle of the cat.
  Engine e(32);
  Plane& plane = e.plane;
  Tokens const text = {1, 2, 3, 4, 5, 6, pad, pad, pad, pad, pad, 7, 8};
  Spans const media = {{.item = &cat, .first = 6, .rows = 5, .atomic = true}};
  SequenceId const a = open(plane, text, media);
  SequenceId const b = open(plane, text, media);
  Tokens const less(text.begin(), text.begin() + 11);
  SequenceId const c = open(plane, less, media);
  StepId const step = begin_attaching(plane);
  CHECK(*plane.add(step, a, {.tokens = text}) == 13);
  CHECK(*plane.add(step, b, {.tokens = text}) == 1);  // 12 rows attached
  CHECK(*plane.add(step, c, {.tokens = less}) == 7);  // 4 attached: 8 would be inside the cat
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
  CHECK(names(plane, a) == names(plane, b));
  check_sound(plane);
}

TEST_CASE("Media rows: a failed step cuts nobody back into an atomic span",
          "[control][media][atomic]")
{
  // The cat ends in a page that a later chunk completes, and that step fails: who attached to that page loses the
  // whole cat, not only its last row.
  Plane plane = make_plane(32);
  Tokens const start = {1, 2, 3, 4, 5, 6, pad, pad, pad, pad, pad, pad, pad};
  Tokens const more = {7, 8, 9, 10, 11, 12, 13};
  Tokens text = start;
  text.insert(text.end(), more.begin(), more.end());
  text.push_back(14);
  Spans const media = {{.item = &cat, .first = 6, .rows = 7, .atomic = true}};  // rows 6 to 12
  SequenceId const a = open(plane, text, media);
  append(plane, a, start);
  StepId const step = begin(plane);
  add(plane, step, a, more);  // completes rows 12 to 15
  REQUIRE(plane.submit(step));
  SequenceId const b = open(plane, text, media);
  CHECK(plane.info(b)->length == 20);
  REQUIRE(plane.fail(step));
  CHECK(plane.info(a)->length == 13);
  CHECK(plane.info(b)->length == 6);
  check_sound(plane);
  SequenceId const c = fork(plane, a);
  REQUIRE(plane.close(a));
  append(plane, c, Tokens(text.begin() + 13, text.end()));
  REQUIRE(plane.suspend(c));  // only b is left, which holds a part of what is cached
  check_sound(plane);
  append(plane, b, Tokens(text.begin() + 6, text.end()));
  CHECK(names(plane, c) == names(plane, b));
  check_sound(plane);
}

TEST_CASE("Media rows: admission and pins know them", "[control][media]")
{
  Plane plane = make_plane(16);
  cache(plane, look, at_2);
  Spans const other = {{.item = &dog, .first = 2, .rows = 5}};
  auto const known = plane.admit({.tokens = look, .media = at_2});
  auto const fresh = plane.admit({.tokens = look, .media = other});
  auto const text = plane.admit({.tokens = look});
  REQUIRE(known);
  REQUIRE(fresh);
  CHECK(fresh->prompt == 4);
  CHECK(text->prompt == 4);
  CHECK(plane.probe({.tokens = look, .media = at_2}).new_pages == 1);
  CHECK_FALSE(plane.pin({.tokens = look, .media = other}));
  auto const pin = plane.pin({.tokens = look, .media = at_2});
  REQUIRE(pin);
  SequenceId const big = open(plane, numbers(200, 251));
  append(plane, big, numbers(200, 251));  // all that is not pinned
  CHECK(hit(plane, look, at_2) == 12);
  REQUIRE(plane.unpin(*pin));
  check_sound(plane);
}

TEST_CASE("Media rows: a name says what it stands for", "[control][media]")
{
  Plane plane = make_plane(16);
  SequenceId const id = open(plane, look, whole_at_2);
  append(plane, id, look);
  auto const row = plane.media_row(names(plane, id)[4]);
  REQUIRE(row);
  CHECK(*row->item == cat);
  CHECK(row->row == 2);
  CHECK(row->rows == 5);
  CHECK(row->atomic);
  CHECK_FALSE(plane.media_row(1));
  CHECK_FALSE(plane.media_row(-6));
}

TEST_CASE("Media rows: names that nobody uses are given out again, others never",
          "[control][media]")
{
  Plane plane = make_plane(16);
  SequenceId const id = open(plane, look, at_2);
  append(plane, id, look);
  Tokens const kept = names(plane, id);
  Token lowest = 0;
  for (int i = 0; i < 2000; ++i) {
    Media const item = picture(std::to_string(i).c_str());
    Tokens const prompt(8, pad);
    SequenceId const other = open(plane, prompt, {{.item = &item, .first = 0, .rows = 8}});
    append(plane, other, prompt);
    lowest = names(plane, other)[7] < lowest ? names(plane, other)[7] : lowest;
    REQUIRE(plane.close(other));
  }
  CHECK(lowest == -(5 + 2000 * 8));  // in a ring of 2^31 - 1 numbers none comes back soon
  CHECK(names(plane, id) == kept);
  CHECK(hit(plane, look, at_2) == 12);
  check_sound(plane);
}

TEST_CASE("Media rows: a cut that cuts nothing still forgets what was yet to come",
          "[control][media]")
{
  for (bool const forked : {false, true}) {
    CAPTURE(forked);
    Plane plane = make_plane(16);
    Tokens const prompt = {1, 2, 3, 4, pad, pad, pad, pad, 9};
    Spans const media = {{&cat, 4, 4}};
    SequenceId id = open(plane, prompt, media);
    append(plane, id, {1, 2, 3, 4});
    if (forked) {
      id = fork(plane, id);
    }
    REQUIRE(*plane.truncate(id, 4) == 4);
    append(plane, id, {11, 12, 13, 14});
    CHECK(hit(plane, prompt, media) == 4);
    CHECK(hit(plane, {1, 2, 3, 4, 11, 12, 13, 14, 9}, {}) == 8);
  }
}

TEST_CASE("Media rows: a fork goes on with the prompt, its pictures too", "[control][media]")
{
  Plane plane = make_plane(16);
  Tokens const prompt = {1, 2, 3, 4, pad, pad, pad, pad, 9};
  Spans const media = {{&cat, 4, 4}};
  SequenceId const id = open(plane, prompt, media);
  append(plane, id, {1, 2, 3, 4});
  SequenceId const f = fork(plane, id);
  append(plane, f, {pad, pad, pad, pad});
  CHECK(hit(plane, prompt, media) == 8);
  CHECK(hit(plane, prompt, {{&dog, 4, 4}}) == 4);
}

TEST_CASE("Media rows: text that attends both ways is made of tokens", "[control][media]")
{
  Plane plane = make_plane(16);
  Tokens const text = {-1, -2, 3};
  Spans const spans = {{nullptr, 0, 2, true}};
  auto const opened = plane.open({.tokens = text, .media = spans});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().why == Why::bad_token);
  CHECK(opened.error().value == -1);
}
