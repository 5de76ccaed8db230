// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_set>

#include "printable.hpp"

namespace llama {

namespace {

/// Reads fields of one file and says what is wrong with them.
class Fields {
 public:
  explicit Fields(Gguf const& model) : model_(model) {}

  [[noreturn]] void refuse(std::string const& field,
                           std::string const& value,
                           std::string const& right) const
  {
    throw Error(model_.name() + ": " + field + " is " + value + "; " + right);
  }

  /// A whole number from 1 to `most`; `fallback` (when not 0) where the file has none.
  [[nodiscard]] int number(std::string const& key, std::uint64_t most, int fallback = 0) const
  {
    auto const value = model_.integer(key);
    if (!value && fallback == 0) {
      throw Error(model_.name() + ": the metadata has no " + key +
                  "; a Llama model has a number from 1 to " + std::to_string(most) + " there");
    }
    if (value && (*value == 0 || *value > most)) {
      refuse(key, std::to_string(*value), "1 to " + std::to_string(most) + " is right");
    }
    return value ? static_cast<int>(*value) : fallback;
  }

  /// A number above 0 and at most `most`; `fallback` (when not 0) where the file has none.
  [[nodiscard]] float positive(std::string const& key, double most, double fallback = 0.0) const
  {
    auto const value = model_.real(key);
    if (!value && fallback == 0.0) {
      throw Error(model_.name() + ": the metadata has no " + key +
                  "; a Llama model has a number above 0 there");
    }
    if (value && !(*value > 0.0 && *value <= most)) {
      refuse(
        key, std::to_string(*value), "above 0 and at most " + std::to_string(most) + " is right");
    }
    return static_cast<float>(value.value_or(fallback));
  }

 private:
  Gguf const& model_;
};

constexpr std::uint64_t max_layers = 1024;
constexpr std::uint64_t max_width = 1U << 16U;
constexpr std::uint64_t max_heads = 1024;
constexpr std::uint64_t max_head_dim = 256;
constexpr std::uint64_t max_ffn = 1U << 20U;
constexpr std::uint64_t max_vocab = 1U << 22U;
constexpr std::uint64_t max_context = 1U << 26U;
constexpr double max_rope_base = 1e12;

void refuse_what_is_not_built(Gguf const& model, Fields const& fields)
{
  auto const architecture = model.text("general.architecture");
  if (architecture != "llama") {
    fields.refuse("general.architecture",
                  architecture ? quoted(*architecture) : "absent",
                  "this program runs 'llama'");
  }
  auto const scaling = model.text("llama.rope.scaling.type");
  if (scaling && *scaling != "none") {
    fields.refuse("llama.rope.scaling.type",
                  quoted(*scaling),
                  "only 'none' is built: rotations are not scaled");
  }
  auto const linear = model.real("llama.rope.scale_linear");
  if (linear && *linear != 1.0) {
    fields.refuse("llama.rope.scale_linear",
                  std::to_string(*linear),
                  "only 1 is built: rotations are not scaled");
  }
  auto const experts = model.integer("llama.expert_count");
  if (experts.value_or(0) != 0) {
    fields.refuse("llama.expert_count",
                  std::to_string(*experts),
                  "only 0 is built: one feed-forward part a layer");
  }
}

void read_heads(Gguf const& model, Fields const& fields, Config& c)
{
  c.heads = fields.number("llama.attention.head_count", max_heads);
  c.kv_heads = fields.number("llama.attention.head_count_kv", max_heads, c.heads);
  if (c.heads % c.kv_heads != 0) {
    fields.refuse("llama.attention.head_count_kv",
                  std::to_string(c.kv_heads),
                  "it must divide head_count, " + std::to_string(c.heads));
  }
  if (!model.integer("llama.attention.key_length") && c.width % c.heads != 0) {
    fields.refuse("llama.attention.head_count",
                  std::to_string(c.heads),
                  "without key_length it must divide embedding_length, " + std::to_string(c.width));
  }
  c.head_dim = fields.number("llama.attention.key_length", max_head_dim, c.width / c.heads);
  if (c.head_dim % 8 != 0 || c.head_dim == 0 || c.head_dim > static_cast<int>(max_head_dim)) {
    fields.refuse("the head dimension (llama.attention.key_length)",
                  std::to_string(c.head_dim),
                  "a multiple of 8 from 8 to 256 is right");
  }
  int const value_dim = fields.number("llama.attention.value_length", max_head_dim, c.head_dim);
  if (value_dim != c.head_dim) {
    fields.refuse("llama.attention.value_length",
                  std::to_string(value_dim),
                  "it must equal key_length, " + std::to_string(c.head_dim));
  }
  c.rope_dim = fields.number("llama.rope.dimension_count", max_head_dim, c.head_dim);
  if (c.rope_dim % 2 != 0 || c.rope_dim > c.head_dim) {
    fields.refuse(
      "llama.rope.dimension_count",
      std::to_string(c.rope_dim),
      "an even number up to the head dimension, " + std::to_string(c.head_dim) + ", is right");
  }
}

/// Counts the tensors a Llama needs, checks each, and refuses any other.
class TensorCheck {
 public:
  explicit TensorCheck(Gguf const& model) : model_(model) {}

