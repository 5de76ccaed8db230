// SPDX-License-Identifier: Apache-2.0
#include "llama/gguf.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "llama/config.hpp"
#include "llama/embedded_model.hpp"
#include "llama/tokenizer.hpp"
#include "support/catch.hpp"
#include "support/gguf_builder.hpp"

using kvcache_test::Contains;
using kvcache_test::GgufBuilder;
using kvcache_test::tiny_llama;
using llama::Error;
using llama::Gguf;

namespace {

GgufBuilder::Bytes floats(std::vector<float> const& values)
{
  GgufBuilder::Bytes out(values.size() * sizeof(float));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

/// One of each kind of value and two tensors, 300 bytes or so.
GgufBuilder sample()
{
  GgufBuilder b;
  b.number("count", 7).pair("minus", GgufBuilder::i32, std::int32_t{-3}).real("half", 0.5F);
  b.pair("yes", GgufBuilder::boolean, std::uint8_t{1}).text("name", "a model");
  b.texts("words", {"", "one", "two"})
    .integers("kinds", {1, -2, 3})
    .reals("scores", {0.25F, -1.0F});
  b.tensor("m", 0, {3, 2}, floats({1, 2, 3, 4, 5, 6}));
  b.tensor("q", 3, {32, 1}, GgufBuilder::Bytes(20, std::byte{9}));
  return b;
}

/// The sentence with which `bytes` is refused, "" when it is not.
std::string refusal(GgufBuilder::Bytes const& bytes)
{
  try {
    (void)Gguf::from_bytes(bytes, "test.gguf");
  } catch (Error const& error) {
    return error.what();
  }
  return "";
}

/// Touches everything a file offers. Errors are fine; nothing else may leave.
void touch_all(GgufBuilder::Bytes const& bytes)
{
  auto const ignore_errors = [](auto&& work) {
    try {
      work();
    } catch (Error const&) {  // a sentence: as good an answer as a value
    }
  };
  ignore_errors([&] {
    Gguf const file = Gguf::from_bytes(bytes, "test.gguf");
    unsigned sum = 0;
    for (llama::Tensor const& tensor : file.tensors()) {
      REQUIRE(tensor.data >= bytes.data());
      REQUIRE(tensor.data + tensor.bytes <= bytes.data() + bytes.size());
      for (std::size_t i = 0; i < tensor.bytes; ++i) {
        sum += std::to_integer<unsigned>(tensor.data[i]);
      }
    }
    for (char const* key : {"count", "minus", "half", "yes", "name", "words", "kinds", "scores"}) {
      ignore_errors([&] { (void)file.integer(key); });
      ignore_errors([&] { (void)file.real(key); });
      ignore_errors([&] { (void)file.boolean(key); });
      ignore_errors([&] { (void)file.text(key); });
      ignore_errors([&] { (void)file.texts(key); });
      ignore_errors([&] { (void)file.reals(key); });
      ignore_errors([&] { (void)file.integers(key); });
    }
    ignore_errors([&] { (void)llama::read_config(file); });
    ignore_errors([&] { (void)llama::Tokenizer(file).encode("<s> a b. 1"); });
    REQUIRE(sum + 1 > 0);
  });
}

}  // namespace

TEST_CASE("Gguf: reads back what was written", "[llama][gguf]")
{
  auto const version = GENERATE(2U, 3U);
  GgufBuilder b = sample();
  b.version = version;
  auto const bytes = b.bytes();
  Gguf const moved_from = Gguf::from_bytes(bytes, "test.gguf");
  Gguf const file = Gguf(moved_from);

  CHECK(file.integer("count") == 7);
  CHECK_FALSE(file.integer("absent"));
  CHECK(file.real("half") == 0.5);
  CHECK(file.boolean("yes") == true);
  CHECK(file.text("name") == "a model");
  CHECK(file.texts("words") == std::vector<std::string_view>{"", "one", "two"});
  CHECK(file.integers("kinds") == std::vector<std::int32_t>{1, -2, 3});
  CHECK(file.reals("scores") == std::vector<float>{0.25F, -1.0F});

  REQUIRE(file.tensors().size() == 2);
  CHECK(file.find("nothing") == nullptr);
  llama::Tensor const& m = file.need("m", {3, 2});
  CHECK(m.type == llama::TensorType::f32);
  CHECK(m.elements() == 6);
  REQUIRE(m.bytes == 24);
  float last = 0;
  std::memcpy(&last, m.data + 20, 4);
  CHECK(last == 6.0F);
  CHECK(reinterpret_cast<std::uintptr_t>(m.data) % 8 == 0);
  llama::Tensor const& q = file.need("q");
  CHECK(q.bytes == 20);
  CHECK(q.data[19] == std::byte{9});
}

TEST_CASE("Gguf: a value of another type is an error that names key and type", "[llama][gguf]")
{
  auto const bytes = sample().bytes();
  Gguf const file = Gguf::from_bytes(bytes, "test.gguf");
  CHECK_THROWS_WITH(file.integer("name"),
                    "test.gguf: metadata 'name' is string; one integer of at least 0 is right");
  CHECK_THROWS_WITH(file.integer("minus"), Contains("'minus'") && Contains("at least 0"));
  CHECK_THROWS_WITH(file.text("words"), Contains("an array of string"));
  CHECK_THROWS_WITH(file.real("count"), Contains("f32 or f64"));
  CHECK_THROWS_WITH(file.texts("kinds"), Contains("an array of strings is right"));
  CHECK_THROWS_WITH(file.need("nothing"), Contains("no tensor 'nothing'"));
  CHECK_THROWS_WITH(file.need("m", {2, 3}), Contains("shape {3, 2}") && Contains("{2, 3}"));
}

TEST_CASE("Gguf: a file cut anywhere is an error", "[llama][gguf][bad_input]")
{
  auto const whole = GENERATE(0, 1) == 0 ? sample().bytes() : tiny_llama().bytes();
  REQUIRE(refusal(whole).empty());
  std::size_t refused = 0;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    // A copy of its own, so that a sanitizer sees a read past the end.
    GgufBuilder::Bytes const cut(whole.begin(),
                                 whole.begin() + static_cast<std::ptrdiff_t>(length));
    std::string const sentence = refusal(cut);
    refused += sentence.starts_with("test.gguf: ") ? 1U : 0U;
  }
  CHECK(refused == whole.size());
}

