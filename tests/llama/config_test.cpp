// SPDX-License-Identifier: Apache-2.0
#include "llama/config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "llama/embedded_model.hpp"
#include "support/catch.hpp"
#include "support/gguf_builder.hpp"

using kvcache_test::Contains;
using kvcache_test::GgufBuilder;
using kvcache_test::tiny_llama;
using kvcache_test::TinyLlama;

namespace {

llama::Config config_of(GgufBuilder const& builder)
{
  auto const bytes = builder.bytes();
  return llama::read_config(llama::Gguf::from_bytes(bytes, "test.gguf"));
}

}  // namespace

TEST_CASE("Config: reads a tiny Llama and the recall model", "[llama][config]")
{
  llama::Config const tiny = config_of(tiny_llama({.layers = 2}));
  CHECK(tiny.layers == 2);
  CHECK(tiny.width == 16);
  CHECK(tiny.heads == 2);
  CHECK(tiny.kv_heads == 1);
  CHECK(tiny.vocab == 5);
  CHECK(tiny.tied);

  llama::Config const recall =
    llama::read_config(llama::Gguf::from_bytes(llama::embedded_model(), "recall.gguf"));
  CHECK(recall.layers == 4);
  CHECK(recall.width == 128);
  CHECK(recall.heads == 8);
  CHECK(recall.kv_heads == 2);
  CHECK(recall.head_dim == 32);  // not width / heads, which is 16
  CHECK(recall.ffn == 192);
  CHECK(recall.vocab == 160);
  CHECK(recall.context == 4096);
  CHECK(recall.rope_dim == 32);
  CHECK(recall.rope_base == 1e6F);
  CHECK(recall.rms_eps == 1e-5F);
  CHECK_FALSE(recall.tied);
}

TEST_CASE("Config: an unknown architecture is refused", "[llama][config][bad_input]")
{
  CHECK_THROWS_WITH(config_of(tiny_llama({}, "mamba")),
                    "test.gguf: general.architecture is 'mamba'; this program runs 'llama'");
  CHECK_THROWS_WITH(config_of(GgufBuilder()), Contains("general.architecture is absent"));
}

TEST_CASE("Config: absurd fields are refused by name", "[llama][config][bad_input]")
{
  TinyLlama t;
  SECTION("no layer")
  {
    t.layers = 0;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)),
                      Contains("llama.block_count is 0; 1 to 1024 is right"));
  }
  SECTION("no query head")
  {
    t.heads = 0;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)), Contains("llama.attention.head_count is 0"));
  }
  SECTION("KV heads that do not divide the heads")
  {
    t.heads = 3;
    t.kv_heads = 2;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)),
                      Contains("head_count_kv is 2; it must divide head_count, 3"));
  }
  SECTION("a head dimension off the multiples of 8")
  {
    t.head_dim = 12;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)),
                      Contains("is 12; a multiple of 8 from 8 to 256 is right"));
  }
  SECTION("a head dimension above 256")
  {
    t.head_dim = 264;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)), Contains("llama.attention.key_length is 264"));
  }
  SECTION("odd rotation")
  {
    t.rope_dim = 7;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)),
                      Contains("rope.dimension_count is 7; an even number"));
  }
  SECTION("rotation of more than a head")
  {
    t.rope_dim = 10;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)), Contains("up to the head dimension, 8"));
  }
  SECTION("a vocabulary of another size than the embedding")
  {
    t.vocab = 6;
    CHECK_THROWS_WITH(config_of(tiny_llama(t)),
                      Contains("tokenizer.ggml.tokens") && Contains("6 rows"));
  }
}

TEST_CASE("Config: what this decoder would do wrongly is refused", "[llama][config][bad_input]")
{
  GgufBuilder b = tiny_llama();
  GgufBuilder::Bytes const zeros(64);
  SECTION("scaled rotations")
  {
    auto const type = GENERATE(as<std::string>{}, "linear", "yarn");
    b.text("llama.rope.scaling.type", type);
    CHECK_THROWS_WITH(config_of(b), Contains("llama.rope.scaling.type is '" + type + "'"));
  }
  SECTION("no scaling, said in words, is fine")
  {
    b.text("llama.rope.scaling.type", "none");
    CHECK(config_of(b).layers == 1);
  }
  SECTION("experts")
  {
    b.number("llama.expert_count", 8);
    CHECK_THROWS_WITH(config_of(b), Contains("llama.expert_count is 8"));
  }
  SECTION("biases")
  {
    b.tensor("blk.0.attn_q.bias", 0, {16}, zeros);
    CHECK_THROWS_WITH(config_of(b), Contains("ignore tensor 'blk.0.attn_q.bias'"));
  }
  SECTION("rope factors")
  {
    b.tensor("rope_freqs.weight", 0, {4}, GgufBuilder::Bytes(16));
    CHECK_THROWS_WITH(config_of(b), Contains("rope_freqs.weight"));
  }
  SECTION("a head of another shape")
  {
    b.tensor("output.weight", 0, {16, 1}, zeros);
    CHECK_THROWS_WITH(config_of(b),
                      Contains("'output.weight' has shape {16, 1}") && Contains("{16, 5}"));
  }
  SECTION("values of another length than keys")
  {
    b.number("llama.attention.value_length", 16);
    CHECK_THROWS_WITH(config_of(b), Contains("value_length is 16; it must equal key_length, 8"));
  }
}

TEST_CASE("Config: missing fields and numbers that are none", "[llama][config][bad_input]")
{
  GgufBuilder b;
  b.text("general.architecture", "llama");
  CHECK_THROWS_WITH(config_of(b), Contains("the metadata has no llama.block_count"));
  b.number("llama.block_count", 1)
    .number("llama.embedding_length", 16)
    .number("llama.feed_forward_length", 24);
  b.number("llama.context_length", 64).number("llama.attention.head_count", 2);
  CHECK_THROWS_WITH(config_of(b),
                    Contains("the metadata has no llama.attention.layer_norm_rms_epsilon"));
  auto const eps = GENERATE(0.0F,
                            -1.0F,
                            2.0F,
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity());
  b.real("llama.attention.layer_norm_rms_epsilon", eps);
  CHECK_THROWS_WITH(config_of(b), Contains("layer_norm_rms_epsilon is") && Contains("above 0"));
}

TEST_CASE("Config: every tensor of a Llama must be there", "[llama][config][bad_input]")
{
  TinyLlama one;
  GgufBuilder b = tiny_llama(one);
  auto bytes = b.bytes();
  // The second layer that the metadata now promises has no tensors.
  std::string const key = "llama.block_count";
  auto const at =
    std::search(bytes.begin(), bytes.end(), key.begin(), key.end(), [](std::byte x, char c) {
      return x == static_cast<std::byte>(c);
    });
  REQUIRE(at != bytes.end());
  *(at + static_cast<std::ptrdiff_t>(key.size()) + 4) = std::byte{2};
  auto const file = llama::Gguf::from_bytes(bytes, "test.gguf");
  CHECK_THROWS_WITH(llama::read_config(file),
                    Contains("the file has no tensor 'blk.1.attn_norm.weight'"));
}
