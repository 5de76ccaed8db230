// SPDX-License-Identifier: Apache-2.0
#include "forward.hpp"

#include <algorithm>

namespace llama {
namespace {

std::size_t size_of(int n)
{
  return static_cast<std::size_t>(n);
}

}  // namespace

Forward::Forward(Model const& model, Threads& threads, Arithmetic arithmetic)
    : model_(&model),
      threads_(&threads),
      arithmetic_(arithmetic),
      rope_(size_of(model.config.rope_dim), static_cast<double>(model.config.rope_base))
{
}

void Forward::norm_rows(std::size_t n, float const* gain)
{
  std::size_t const width = size_of(model_->config.width);
  threads_->run_short(n, [&](std::size_t t) {
    rms_norm(&x_[t * width], gain, width, model_->config.rms_eps, &normed_[t * width]);
  });
}

void Forward::add_rows(std::size_t n)
{
  std::size_t const width = size_of(model_->config.width);
  threads_->run_short(n, [&](std::size_t t) { add(&x_[t * width], &change_[t * width], width); });
}

/// **Shape** x (n, columns of the weights)
void Forward::products(std::span<Product const> all, float const* x, std::size_t n)
{
  std::size_t const cols = all.front().w->cols;
  bool const blocks =
    std::ranges::all_of(all, [](Product const& p) { return has_blocks(p.w->type); });
  if (arithmetic_ == Arithmetic::rounded && blocks) {
    rounded_.round(x, cols, n, cols, *threads_);
    multiply(all, rounded_, *threads_);
  } else {
    multiply(all, x, cols, n, *threads_);
  }
}

std::span<float const> Forward::run(std::span<std::int32_t const> tokens,
                                    std::span<std::int64_t const> positions,
                                    std::span<std::size_t const> wanted,
                                    Attention& attention)
{
  Config const& c = model_->config;
  std::size_t const n = tokens.size();
  std::size_t const width = size_of(c.width);
  std::size_t const ffn = size_of(c.ffn);
  std::size_t const dim = size_of(c.head_dim);
  std::size_t const q_width = size_of(c.heads) * dim;
  std::size_t const kv_width = size_of(c.kv_heads) * dim;
  x_.resize(n * width);
  normed_.resize(n * width);
  change_.resize(n * width);
  q_.resize(n * q_width);
  mixed_.resize(n * q_width);
  k_.resize(n * kv_width);
  v_.resize(n * kv_width);
  gate_.resize(n * ffn);
  up_.resize(n * ffn);

  rope_.set_positions(positions);
  for (std::size_t t = 0; t < n; ++t) {
    decode_row(model_->embedding, size_of(tokens[t]), &x_[t * width]);
  }
  for (int l = 0; l < c.layers; ++l) {
    Layer const& layer = model_->layers[size_of(l)];
    norm_rows(n, layer.attention_norm);
    Product const qkv[] = {{&layer.q, q_.data(), q_width},
                           {&layer.k, k_.data(), kv_width},
                           {&layer.v, v_.data(), kv_width}};
    products(qkv, normed_.data(), n);
    threads_->run_short(n, [&](std::size_t t) {
      for (std::size_t at = 0; at < q_width; at += dim) {
        rope_.rotate(&q_[t * q_width + at], t);
      }
      for (std::size_t at = 0; at < kv_width; at += dim) {
        rope_.rotate(&k_[t * kv_width + at], t);
      }
    });

    attention.attend(l, q_.data(), k_.data(), v_.data(), mixed_.data());

    Product const o{&layer.o, change_.data(), width};
    products({&o, 1}, mixed_.data(), n);
    add_rows(n);
    norm_rows(n, layer.ffn_norm);
    Product const gate_up[] = {{&layer.gate, gate_.data(), ffn}, {&layer.up, up_.data(), ffn}};
    products(gate_up, normed_.data(), n);
    threads_->run_short(n, [&](std::size_t t) { swiglu(&gate_[t * ffn], &up_[t * ffn], ffn); });
    Product const down{&layer.down, change_.data(), width};
    products({&down, 1}, gate_.data(), n);
    add_rows(n);
  }

  // Logits are the widest product by far, so only the tokens that were asked for get them.
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::copy_n(&x_[wanted[i] * width], width, &x_[i * width]);
  }
  norm_rows(wanted.size(), model_->output_norm);
  std::size_t const vocab = size_of(c.vocab);
  logits_.resize(wanted.size() * vocab);
  Product const head{&model_->head, logits_.data(), vocab};
  products({&head, 1}, normed_.data(), wanted.size());
  return logits_;
}

}  // namespace llama
