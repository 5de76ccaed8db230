// SPDX-License-Identifier: Apache-2.0
#include "llama/forward.hpp"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "contiguous_attention.hpp"
#include "llama/model.hpp"
#include "support/catch.hpp"
#include "support/gguf_builder.hpp"
#include "support/random.hpp"

namespace {

using Row = std::vector<double>;

/// Random weights in place of the zeros of `tiny_llama`.
class RandomLlama {
 public:
  RandomLlama(kvcache_test::TinyLlama const& sizes, std::uint64_t seed)
      : random_(seed),
        bytes_(kvcache_test::tiny_llama(sizes).bytes()),
        model(llama::load_model(llama::Gguf::from_bytes(bytes_, "test.gguf")))
  {
    fill(model.embedding, 1.0);
    model.head = model.embedding;
    model.output_norm = vector(model.embedding.cols);
    for (llama::Layer& layer : model.layers) {
      layer.attention_norm = vector(model.embedding.cols);
      layer.ffn_norm = vector(model.embedding.cols);
      for (llama::Weights* w :
           {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
        fill(*w, 1.0 / std::sqrt(static_cast<double>(w->cols)));
      }
    }
  }

 private:
  float const* vector(std::size_t n, double scale = 1.0)
  {
    auto& values = storage_.emplace_back(n);
    for (float& value : values) {
      value = static_cast<float>(scale * (static_cast<double>(random_.below(2001)) - 1000) / 500);
    }
    return values.data();
  }
  void fill(llama::Weights& w, double scale)
  {
    w.bytes = reinterpret_cast<std::byte const*>(vector(w.rows * w.cols, scale));
  }

  kvcache_test::Random random_;
  std::vector<std::byte> bytes_;
  std::vector<std::vector<float>> storage_;

 public:
  llama::Model model;
};

Row times(llama::Weights const& w, Row const& x)
{
  Row y(w.rows, 0.0);
  auto const* values = reinterpret_cast<float const*>(w.bytes);
  for (std::size_t r = 0; r < w.rows; ++r) {
    for (std::size_t c = 0; c < w.cols; ++c) {
      y[r] += static_cast<double>(values[r * w.cols + c]) * x[c];
    }
  }
  return y;
}

Row normed(Row const& x, float const* gain, double epsilon)
{
  double sum = 0;
  for (double v : x) {
    sum += v * v;
  }
  Row y(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] *= static_cast<double>(gain[i]) / std::sqrt(sum / static_cast<double>(x.size()) + epsilon);
  }
  return y;
}

void rotate(Row& heads, llama::Config const& c, std::size_t position)
{
  auto const dim = static_cast<std::size_t>(c.head_dim);
  for (std::size_t at = 0; at < heads.size(); at += dim) {
    for (int i = 0; i < c.rope_dim; i += 2) {
      double const angle = static_cast<double>(position) *
                           std::pow(static_cast<double>(c.rope_base), -1.0 * i / c.rope_dim);
      double& a = heads[at + static_cast<std::size_t>(i)];
      double& b = heads[at + static_cast<std::size_t>(i) + 1];
      double const turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }
}

void add_to(Row& x, Row const& y)
{
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] += y[i];
  }
}

/// A Llama by the book, one position after the other, in double precision.
std::vector<Row> by_the_book(llama::Model const& model, std::vector<std::int32_t> const& tokens)
{
  llama::Config const& c = model.config;
  auto const dim = static_cast<std::size_t>(c.head_dim);
  auto const heads = static_cast<std::size_t>(c.heads);
  std::size_t const group = heads / static_cast<std::size_t>(c.kv_heads);
  double const epsilon = static_cast<double>(c.rms_eps);
  std::vector<std::vector<Row>> keys(model.layers.size());
  std::vector<std::vector<Row>> values(model.layers.size());
  std::vector<Row> all;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    auto const width = static_cast<std::size_t>(c.width);
    auto const* embedding = reinterpret_cast<float const*>(model.embedding.bytes);
    Row x(width);
    for (std::size_t i = 0; i < width; ++i) {
      x[i] = static_cast<double>(embedding[static_cast<std::size_t>(tokens[t]) * width + i]);
    }
    for (std::size_t l = 0; l < model.layers.size(); ++l) {
      llama::Layer const& layer = model.layers[l];
      Row const h = normed(x, layer.attention_norm, epsilon);
      Row q = times(layer.q, h);
      keys[l].push_back(times(layer.k, h));
      values[l].push_back(times(layer.v, h));
      rotate(q, c, t);
      rotate(keys[l].back(), c, t);
      Row mixed(q.size(), 0.0);
      for (std::size_t head = 0; head < heads; ++head) {
        std::size_t const kv = head / group * dim;
        Row p(t + 1, 0.0);
        double sum = 0;
        for (std::size_t r = 0; r <= t; ++r) {
          for (std::size_t d = 0; d < dim; ++d) {
            p[r] += q[head * dim + d] * keys[l][r][kv + d];
          }
          p[r] = std::exp(p[r] / std::sqrt(static_cast<double>(dim)));
          sum += p[r];
        }
        for (std::size_t r = 0; r <= t; ++r) {
          for (std::size_t d = 0; d < dim; ++d) {
            mixed[head * dim + d] += p[r] / sum * values[l][r][kv + d];
          }
        }
      }
      add_to(x, times(layer.o, mixed));
      Row const f = normed(x, layer.ffn_norm, epsilon);
      Row gate = times(layer.gate, f);
      Row const up = times(layer.up, f);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
      }
      add_to(x, times(layer.down, gate));
    }
    all.push_back(times(model.head, normed(x, model.output_norm, epsilon)));
  }
  return all;
}

}  // namespace

