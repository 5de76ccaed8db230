// SPDX-License-Identifier: Apache-2.0
#include "llama/tokenizer.hpp"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "ggml_vocab.hpp"
#include "llama/embedded_model.hpp"
#include "llama/text_stream.hpp"
#include "support/catch.hpp"
#include "support/gguf_builder.hpp"
#include "support/json.hpp"
#include "support/read_file.hpp"

using kvcache_test::Contains;
using kvcache_test::GgufBuilder;
using kvcache_test::Json;
using kvcache_test::read_file;
using llama::Gguf;
using llama::Tokenizer;
using llama_test::check_ggml_vocab;
using Ids = std::vector<std::int32_t>;
using Pieces = std::vector<std::string_view>;

namespace {

Tokenizer recall()
{
  return Tokenizer(Gguf::from_bytes(llama::embedded_model(), "recall.gguf"));
}

/// GPT-2's letter of a byte, as a token of its own.
std::string letter(unsigned byte)
{
  bool const prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  unsigned below = 0;  // how many bytes that do not print come first
  for (unsigned b = 0; b < byte; ++b) {
    below += (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? 0U : 1U;
  }
  unsigned const code = prints ? byte : 256 + below;
  return code < 0x80 ? std::string(1, static_cast<char>(code))
                     : std::string{static_cast<char>(0xc0U | (code >> 6U)),
                                   static_cast<char>(0x80U | (code & 0x3fU))};
}

/// All bytes but 0x04, a few merges, two control tokens and one that contains another.
GgufBuilder small_bpe(std::string const& pre = "smollm")
{
  std::vector<std::string> tokens = {"<|im_start|>", "<|im_end|>", "<|im_end|>!"};
  std::vector<std::int32_t> kinds = {3, 3, 4};
  for (unsigned b = 0; b < 256; ++b) {
    if (b != 4) {
      tokens.push_back(letter(b));
    }
  }
  std::string const space = letter(' ');
  for (std::string const& token : {std::string("lo"),
                                   std::string("low"),
                                   std::string("er"),
                                   space + "low",
                                   std::string("aa"),
                                   std::string("aaaa")}) {
    tokens.push_back(token);
  }
  kinds.resize(tokens.size(), 1);
  GgufBuilder b;
  b.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  b.texts("tokenizer.ggml.tokens", tokens).integers("tokenizer.ggml.token_type", kinds);
  b.texts("tokenizer.ggml.merges", {"l o", "lo w", "e r", space + " low", "a a", "aa aa"});
  b.number("tokenizer.ggml.eos_token_id", 1);
  return b;
}

Tokenizer tokenizer_of(GgufBuilder const& builder)
{
  auto const bytes = builder.bytes();
  return Tokenizer(Gguf::from_bytes(bytes, "test.gguf"));
}

std::vector<std::string> texts_of(Tokenizer const& tokenizer, std::string_view text)
{
  std::vector<std::string> out;
  for (std::int32_t const id : tokenizer.encode(text)) {
    out.push_back(tokenizer.decode(id));
  }
  return out;
}

std::filesystem::path const data_dir = KVCACHE_TEST_DATA_DIR;

}  // namespace

TEST_CASE("Tokenizer: words, digits and marks of the recall model", "[llama][tokenizer][words]")
{
  Tokenizer const t = recall();
  CHECK(t.vocab_size() == 160);
  CHECK(t.id_of("<s>") == 0);
  CHECK(t.is_control(0));
  CHECK(t.eos().empty());

  std::string const text = "<s> the code of alice is 4821. what is the code of alice?";
  Ids const ids = t.encode(text);
  REQUIRE(ids.size() == 18);
  CHECK(ids[0] == 0);
  CHECK(ids[6] == 5);  // '4' behind the token of '0', which is 1
  CHECK(ids[10] == t.id_of("."));
  CHECK(t.decode(ids) == text);
  CHECK(t.encode("the\n code  of\talice is 4 8 2 1 .") == Ids(ids.begin() + 1, ids.begin() + 11));
  CHECK(t.encode("").empty());
  CHECK(t.chat_turn("what is the room of zoe?") == "<s> what is the room of zoe?");
}

TEST_CASE("Tokenizer: a word nobody taught is an error that names it",
          "[llama][tokenizer][words][bad_input]")
{
  Tokenizer const t = recall();
  CHECK_THROWS_WITH(t.encode("the Code of alice"), Contains("'Code'") && Contains("lower-case"));
  CHECK_THROWS_WITH(t.encode("the zebra"), Contains("'zebra'"));
  CHECK_THROWS_WITH(t.encode("<unused0>"), Contains("'<unused'"));  // only rounds the matrix up
  CHECK_THROWS_WITH(t.decode(160), Contains("token 160 is out of range; 0 to 159 is right"));
  CHECK_THROWS_WITH(t.decode(-1), Contains("token -1"));
}

TEST_CASE("TextStream: recall tokens join as they do in the text",
          "[llama][tokenizer][text_stream]")
{
  Tokenizer const t = recall();
  Ids const ids = t.encode("<s> the room of zoe is 1142. then bob came to the river, it was cold.");
  llama::TextStream stream(t);
  std::string shown;
  for (std::int32_t const id : ids) {
    shown += stream.push(id);
  }
  CHECK(shown + stream.finish() ==
        "the room of zoe is 1142. then bob came to the river, it was cold.");
  llama::TextStream after(t, *t.id_of("is"));
  CHECK(after.push(*t.id_of("4")) == " 4");
  CHECK(after.push(*t.id_of("2")) == "2");
}

TEST_CASE("Utf8Stream: holds back half a letter and nothing else", "[llama][text_stream]")
{
  std::string const text = "a\xc3\xa9\xe6\x9d\xb1\xf0\x9f\x99\x82z";
  llama::Utf8Stream stream;
  std::vector<std::string> out;
  for (char const c : text) {
    out.push_back(stream.push(std::string_view(&c, 1)));
  }
  CHECK(out == std::vector<std::string>{
                 "a", "", "\xc3\xa9", "", "", "\xe6\x9d\xb1", "", "", "", "\xf0\x9f\x99\x82", "z"});
  CHECK(stream.push("\xff\x80") == "\xff\x80");  // never UTF-8: goes through
  CHECK(stream.push("\xe6\x9d").empty());
  CHECK(stream.push("x") == "\xe6\x9dx");
  CHECK(stream.push("\xf0\x9f").empty());
  CHECK(stream.finish() == "\xf0\x9f");
  CHECK(stream.finish().empty());
}

TEST_CASE("pre_tokenize: GPT-2's pattern, with and without lone digits", "[llama][tokenizer][bpe]")
{
  using llama::pre_tokenize;
  CHECK(pre_tokenize("Hello world, it's 42!", false) ==
        Pieces{"Hello", " world", ",", " it", "'s", " 42", "!"});
  CHECK(pre_tokenize("Hello world, it's 42!", true) ==
        Pieces{"Hello", " world", ",", " it", "'s", " ", "4", "2", "!"});
  CHECK(pre_tokenize("we're they'll 'quoted'", false) ==
        Pieces{"we", "'re", " they", "'ll", " '", "quoted", "'"});
  // Of several spaces the last goes to the word; before a lone digit none is left to give.
  CHECK(pre_tokenize("a   b", true) == Pieces{"a", "  ", " b"});
  CHECK(pre_tokenize("a   1", true) == Pieces{"a", "   ", "1"});
  CHECK(pre_tokenize("a   1", false) == Pieces{"a", "  ", " 1"});
  CHECK(pre_tokenize("x\n\n\ty  ", false) == Pieces{"x", "\n\n", "\t", "y", "  "});
  CHECK(pre_tokenize("na\xc3\xafve \xe6\x9d\xb1\xe4\xba\xac \xf0\x9f\x99\x82", false) ==
        Pieces{"na\xc3\xafve", " \xe6\x9d\xb1\xe4\xba\xac", " \xf0\x9f\x99\x82"});
  CHECK(pre_tokenize("x\xc2\xa0y \xe2\x85\xa7 \xc2\xbd",
                     true) ==  // no-break space; the numbers VIII and 1/2
        Pieces{"x", "\xc2\xa0", "y", " ", "\xe2\x85\xa7", " ", "\xc2\xbd"});
  CHECK(pre_tokenize("a\xff\xfe"
                     "b",
                     false) == Pieces{"a", "\xff\xfe", "b"});
  CHECK(pre_tokenize("", true).empty());
}

TEST_CASE("pre_tokenize: the pieces join to the text, whatever it is", "[llama][tokenizer][bpe]")
{
  std::uint32_t const seed = 20240;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::string_view const alphabet = "ab 1'\n\t.s\xc3\xa9\xe6\x9d\xb1\xff\xf0\x9f";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t i = random() % 20; i-- > 0;) {
      text += alphabet[random() % alphabet.size()];
    }
    std::string joined;
    for (std::string_view const piece : llama::pre_tokenize(text, round % 2 == 0)) {
      REQUIRE_FALSE(piece.empty());
      joined += piece;
    }
    REQUIRE(joined == text);
  }
}