  void need(std::string const& name, std::initializer_list<std::uint64_t> dims)
  {
    Tensor const& tensor = model_.need(name, dims);
    if (dims.size() == 1 && tensor.type != TensorType::f32) {
      throw Error(model_.name() + ": tensor " + quoted(name) + " has type number " +
                  std::to_string(static_cast<std::uint32_t>(tensor.type)) +
                  "; a norm is F32, number 0");
    }
    known_.insert(name);
  }

  void refuse_others() const
  {
    for (Tensor const& tensor : model_.tensors()) {
      if (!known_.contains(tensor.name)) {
        throw Error(model_.name() + ": this program would ignore tensor " + quoted(tensor.name) +
                    " and answer wrongly; a Llama without biases, experts and rope factors has "
                    "none of that name");
      }
    }
  }

 private:
  Gguf const& model_;
  std::unordered_set<std::string> known_;
};

void check_tensors(Gguf const& model, Config const& c)
{
  auto const size = [](int n) { return static_cast<std::uint64_t>(n); };
  std::uint64_t const width = size(c.width);
  std::uint64_t const q_width = size(c.heads) * size(c.head_dim);
  std::uint64_t const kv_width = size(c.kv_heads) * size(c.head_dim);
  TensorCheck check(model);
  check.need("token_embd.weight", {width, size(c.vocab)});
  for (int n = 0; n < c.layers; ++n) {
    std::string const block = "blk." + std::to_string(n) + ".";
    check.need(block + "attn_norm.weight", {width});
    check.need(block + "attn_q.weight", {width, q_width});
    check.need(block + "attn_k.weight", {width, kv_width});
    check.need(block + "attn_v.weight", {width, kv_width});
    check.need(block + "attn_output.weight", {q_width, width});
    check.need(block + "ffn_norm.weight", {width});
    check.need(block + "ffn_gate.weight", {width, size(c.ffn)});
    check.need(block + "ffn_up.weight", {width, size(c.ffn)});
    check.need(block + "ffn_down.weight", {size(c.ffn), width});
  }
  check.need("output_norm.weight", {width});
  if (!c.tied) {
    check.need("output.weight", {width, size(c.vocab)});
  }
  check.refuse_others();
}

}  // namespace

Config read_config(Gguf const& model)
{
  Fields const fields(model);
  refuse_what_is_not_built(model, fields);
  Config c;
  c.layers = fields.number("llama.block_count", max_layers);
  c.width = fields.number("llama.embedding_length", max_width);
  c.ffn = fields.number("llama.feed_forward_length", max_ffn);
  c.context = fields.number("llama.context_length", max_context);
  read_heads(model, fields, c);
  c.rope_base = fields.positive("llama.rope.freq_base", max_rope_base, 10000.0);
  c.rms_eps = fields.positive("llama.attention.layer_norm_rms_epsilon", 1.0);
  c.tied = model.find("output.weight") == nullptr;

  Tensor const& embedding = model.need("token_embd.weight");
  if (embedding.dims.size() != 2 || embedding.dims[1] > max_vocab) {
    fields.refuse(
      "the number of dimensions or rows of tensor 'token_embd.weight'",
      std::to_string(embedding.dims.size()) + " and " + std::to_string(embedding.dims.back()),
      "2 dimensions and at most " + std::to_string(max_vocab) + " rows are right");
  }
  c.vocab = static_cast<int>(embedding.dims[1]);
  int const stated = fields.number("llama.vocab_size", max_vocab, c.vocab);
  auto const tokens = model.texts("tokenizer.ggml.tokens");
  if (stated != c.vocab || (tokens && tokens->size() != embedding.dims[1])) {
    fields.refuse("the vocabulary (llama.vocab_size, tokenizer.ggml.tokens)",
                  std::to_string(stated) + " and " + std::to_string(tokens ? tokens->size() : 0),
                  "the embedding has " + std::to_string(c.vocab) + " rows");
  }
  check_tensors(model, c);
  return c;
}

}  // namespace llama
