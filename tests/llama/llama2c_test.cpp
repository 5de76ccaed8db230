// SPDX-License-Identifier: Apache-2.0
#include "llama/llama2c.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "fixture.hpp"
#include "llama/half.hpp"
#include "llama/model_file.hpp"
#include "llama/sampler.hpp"
#include "support/catch.hpp"
#include "support/read_file.hpp"

using kvcache_test::Contains;
using kvcache_test::read_file;
using llama_test::Ids;
using llama_test::Logits;
using llama_test::Runner;

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

template <class T>
void put(Bytes& out, T value)
{
  std::size_t const at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

/// One layer, width 16, two heads and one KV head of 8, hidden 24, five tokens, context 4; values count up.
Bytes checkpoint(std::int32_t vocab = 5)
{
  Bytes out;
  for (std::int32_t const field : {16, 24, 1, 2, 1, vocab, 4}) {
    put(out, field);
  }
  std::size_t const embedding = 5 * 16;
  std::size_t const layer =
    16 + 16 * 16 + 16 * 8 + 16 * 8 + 16 * 16 + 16 + 16 * 24 + 24 * 16 + 16 * 24;
  std::size_t const head = vocab < 0 ? 5 * 16 : 0;
  for (std::size_t i = 0; i < embedding + layer + 16 + 4 * 8 + head; ++i) {
    put(out, static_cast<float>(i));
  }
  return out;
}

Bytes tokens()
{
  Bytes out;
  put(out, std::int32_t{7});
  for (std::string const& token : {std::string("<unk>"),
                                   std::string("\n<s>\n"),
                                   std::string("\n</s>\n"),
                                   std::string("<0x0A>"),
                                   std::string(" a")}) {
    put(out, -1.5F);
    put(out, static_cast<std::int32_t>(token.size()));
    for (char const c : token) {
      out.push_back(static_cast<std::byte>(c));
    }
  }
  return out;
}

template <class T>
std::vector<T> numbers(std::string const& bytes, std::size_t from)
{
  std::vector<T> out((bytes.size() - from) / sizeof(T));
  std::memcpy(out.data(), bytes.data() + from, out.size() * sizeof(T));
  return out;
}

}  // namespace

TEST_CASE("llama2c: every tensor and token finds its place", "[llama][llama2c]")
{
  auto const model = llama::load_model(
    llama::Gguf::from_owned(llama::gguf_of_llama2c(checkpoint(), tokens(), "x.bin"), "x.bin"));
  CHECK(model.config.layers == 1);
  CHECK(model.config.kv_heads == 1);
  CHECK(model.config.head_dim == 8);
  CHECK(model.config.ffn == 24);
  CHECK(model.config.vocab == 5);
  CHECK(model.config.context == 4);
  CHECK(model.config.tied);
  auto const first = [](llama::Weights const& w) { return llama::load<float>(w.bytes); };
  llama::Layer const& layer = model.layers[0];
  CHECK(layer.attention_norm[0] == 80.0F);
  CHECK(first(layer.q) == 96.0F);
  CHECK(first(layer.k) == 352.0F);
  CHECK(first(layer.v) == 480.0F);
  CHECK(first(layer.o) == 608.0F);
  CHECK(layer.ffn_norm[0] == 864.0F);
  CHECK(first(layer.gate) == 880.0F);
  CHECK(first(layer.down) == 1264.0F);  // llama2.c has down between gate and up
  CHECK(first(layer.up) == 1648.0F);
  CHECK(model.output_norm[0] == 2032.0F);

  llama::Tokenizer const t(model.file);
  CHECK(t.encode("<s>a\n") == Ids{1, 4, 3});
  CHECK(t.decode(Ids{1, 4, 4, 3}) == "<s>a a\n");

  auto const untied = llama::load_model(
    llama::Gguf::from_owned(llama::gguf_of_llama2c(checkpoint(-5), tokens(), "x.bin"), "x.bin"));
  CHECK_FALSE(untied.config.tied);
  CHECK(first(untied.head) == 2080.0F);  // behind the rope tables
}

TEST_CASE("llama2c: what is cut, too long or absurd is named", "[llama][llama2c][bad_input]")
{
  Bytes const whole = checkpoint();
  Bytes const pieces = tokens();
  for (std::size_t size = 0; size < whole.size(); size += 97) {
    CHECK_THROWS_AS(llama::gguf_of_llama2c(std::span(whole).first(size), pieces, "x.bin"),
                    llama::Error);
  }
  for (std::size_t size = 0; size < pieces.size(); ++size) {
    CHECK_THROWS_AS(llama::gguf_of_llama2c(whole, std::span(pieces).first(size), "x.bin"),
                    llama::Error);
  }
  Bytes longer = whole;
  put(longer, 1.0F);
  CHECK_THROWS_WITH(llama::gguf_of_llama2c(longer, pieces, "x.bin"),
                    Contains("x.bin") && Contains("4 bytes are left"));
  Bytes heads = whole;
  heads[12] = std::byte{3};
  CHECK_THROWS_WITH(llama::gguf_of_llama2c(heads, pieces, "x.bin"), Contains("16, 3 and 1"));
  heads[12] = std::byte{0};
  CHECK_THROWS_WITH(llama::gguf_of_llama2c(heads, pieces, "x.bin"), Contains("n_heads"));
  CHECK_THROWS_WITH(llama::open_model("/absent/x.bin", "/absent/t.bin"), Contains("checkpoint"));
}

TEST_CASE("stories260K: tells the published story", "[llama][llama2c][stories260k]")
{
  fs::path const folder = fs::path(KVCACHE_TEST_DATA_DIR) / "models/stories260K";
  if (!fs::exists(folder / "stories260K.bin")) {
    std::cout << "not run: the story of stories260K (needs " << folder << ")\n";
    CHECK_THROWS_AS(llama::open_model((folder / "stories260K.bin").string(), "tok512.bin"),
                    llama::Error);
    return;
  }
  Runner runner(
    llama::open_model((folder / "stories260K.bin").string(), (folder / "tok512.bin").string()));
  Ids const expected = numbers<std::int32_t>(read_file(folder / "derived/greedy_tokens.i32"), 0);
  REQUIRE(expected.size() == 257);
  std::string const npy = read_file(folder / "derived/greedy_logits.npy");
  auto const logits = numbers<float>(npy, npy.size() - 257 * 512 * sizeof(float));
  for (llama::KvType const kv : {llama::KvType::f32, llama::KvType::f16}) {
    auto const engine = runner.engine(kv);
    Ids said{1};
    kvcache::Sequence const sequence = engine->open({.tokens = said});
    double worst = 0;
    while (said.size() < expected.size()) {
      llama::Work const work{&sequence, {&said.back(), 1}};
      auto const here = engine->step({&work, 1});
      for (std::size_t i = 0; i < here.size(); ++i) {
        double const want = static_cast<double>(logits[(said.size() - 1) * 512 + i]);
        worst = std::max(worst, std::fabs(static_cast<double>(here[i]) - want));
      }
      said.push_back(llama::greedy(here));
    }
    CHECK(said == expected);
    CHECK(worst <= (kv == llama::KvType::f32 ? 1e-3 : 0.1));
    Ids const story(said.begin() + 1, said.end());
    CHECK(runner.tokenizer.decode(story) == read_file(folder / "derived/greedy_text.txt"));
    // The published text is that of the model's own page.
    std::string const page = read_file(folder / "stories260K.md");
    CHECK_THAT(page, Contains(runner.tokenizer.decode(story)));
  }
}
