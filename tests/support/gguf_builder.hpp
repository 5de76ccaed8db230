// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Writes GGUF files in memory, right ones and wrong ones.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace kvcache_test {

/// Collects metadata and tensors; `bytes()` is the file.
class GgufBuilder {
 public:
  using Bytes = std::vector<std::byte>;

  // GGUF's numbers of value types.
  static constexpr std::uint32_t u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9,
                                 u64 = 10;

  std::uint32_t version = 3;
  std::string magic = "GGUF";
  std::uint64_t alignment = 32;  // of the layout; the key is written by the test that wants it

  GgufBuilder& number(std::string_view key, std::uint32_t value) { return pair(key, u32, value); }
  GgufBuilder& real(std::string_view key, float value) { return pair(key, f32, value); }
  GgufBuilder& text(std::string_view key, std::string_view value)
  {
    begin(key, string);
    put_string(pairs_, value);
    return *this;
  }
  GgufBuilder& texts(std::string_view key, std::vector<std::string> const& values)
  {
    begin_array(key, string, values.size());
    for (std::string const& value : values) {
      put_string(pairs_, value);
    }
    return *this;
  }
  GgufBuilder& integers(std::string_view key, std::vector<std::int32_t> const& values)
  {
    begin_array(key, i32, values.size());
    for (std::int32_t const value : values) {
      put(pairs_, value);
    }
    return *this;
  }
  GgufBuilder& reals(std::string_view key, std::vector<float> const& values)
  {
    begin_array(key, f32, values.size());
    for (float const value : values) {
      put(pairs_, value);
    }
    return *this;
  }
  /// A value of any type, right or not.
  template <class T>
  GgufBuilder& pair(std::string_view key, std::uint32_t type, T value)
  {
    begin(key, type);
    put(pairs_, value);
    return *this;
  }
  /// The head of an array whose elements the caller adds, or does not.
  GgufBuilder& begin_array(std::string_view key, std::uint32_t type, std::uint64_t count)
  {
    begin(key, array);
    put(pairs_, type);
    put(pairs_, count);
    return *this;
  }

  GgufBuilder& tensor(std::string_view name,
                      std::uint32_t type,
                      std::vector<std::uint64_t> const& dims,
                      Bytes const& data)
  {
    tensor_info(name, type, dims, data_.size());
    data_.insert(data_.end(), data.begin(), data.end());
    last_ = data_.size();
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  /// The entry of a tensor alone, with any offset.
  GgufBuilder& tensor_info(std::string_view name,
                           std::uint32_t type,
                           std::vector<std::uint64_t> const& dims,
                           std::uint64_t offset)
  {
    ++num_tensors;
    put_string(infos_, name);
    put(infos_, static_cast<std::uint32_t>(dims.size()));
    for (std::uint64_t const d : dims) {
      put(infos_, d);
    }
    put(infos_, type);
    put(infos_, offset);
    return *this;
  }

  /// Ends with the last byte of the last tensor, without padding behind it.
  [[nodiscard]] Bytes bytes() const
  {
    Bytes out;
    for (char const c : magic) {
      out.push_back(static_cast<std::byte>(c));
    }
    put(out, version);
    put(out, num_tensors);
    put(out, num_pairs);
    out.insert(out.end(), pairs_.begin(), pairs_.end());
    out.insert(out.end(), infos_.begin(), infos_.end());
    if (!data_.empty()) {
      out.resize((out.size() + alignment - 1) / alignment * alignment);
      out.insert(out.end(), data_.begin(), data_.begin() + static_cast<std::ptrdiff_t>(last_));
    }
    return out;
  }

  std::uint64_t num_tensors = 0;  // may be set to a lie before bytes()
  std::uint64_t num_pairs = 0;

 private:
  template <class T>
  static void put(Bytes& out, T value)
  {
    std::size_t const at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
  }
  static void put_string(Bytes& out, std::string_view value)
  {
    put(out, static_cast<std::uint64_t>(value.size()));
    for (char const c : value) {
      out.push_back(static_cast<std::byte>(c));
    }
  }
  void begin(std::string_view key, std::uint32_t type)
  {
    ++num_pairs;
    put_string(pairs_, key);
    put(pairs_, type);
  }

  Bytes pairs_;
  Bytes infos_;
  Bytes data_;
  std::size_t last_ = 0;
};

/// The sizes of a small Llama; each may be bent before `tiny_llama` writes it.
struct TinyLlama {
  std::uint32_t layers = 1, width = 16, heads = 2, kv_heads = 1, head_dim = 8, ffn = 24, vocab = 5,
                context = 64, rope_dim = 8;
};

/// A Llama of zeros, F32, with tokenizer `words` (`<s> a b . 1`)..
[[nodiscard]] inline GgufBuilder tiny_llama(TinyLlama const& t = {},
                                            std::string_view architecture = "llama")
{
  GgufBuilder out;
  out.text("general.architecture", architecture);
  out.number("llama.block_count", t.layers).number("llama.embedding_length", t.width);
  out.number("llama.feed_forward_length", t.ffn).number("llama.context_length", t.context);
  out.number("llama.attention.head_count", t.heads)
    .number("llama.attention.head_count_kv", t.kv_heads);
  out.number("llama.attention.key_length", t.head_dim)
    .number("llama.rope.dimension_count", t.rope_dim);
  out.real("llama.attention.layer_norm_rms_epsilon", 1e-5F).real("llama.rope.freq_base", 10000.0F);
  out.text("tokenizer.ggml.model", "words")
    .texts("tokenizer.ggml.tokens", {"<s>", "a", "b", ".", "1"});
  out.integers("tokenizer.ggml.token_type", {3, 1, 1, 1, 1});
  auto const zeros = [&](std::string const& name, std::vector<std::uint64_t> const& dims) {
    std::uint64_t count = 1;
    for (std::uint64_t const d : dims) {
      count *= d;
    }
    out.tensor(name, 0, dims, GgufBuilder::Bytes(count * sizeof(float)));
  };
  std::uint64_t const q =
    std::uint64_t{std::max(t.heads, 1U)} * t.head_dim;  // a tensor is never empty
  std::uint64_t const kv = std::uint64_t{t.kv_heads} * t.head_dim;
  zeros("token_embd.weight", {t.width, t.vocab});
  for (std::uint32_t n = 0; n < t.layers; ++n) {
    std::string const block = "blk." + std::to_string(n) + ".";
    zeros(block + "attn_norm.weight", {t.width});
    zeros(block + "attn_q.weight", {t.width, q});
    zeros(block + "attn_k.weight", {t.width, kv});
    zeros(block + "attn_v.weight", {t.width, kv});
    zeros(block + "attn_output.weight", {q, t.width});
    zeros(block + "ffn_norm.weight", {t.width});
    zeros(block + "ffn_gate.weight", {t.width, t.ffn});
    zeros(block + "ffn_up.weight", {t.width, t.ffn});
    zeros(block + "ffn_down.weight", {t.ffn, t.width});
  }
  zeros("output_norm.weight", {t.width});
  return out;
}

}  // namespace kvcache_test