TEST_CASE("Tokenizer: byte pairs merge by rank, leftmost first", "[llama][tokenizer][bpe]")
{
  Tokenizer const t = tokenizer_of(small_bpe());
  CHECK(texts_of(t, "low lower") == std::vector<std::string>{"low", " low", "er"});
  CHECK(texts_of(t, "aaaaaaa") == std::vector<std::string>{"aaaa", "aa", "a"});
  CHECK(texts_of(t, "12") == std::vector<std::string>{"1", "2"});
  CHECK(t.encode("").empty());
}

TEST_CASE("Tokenizer: special tokens count in raw text, the longest first",
          "[llama][tokenizer][bpe]")
{
  Tokenizer const t = tokenizer_of(small_bpe());
  CHECK(texts_of(t, "<|im_start|>low<|im_end|>!<|im_end|>") ==
        std::vector<std::string>{"<|im_start|>", "low", "<|im_end|>!", "<|im_end|>"});
  CHECK(t.encode("<|im_end|>") == Ids{1});
  CHECK(t.encode("<|im_en").size() == 7);  // half of one is text
  CHECK(t.id_of("<|im_end|>") == 1);
  CHECK(t.is_eos(1));
  CHECK_FALSE(t.is_eos(0));
  CHECK(t.chat_turn("low") == "<|im_start|>user\nlow<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("Tokenizer: encode and decode are inverse for any bytes", "[llama][tokenizer][bpe]")
{
  Tokenizer const t = tokenizer_of(small_bpe(GENERATE(as<std::string>{}, "smollm", "gpt-2")));
  std::uint32_t const seed = 7;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (std::size_t i = random() % 40; i-- > 0;) {
      unsigned char const letter_of_text = static_cast<unsigned char>("low er"[random() % 6]);
      unsigned char const byte =
        random() % 3 == 0 ? static_cast<unsigned char>(random()) : letter_of_text;
      text += byte == 4 ? 'x' : static_cast<char>(byte);
    }
    REQUIRE(t.decode(t.encode(text)) == text);
  }
}

TEST_CASE("Tokenizer: a long text without spaces stays fast and whole", "[llama][tokenizer][bpe]")
{
  Tokenizer const t = tokenizer_of(small_bpe());
  std::string const text(100'000, 'a');  // quadratic merging would take minutes
  Ids const ids = t.encode(text);
  CHECK(ids.size() == 25'000);
  CHECK(t.decode(ids) == text);
}

TEST_CASE("Tokenizer: bad vocabularies and texts get a sentence", "[llama][tokenizer][bad_input]")
{
  CHECK_THROWS_WITH(tokenizer_of(small_bpe()).encode("low\x04"), Contains("byte 4 in '\\x04'"));
  CHECK_THROWS_WITH(
    tokenizer_of(small_bpe("llama-bpe")),
    Contains("tokenizer.ggml.pre is 'llama-bpe'") && Contains("'smollm' and 'gpt-2'"));
  GgufBuilder b;
  CHECK_THROWS_WITH(tokenizer_of(b), Contains("tokenizer.ggml.tokens has 0 tokens"));
  SECTION("an unknown model")
  {
    b.text("tokenizer.ggml.model", "bert").texts("tokenizer.ggml.tokens", {"a"});
    CHECK_THROWS_WITH(
      tokenizer_of(b),
      Contains("tokenizer.ggml.model is 'bert'; this program knows 'gpt2', 'llama' and 'words'"));
  }
  SECTION("a token twice")
  {
    b.text("tokenizer.ggml.model", "words").texts("tokenizer.ggml.tokens", {"a", "a"});
    CHECK_THROWS_WITH(tokenizer_of(b), Contains("'a' twice"));
  }
  SECTION("kinds that are too few or unknown")
  {
    b.text("tokenizer.ggml.model", "words").texts("tokenizer.ggml.tokens", {"a", "b"});
    GgufBuilder few = b;
    few.integers("tokenizer.ggml.token_type", {1});
    CHECK_THROWS_WITH(tokenizer_of(few), Contains("token_type has 1 entries; there are 2 tokens"));
    b.integers("tokenizer.ggml.token_type", {1, 99});
    CHECK_THROWS_WITH(tokenizer_of(b), Contains("token 1 is 99; 1 to 6 is right"));
  }
  SECTION("an end of text past the vocabulary")
  {
    b.text("tokenizer.ggml.model", "words")
      .texts("tokenizer.ggml.tokens", {"a"})
      .number("tokenizer.ggml.eos_token_id", 1);
    CHECK_THROWS_WITH(tokenizer_of(b), Contains("eos_token_id is 1; below 1"));
  }
  SECTION("merges that are none")
  {
    auto const merge = GENERATE(as<std::string>{}, "", "a", " ", "a ", "a c", "b a");
    b.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "gpt-2")
      .texts("tokenizer.ggml.tokens", {"a", "b", "ab"});
    b.texts("tokenizer.ggml.merges", {"a b", merge});
    CHECK_THROWS_WITH(tokenizer_of(b), Contains("entry 1 of tokenizer.ggml.merges"));
  }
}

TEST_CASE("Tokenizer: SmolLM2 gives the reference's ids", "[llama][tokenizer][smollm2]")
{
  char const* const named = std::getenv("KVCACHE_SMOLLM2");
  std::filesystem::path const model = named != nullptr ? std::filesystem::path(named)
                                                       : std::filesystem::path(KVCACHE_SOURCE_DIR) /
                                                           "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  auto const reference = data_dir / "models/smollm2-135m/reference.json";
  if (!std::filesystem::exists(model) || !std::filesystem::exists(reference)) {
    std::cout << "not run: SmolLM2's token ids (needs " << model << " and " << reference << ")\n";
    CHECK_THROWS(Gguf::open((model / "absent").string()));
    return;
  }
  Tokenizer const t(Gguf::open(model.string()));
  CHECK(t.vocab_size() == 49152);
  CHECK(t.is_eos(*t.id_of("<|im_end|>")));
  Json const prompts = Json::parse(read_file(reference));
  REQUIRE(prompts.size() == 5);
  for (Json const& prompt : prompts.list()) {
    INFO(prompt["prompt"].text());
    CHECK(t.encode(prompt["prompt"].text()) == prompt["tokens"].integers());
    CHECK(t.decode(t.encode(prompt["prompt"].text())) == prompt["prompt"].text());
  }
  CHECK_THAT(
    t.chat_turn("hi"),
    kvcache_test::StartsWith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM"));
  CHECK_THAT(t.chat_turn("hi"),
             kvcache_test::EndsWith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
}

TEST_CASE("Tokenizer: GPT-2's vocabulary gives llama.cpp's ids", "[llama][tokenizer][gpt2]")
{
  check_ggml_vocab("ggml-vocab-gpt-2.gguf", false);
}
