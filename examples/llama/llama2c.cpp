// SPDX-License-Identifier: Apache-2.0
#include "llama2c.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "error.hpp"
#include "gguf_writer.hpp"
#include "half.hpp"

namespace llama {
namespace {

struct Header {
  std::int32_t dim, hidden, layers, heads, kv_heads, vocab, context;
};

[[noreturn]] void refuse(std::string const& name, std::string const& what)
{
  throw Error(name + ": " + what);
}

std::uint64_t size_of(std::int32_t n)
{
  return static_cast<std::uint64_t>(n);
}

Header read_header(std::span<std::byte const> checkpoint, std::string const& name)
{
  if (checkpoint.size() < sizeof(Header)) {
    refuse(name,
           "the file has " + std::to_string(checkpoint.size()) +
             " bytes; it is neither a GGUF nor a checkpoint of llama2.c, whose header takes 28");
  }
  auto const header = load<Header>(checkpoint.data());
  constexpr std::int32_t most = 1 << 22;
  std::array const fields = {
    header.dim,
    header.hidden,
    header.layers,
    header.heads,
    header.kv_heads,
    header.vocab < 0 && header.vocab >= -most ? -header.vocab : header.vocab,
    header.context};
  constexpr std::array<char const*, 7> names = {
    "dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] < 1 || fields[i] > most) {
      refuse(name,
             "field " + std::string(names[i]) + " of the checkpoint is " +
               std::to_string(fields[i]) + "; 1 to " + std::to_string(most) +
               " is right (the file is neither a GGUF nor a checkpoint of llama2.c)");
    }
  }
  if (header.dim % header.heads != 0 || header.heads % header.kv_heads != 0) {
    refuse(name,
           "dim, n_heads and n_kv_heads of the checkpoint are " + std::to_string(header.dim) +
             ", " + std::to_string(header.heads) + " and " + std::to_string(header.kv_heads) +
             "; each must be a multiple of the next");
  }
  return header;
}

/// Takes tensors off the front of the checkpoint.
class Tensors {
 public:
  Tensors(std::span<std::byte const> rest, std::string const& name, GgufWriter& out)
      : rest_(rest), name_(name), out_(out)
  {
  }

  void take(std::string_view tensor, std::uint64_t in, std::uint64_t rows = 0)
  {
    std::array const dims = {in, rows};
    out_.tensor(
      tensor, std::span(dims).first(rows == 0 ? 1 : 2), cut(tensor, in * (rows == 0 ? 1 : rows)));
  }
  /// The same tensor of all layers.
  void take_layers(std::string_view tensor,
                   Header const& h,
                   std::uint64_t in,
                   std::uint64_t rows = 0)
  {
    for (std::int32_t layer = 0; layer < h.layers; ++layer) {
      take("blk." + std::to_string(layer) + "." + std::string(tensor), in, rows);
    }
  }
  void skip(std::uint64_t floats) { (void)cut("the rope tables", floats); }
  void end() const
  {
    if (!rest_.empty()) {
      refuse(name_,
             std::to_string(rest_.size()) + " bytes are left behind the last tensor; 0 is right");
    }
  }

 private:
  std::span<std::byte const> cut(std::string_view what, std::uint64_t floats)
  {
    if (floats > rest_.size() / 4) {
      refuse(name_,
             std::string(what) + " takes " + std::to_string(floats) + " floats, " +
               std::to_string(rest_.size() / 4) + " are left; the file is cut short");
    }
    auto const out = rest_.first(static_cast<std::size_t>(floats) * 4);
    rest_ = rest_.subspan(out.size());
    return out;
  }