TEST_CASE("Gguf: a byte changed anywhere never crashes", "[llama][gguf][bad_input]")
{
  auto bytes = GENERATE(0, 1) == 0 ? sample().bytes() : tiny_llama().bytes();
  std::size_t const end = std::min<std::size_t>(bytes.size(), 2000);  // behind it is tensor data
  for (std::size_t i = 0; i < end; ++i) {
    for (unsigned const flip : {0x01U, 0x02U, 0x08U, 0x80U, 0xffU}) {
      bytes[i] ^= static_cast<std::byte>(flip);
      touch_all(bytes);
      bytes[i] ^= static_cast<std::byte>(flip);
    }
  }
  CHECK(refusal(bytes).empty());
}

TEST_CASE("Gguf: lies about sizes are refused before anything is allocated",
          "[llama][gguf][bad_input]")
{
  auto const lie = GENERATE(std::uint64_t{1} << 60U,
                            std::uint64_t{1} << 63U,
                            std::numeric_limits<std::uint64_t>::max(),
                            std::uint64_t{100'000});
  SECTION("the tensor count")
  {
    GgufBuilder b = sample();
    b.num_tensors = lie;
    CHECK_THAT(refusal(b.bytes()), Contains("the tensor count is " + std::to_string(lie)));
  }
  SECTION("the metadata count")
  {
    GgufBuilder b = sample();
    b.num_pairs = lie;
    CHECK_THAT(refusal(b.bytes()), Contains("the metadata count is " + std::to_string(lie)));
  }
  SECTION("the length of an array, of numbers or strings")
  {
    auto const type = GENERATE(GgufBuilder::i32, GgufBuilder::string, GgufBuilder::u64);
    GgufBuilder b;
    b.begin_array("list", type, lie);
    CHECK_THAT(refusal(b.bytes()), Contains("metadata 'list' is " + std::to_string(lie)));
  }
  SECTION("the length of a string")
  {
    GgufBuilder b;
    b.pair("text", GgufBuilder::string, lie);
    CHECK_THAT(refusal(b.bytes()),
               Contains("metadata 'text' needs " + std::to_string(lie) + " bytes"));
  }
  SECTION("a count of things that fit as bytes but not as things")
  {
    GgufBuilder b;
    b.begin_array("list", GgufBuilder::u64, 8 + lie % 8)
      .begin_array("eight bytes and some", GgufBuilder::i32, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("hold at most"));
  }
  SECTION("a dimension")
  {
    GgufBuilder b;
    b.tensor_info("big", 0, {lie, 1}, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("tensor 'big'"));
  }
  SECTION("a product of dimensions that overflows to zero, or to one")
  {
    auto const dims =
      GENERATE(as<std::vector<std::uint64_t>>{},
               std::vector<std::uint64_t>{std::uint64_t{1} << 33U, std::uint64_t{1} << 31U},
               std::vector<std::uint64_t>{3, 0xaaaa'aaaa'aaaa'aaabU});
    GgufBuilder b = sample();
    b.tensor_info("big", 0, dims, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("tensor 'big' has shape {" + std::to_string(dims[0])));
  }
  SECTION("an offset")
  {
    GgufBuilder b = sample();
    b.tensor_info("far", 0, {1}, lie / 32 * 32);
    CHECK_THAT(refusal(b.bytes()), Contains("tensor 'far' needs 4 bytes at offset"));
  }
}

TEST_CASE("Gguf: what is not a file of this kind gets a sentence", "[llama][gguf][bad_input]")
{
  GgufBuilder b = sample();
  SECTION("another magic")
  {
    b.magic = "GGML";
    CHECK_THAT(refusal(b.bytes()), Contains("starts with 'GGML'; a GGUF file starts with 'GGUF'"));
  }
  SECTION("another version")
  {
    b.version = GENERATE(0U, 1U, 4U);
    CHECK_THAT(refusal(b.bytes()), Contains("the version is") && Contains("versions 2 and 3"));
  }
  SECTION("big-endian")
  {
    b.version = 0x0300'0000U;
    CHECK_THAT(refusal(b.bytes()), Contains("big-endian"));
  }
  SECTION("an unknown value type")
  {
    b.pair("odd", 13, std::uint32_t{0});
    CHECK_THAT(refusal(b.bytes()), Contains("metadata 'odd' has value type 13"));
  }
  SECTION("an array of arrays")
  {
    b.begin_array("deep", GgufBuilder::array, 1);
    CHECK_THAT(refusal(b.bytes()), Contains("array of arrays"));
  }
  SECTION("a key twice")
  {
    b.number("count", 8);
    CHECK_THAT(refusal(b.bytes()), Contains("metadata 'count' is there twice"));
  }
  SECTION("a tensor twice")
  {
    b.tensor("m", 0, {1}, floats({1}));
    CHECK_THAT(refusal(b.bytes()), Contains("tensor 'm' is there twice"));
  }
  SECTION("a tensor type that is not read, by name and number")
  {
    b.tensor_info("k", 13, {256}, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("type Q5_K, number 13; this program reads F32"));
  }
  SECTION("a tensor type nobody knows")
  {
    b.tensor_info("k", 999, {256}, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("type number 999"));
  }
  SECTION("no dimension, five dimensions, an empty one")
  {
    auto const dims = GENERATE(as<std::vector<std::uint64_t>>{},
                               std::vector<std::uint64_t>{},
                               std::vector<std::uint64_t>{1, 1, 1, 1, 1},
                               std::vector<std::uint64_t>{4, 0});
    b.tensor_info("d", 0, dims, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("tensor 'd' has"));
  }
  SECTION("rows that end inside a block")
  {
    b.tensor_info("r", 3, {33}, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("Q4_1 needs a multiple of 32"));
  }
  SECTION("an offset off the alignment")
  {
    b.tensor_info("o", 0, {1}, 4);
    CHECK_THAT(refusal(b.bytes()), Contains("offset 4; it must be a multiple of 32"));
  }
  SECTION("an alignment that is none")
  {
    auto const alignment = GENERATE(0U, 1U, 48U, 1U << 30U);
    b.number("general.alignment", alignment);
    CHECK_THAT(refusal(b.bytes()), Contains("general.alignment is " + std::to_string(alignment)));
  }
  SECTION("control bytes in a name are not printed")
  {
    b.tensor_info("\x1b[31m", 12, {256}, 0);
    CHECK_THAT(refusal(b.bytes()), Contains("'\\x1b[31m'"));
  }
}

TEST_CASE("Gguf: honours an alignment of its own", "[llama][gguf]")
{
  GgufBuilder b;
  b.alignment = 256;
  b.number("general.alignment", 256);
  b.tensor("x", 0, {1}, floats({1})).tensor("y", 0, {2}, floats({2, 3}));
  auto const bytes = b.bytes();
  Gguf const file = Gguf::from_bytes(bytes, "test.gguf");
  CHECK(file.need("y").data - file.need("x").data == 256);
}

TEST_CASE("Gguf: opens files and says why it cannot", "[llama][gguf]")
{
  std::string const path = "gguf_test_" + std::to_string(::getpid()) + ".gguf";
  auto const bytes = sample().bytes();
  {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<char const*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  {
    Gguf file = Gguf::open(path);
    Gguf const kept = std::move(file);
    CHECK(kept.integer("count") == 7);
    CHECK(kept.need("q").data[0] == std::byte{9});
  }
  std::ofstream(path, std::ios::trunc).close();
  CHECK_THROWS_WITH(Gguf::open(path), Contains(path) && Contains("no file with bytes"));
  std::remove(path.c_str());
  CHECK_THROWS_WITH(Gguf::open(path), Contains(path) && Contains("cannot be opened"));
  CHECK_THROWS_WITH(Gguf::open("."), Contains("no file with bytes"));
}

TEST_CASE("Gguf: the embedded model is whole", "[llama][gguf]")
{
  auto const bytes = llama::embedded_model();
  CHECK(bytes.size() <= 1'500'000);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0);
  Gguf const file = Gguf::from_bytes(bytes, "recall.gguf");
  CHECK(file.tensors().size() == 39);
  std::uint64_t parameters = 0;
  for (llama::Tensor const& tensor : file.tensors()) {
    parameters += tensor.elements();
  }
  CHECK(parameters == 664'704);
}
