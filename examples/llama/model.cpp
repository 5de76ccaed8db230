// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace llama {
namespace {

WeightType weight_type(Gguf const& file, Tensor const& tensor)
{
  switch (tensor.type) {
    case TensorType::f32:
      return WeightType::f32;
    case TensorType::f16:
      return WeightType::f16;
    case TensorType::bf16:
      return WeightType::bf16;
    case TensorType::q8_0:
      return WeightType::q8_0;
    case TensorType::q4_0:
      return WeightType::q4_0;
    case TensorType::q4_1:
      return WeightType::q4_1;
    case TensorType::q5_0:
      return WeightType::q5_0;
    case TensorType::q4_k:
      return WeightType::q4_k;
    case TensorType::q6_k:
      return WeightType::q6_k;
  }
  throw Error(file.name() + ": tensor '" + tensor.name + "' has type number " +
              std::to_string(static_cast<std::uint32_t>(tensor.type)) +
              "; F32, F16, BF16, Q8_0, Q6_K, Q5_0, Q4_K, Q4_1 and Q4_0 are built");
}

/// The matrix `name` of y = W x with x of `in` values and y of `out`.
Weights matrix(Gguf const& file, std::string const& name, int in, int out)
{
  Tensor const& tensor =
    file.need(name, {static_cast<std::uint64_t>(in), static_cast<std::uint64_t>(out)});
  return {tensor.data,
          static_cast<std::size_t>(out),
          static_cast<std::size_t>(in),
          weight_type(file, tensor)};
}

float const* vector(Gguf const& file, std::string const& name, int width)
{
  // `read_config` has seen that norms are F32, and tensors are aligned for it.
  Tensor const& tensor = file.need(name, {static_cast<std::uint64_t>(width)});
  return reinterpret_cast<float const*>(tensor.data);
}

}  // namespace

Model load_model(Gguf file)
{
  Config const c = read_config(file);
  Model model{std::move(file), c, {}, {}, nullptr, {}};
  Gguf const& from = model.file;
  int const q = c.heads * c.head_dim;
  int const kv = c.kv_heads * c.head_dim;
  model.embedding = matrix(from, "token_embd.weight", c.width, c.vocab);
  for (int i = 0; i < c.layers; ++i) {
    std::string const blk = "blk." + std::to_string(i) + ".";
    model.layers.push_back({vector(from, blk + "attn_norm.weight", c.width),
                            matrix(from, blk + "attn_q.weight", c.width, q),
                            matrix(from, blk + "attn_k.weight", c.width, kv),
                            matrix(from, blk + "attn_v.weight", c.width, kv),
                            matrix(from, blk + "attn_output.weight", q, c.width),
                            vector(from, blk + "ffn_norm.weight", c.width),
                            matrix(from, blk + "ffn_gate.weight", c.width, c.ffn),
                            matrix(from, blk + "ffn_up.weight", c.width, c.ffn),
                            matrix(from, blk + "ffn_down.weight", c.ffn, c.width)});
  }
  model.output_norm = vector(from, "output_norm.weight", c.width);
  model.head = c.tied ? model.embedding : matrix(from, "output.weight", c.width, c.vocab);
  return model;
}

}  // namespace llama