  std::span<std::byte const> rest_;
  std::string const& name_;
  GgufWriter& out_;
};

/// llama2.c writes spaces plainly and puts lines around its two control tokens; GGUF has the pieces' own texts.
std::string piece_text(std::size_t id, std::string_view written)
{
  if (id == 1 || id == 2) {
    return id == 1 ? "<s>" : "</s>";
  }
  std::string out;
  for (char const c : written) {
    out += c == ' ' ? std::string("\xe2\x96\x81") : std::string(1, c);
  }
  return out;
}

void write_tokens(std::span<std::byte const> tokenizer,
                  std::size_t vocab,
                  std::string const& name,
                  GgufWriter& out)
{
  constexpr std::size_t first_byte = 3;
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  auto rest = tokenizer.subspan(tokenizer.size() < 4 ? tokenizer.size() : 4);
  for (std::size_t id = 0; id < vocab; ++id) {
    auto const bytes = rest.size() < 8 ? -1 : load<std::int32_t>(rest.data() + 4);
    if (bytes < 0 || static_cast<std::size_t>(bytes) > rest.size() - 8) {
      refuse(name,
             "the tokenizer ends inside token " + std::to_string(id) + "; the checkpoint has " +
               std::to_string(vocab));
    }
    auto const size = static_cast<std::size_t>(bytes);
    scores.push_back(load<float>(rest.data()));
    texts.push_back(piece_text(id, {reinterpret_cast<char const*>(rest.data()) + 8, size}));
    // GGUF's kinds: normal 1, unknown 2, control 3, byte 6.
    kinds.push_back(id == 0                                                 ? 2
                    : id < first_byte                                       ? 3
                    : id < first_byte + 256 && texts[id].starts_with("<0x") ? 6
                                                                            : 1);
    rest = rest.subspan(8 + size);
  }
  out.text("tokenizer.ggml.model", "llama");
  out.texts("tokenizer.ggml.tokens", std::vector<std::string_view>(texts.begin(), texts.end()));
  out.reals("tokenizer.ggml.scores", scores);
  out.integers("tokenizer.ggml.token_type", kinds);
  out.number("tokenizer.ggml.bos_token_id", 1);
  out.number("tokenizer.ggml.eos_token_id", 2);
}

}  // namespace

std::vector<std::byte> gguf_of_llama2c(std::span<std::byte const> checkpoint,
                                       std::span<std::byte const> tokenizer,
                                       std::string const& name)
{
  Header const h = read_header(checkpoint, name);
  bool const tied = h.vocab > 0;
  std::uint64_t const vocab = size_of(std::abs(h.vocab));
  std::uint64_t const dim = size_of(h.dim);
  std::uint64_t const hidden = size_of(h.hidden);
  std::uint64_t const head_dim = size_of(h.dim / h.heads);
  std::uint64_t const kv = head_dim * size_of(h.kv_heads);
  GgufWriter out;
  auto const number = [&](char const* key, std::int32_t value) {
    out.number(std::string("llama.") + key, static_cast<std::uint32_t>(value));
  };
  out.text("general.architecture", "llama");
  number("block_count", h.layers);
  number("embedding_length", h.dim);
  number("feed_forward_length", h.hidden);
  number("context_length", h.context);
  number("attention.head_count", h.heads);
  number("attention.head_count_kv", h.kv_heads);
  out.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  out.real("llama.rope.freq_base", 10000.0F);
  write_tokens(tokenizer, static_cast<std::size_t>(vocab), name, out);

  Tensors tensors(checkpoint.subspan(sizeof(Header)), name, out);
  tensors.take("token_embd.weight", dim, vocab);
  tensors.take_layers("attn_norm.weight", h, dim);
  tensors.take_layers("attn_q.weight", h, dim, dim);
  tensors.take_layers("attn_k.weight", h, dim, kv);
  tensors.take_layers("attn_v.weight", h, dim, kv);
  tensors.take_layers("attn_output.weight", h, dim, dim);
  tensors.take_layers("ffn_norm.weight", h, dim);
  tensors.take_layers("ffn_gate.weight", h, dim, hidden);
  tensors.take_layers("ffn_down.weight", h, hidden, dim);
  tensors.take_layers("ffn_up.weight", h, dim, hidden);
  tensors.take("output_norm.weight", dim);
  tensors.skip(size_of(h.context) * head_dim);  // cosines and sines, which Rope computes
  if (!tied) {
    tensors.take("output.weight", dim, vocab);
  }
  tensors.end();
  return out.bytes();
}

}  // namespace llama