TEST_CASE("Forward: logits are those of a Llama by the book", "[llama][forward]")
{
  std::uint64_t seed = 31;
  for (kvcache_test::TinyLlama const& sizes : {kvcache_test::TinyLlama{},
                                               kvcache_test::TinyLlama{.layers = 2,
                                                                       .width = 24,
                                                                       .heads = 6,
                                                                       .kv_heads = 2,
                                                                       .head_dim = 16,
                                                                       .ffn = 40,
                                                                       .rope_dim = 8},
                                               kvcache_test::TinyLlama{.layers = 3,
                                                                       .width = 20,
                                                                       .heads = 5,
                                                                       .kv_heads = 5,
                                                                       .head_dim = 24,
                                                                       .ffn = 33,
                                                                       .rope_dim = 24},
                                               kvcache_test::TinyLlama{.layers = 1,
                                                                       .width = 64,
                                                                       .heads = 7,
                                                                       .kv_heads = 1,
                                                                       .head_dim = 8,
                                                                       .ffn = 8,
                                                                       .rope_dim = 2}}) {
    INFO("seed " << seed);
    RandomLlama const llama(sizes, seed++);
    std::vector<std::int32_t> const tokens{0, 1, 2, 3, 4, 3, 2, 2, 0, 1, 4};
    std::vector<Row> const expected = by_the_book(llama.model, tokens);
    auto const vocab = static_cast<std::size_t>(llama.model.config.vocab);
    llama::Threads threads(2);
    llama::Forward forward(llama.model, threads);
    llama_test::ContiguousAttention attention(llama.model.config);
    // Seven tokens at once, then one, then the rest; logits of some only.
    std::size_t first = 0;
    for (std::size_t n : {7U, 1U, 3U}) {
      std::vector<std::int64_t> positions(n);
      std::iota(positions.begin(), positions.end(), static_cast<std::int64_t>(first));
      std::vector<std::size_t> const wanted =
        n == 1 ? std::vector<std::size_t>{0} : std::vector<std::size_t>{1, n - 1};
      attention.begin(n);
      auto const logits =
        forward.run(std::span(tokens).subspan(first, n), positions, wanted, attention);
      REQUIRE(logits.size() == wanted.size() * vocab);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        for (std::size_t v = 0; v < vocab; ++v) {
          double const want = expected[first + wanted[i]][v];
          CHECK(static_cast<double>(logits[i * vocab + v]) ==
                kvcache_test::Approx(want).epsilon(1e-4).margin(1e-4));
        }
      }
      first += n;
    }
  }
}

TEST_CASE("Model: a tensor of another shape is named with the right one", "[llama][model]")
{
  auto const bytes = kvcache_test::tiny_llama({.layers = 1, .width = 16}).bytes();
  auto const model = llama::load_model(llama::Gguf::from_bytes(bytes, "test.gguf"));
  CHECK(model.layers.size() == 1);
  CHECK(model.head.bytes == model.embedding.bytes);  // tied
  CHECK(model.layers[0].down.rows == 16);
  CHECK(model.layers[0].down.cols == 24);

  kvcache_test::GgufBuilder extra = kvcache_test::tiny_llama();
  extra.tensor("output.weight", 0, {5, 16}, kvcache_test::GgufBuilder::Bytes(5 * 16 * 4));
  auto const wrong = extra.bytes();
  CHECK_THROWS_WITH(llama::load_model(llama::Gguf::from_bytes(wrong, "test.gguf")),
                    kvcache_test::Contains("output.weight") && kvcache_test::Contains("16"));
}
