// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include "ggml_vocab.hpp"
#include "llama/text_stream.hpp"
#include "llama/tokenizer.hpp"
#include "support/catch.hpp"
#include "support/gguf_builder.hpp"

using kvcache_test::Contains;
using kvcache_test::GgufBuilder;
using llama::Gguf;
using llama::Tokenizer;
using llama_test::check_ggml_vocab;
using Ids = std::vector<std::int32_t>;

namespace {

std::string const space = "\xe2\x96\x81";

std::string byte_token(unsigned byte)
{
  constexpr char const* digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
}

/// `<unk> <s> </s>`, all bytes, then pieces with their scores.
GgufBuilder small_pieces(bool with_bytes = true)
{
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> kinds = {2, 3, 3};
  std::vector<float> scores(3, 0.0F);
  for (unsigned b = 0; with_bytes && b < 256; ++b) {
    tokens.push_back(byte_token(b));
    kinds.push_back(6);
    scores.push_back(0.0F);
  }
  struct Piece {
    std::string text;
    float score;
  };
  for (Piece const& piece : {Piece{space, -9},
                             Piece{"a", -10},
                             Piece{"b", -11},
                             Piece{"c", -12},
                             Piece{"ab", -2},
                             Piece{"bc", -1},
                             Piece{"abc", -3},
                             Piece{"aa", -4},
                             Piece{space + "a", -5},
                             Piece{space + space, -6}}) {
    tokens.push_back(piece.text);
    kinds.push_back(1);
    scores.push_back(piece.score);
  }
  GgufBuilder b;
  b.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens);
  b.integers("tokenizer.ggml.token_type", kinds).reals("tokenizer.ggml.scores", scores);
  b.number("tokenizer.ggml.eos_token_id", 2);
  return b;
}

Tokenizer tokenizer_of(GgufBuilder const& builder)
{
  auto const bytes = builder.bytes();
  return Tokenizer(Gguf::from_bytes(bytes, "test.gguf"));
}

/// The tokens' own texts, with bars between.
std::string pieces_of(Tokenizer const& t, std::string_view text)
{
  std::string out;
  for (std::int32_t const id : t.encode(text)) {
    std::string token;
    for (std::string const& known : {std::string("abc"),
                                     std::string("bc"),
                                     std::string("ab"),
                                     std::string("aa"),
                                     std::string("a"),
                                     std::string("b"),
                                     std::string("c"),
                                     space,
                                     space + "a",
                                     space + space}) {
      if (t.id_of(known) == id) {
        token = known;
      }
    }
    out += (out.empty() ? "" : "|") + (token.empty() ? t.decode(id) : token);
  }
  return out;
}

}  // namespace

TEST_CASE("SentencePiece: the best score merges first, the leftmost of equals",
          "[llama][tokenizer][sentence_piece]")
{
  Tokenizer const t = tokenizer_of(small_pieces());
  CHECK(pieces_of(t, "abc") == space + "|abc");   // bc (-1) before ab (-2), then a + bc
  CHECK(pieces_of(t, "aaa") == space + "|aa|a");  // aa (-4) before space + a (-5), the left one
  CHECK(pieces_of(t, "a") == space + "a");
  CHECK(pieces_of(t, "  a") == space + space + "|" + space + "a");
  CHECK(t.encode("").empty());
}

TEST_CASE("SentencePiece: a letter without a piece becomes its bytes, and comes back",
          "[llama][tokenizer][sentence_piece]")
{
  Tokenizer const t = tokenizer_of(small_pieces());
  CHECK(t.encode("\n") == Ids{*t.id_of(space), 3 + 10});
  CHECK(t.encode("\xc3\xa4") == Ids{*t.id_of(space), 3 + 0xc3, 3 + 0xa4});
  CHECK(t.encode("\xff") == Ids{*t.id_of(space), 3 + 0xff});
  for (std::string const& text : {std::string("abc \xc3\xa4\n  b"),
                                  std::string(" a"),
                                  std::string("<s>a<s> b"),
                                  std::string()}) {
    CHECK(t.decode(t.encode(text)) == text);
  }
  llama::TextStream stream(t, -1);
  CHECK(stream.push(3 + 0xc3).empty());  // half a letter is held back
  CHECK(stream.push(3 + 0xa4) == "\xc3\xa4");
}

TEST_CASE("SentencePiece: special tokens count, and a space goes in front behind them",
          "[llama][tokenizer][sentence_piece]")
{
  Tokenizer const t = tokenizer_of(small_pieces());
  Ids const ids = t.encode("<s>a</s>");
  CHECK(ids == Ids{1, *t.id_of(space + "a"), 2});
  CHECK(t.is_eos(2));
  GgufBuilder plain = small_pieces();
  plain.pair("tokenizer.ggml.add_space_prefix", GgufBuilder::boolean, std::uint8_t{0});
  CHECK(tokenizer_of(plain).encode("a") == Ids{*t.id_of("a")});
}

TEST_CASE("SentencePiece: bad vocabularies and texts get a sentence",
          "[llama][tokenizer][sentence_piece][bad_input]")
{
  GgufBuilder none;
  none.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a"});
  CHECK_THROWS_WITH(tokenizer_of(none), Contains("tokenizer.ggml.scores has 0 entries"));
  none.reals("tokenizer.ggml.scores", {1, 2});
  CHECK_THROWS_WITH(tokenizer_of(none), Contains("has 2 entries; there are 1 tokens"));
  CHECK_THROWS_WITH(tokenizer_of(small_pieces(false)).encode("x"), Contains("'x'"));
}

TEST_CASE("SentencePiece: a long text without spaces stays fast and whole",
          "[llama][tokenizer][sentence_piece]")
{
  Tokenizer const t = tokenizer_of(small_pieces());
  std::string const text(200'000, 'a');
  Ids const ids = t.encode(text);
  CHECK(ids.size() == 100'001);
  CHECK(t.decode(ids) == text);
}

TEST_CASE("SentencePiece: Llama's vocabulary gives llama.cpp's ids",
          "[llama][tokenizer][sentence_piece]")
{
  check_ggml_vocab("ggml-vocab-llama-spm.gguf", true);
}
