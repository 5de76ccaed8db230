// SPDX-License-Identifier: Apache-2.0
#include "sentence_piece.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <queue>

#include "printable.hpp"
#include "utf8.hpp"

namespace llama {
namespace {

constexpr std::string_view space = "\xe2\x96\x81";  // U+2581

std::string with_written_spaces(std::string_view text, bool space_in_front)
{
  std::string out(space_in_front ? space : "");
  for (char const c : text) {
    if (c == ' ') {
      out += space;
    } else {
      out += c;
    }
  }
  return out;
}

/// `<0x0A>` and the like; nothing for any other text.
std::optional<unsigned char> byte_named(std::string_view token)
{
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
    return std::nullopt;
  }
  std::size_t const high = digits.find(token[3]);
  std::size_t const low = digits.find(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) {
    return std::nullopt;
  }
  return static_cast<unsigned char>(high * 16 + low);
}

/// A run of letters that is one piece by now; empty when its left neighbour has swallowed it.
struct Symbol {
  std::string_view text;
  std::size_t left;
  std::size_t right;
};
constexpr std::size_t none = static_cast<std::size_t>(-1);

/// Two neighbours that join to a piece.
struct Candidate {
  float score;
  std::size_t left;
  std::size_t right;
  std::size_t bytes;  // of both together, when this was found

  /// The heap's top is the best score, the leftmost of equals.
  bool operator<(Candidate const& other) const
  {
    return score != other.score ? score < other.score : left > other.left;
  }
};

std::vector<Symbol> letters(std::string_view text)
{
  std::vector<Symbol> out;
  while (!text.empty()) {
    std::size_t const bytes = decode_utf8(text).bytes;
    out.push_back({text.substr(0, bytes), out.size() - 1, out.size() + 1});
    text.remove_prefix(bytes);
  }
  if (!out.empty()) {
    out.back().right = none;
  }
  return out;
}

}  // namespace

SentencePiece::SentencePiece(Gguf const& model, Vocabulary const& vocabulary)
{
  auto scores = model.reals("tokenizer.ggml.scores");
  auto const tokens = static_cast<std::size_t>(vocabulary.size());
  if (!scores || scores->size() != tokens) {
    throw Error(model.name() + ": tokenizer.ggml.scores has " +
                std::to_string(scores ? scores->size() : 0) + " entries; there are " +
                std::to_string(tokens) + " tokens");
  }
  scores_ = std::move(*scores);
  space_in_front_ = model.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  byte_ids_.fill(-1);
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    auto const byte = byte_named(vocabulary.text(id));
    if (byte && vocabulary.is_byte(id)) {
      byte_ids_[*byte] = id;
    }
  }
}

void SentencePiece::encode(std::string_view text,
                           bool starts,
                           Vocabulary const& vocabulary,
                           std::vector<std::int32_t>& out) const
{
  std::string const written = with_written_spaces(text, starts && space_in_front_ && !text.empty());
  std::vector<Symbol> symbols = letters(written);
  std::priority_queue<Candidate> candidates;
  auto const joined = [&](std::size_t left, std::size_t right) {
    return std::string_view(symbols[left].text.data(),
                            symbols[left].text.size() + symbols[right].text.size());
  };
  auto const propose = [&](std::size_t left, std::size_t right) {
    if (left == none || right == none) {
      return;
    }
    std::string_view const both = joined(left, right);
    if (auto const id = vocabulary.find(both)) {
      candidates.push({scores_[static_cast<std::size_t>(*id)], left, right, both.size()});
    }
  };
  for (std::size_t i = 1; i < symbols.size(); ++i) {
    propose(i - 1, i);
  }
  while (!candidates.empty()) {
    Candidate const best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != best.bytes) {
      continue;  // one of them has merged since
    }
    left.text = joined(best.left, best.right);
    left.right = right.right;
    right.text = {};
    if (left.right != none) {
      symbols[left.right].left = best.left;
    }
    propose(left.left, best.left);
    propose(best.left, left.right);
  }
  for (Symbol const& symbol : symbols) {
    if (auto const id = symbol.text.empty() ? std::nullopt : vocabulary.find(symbol.text)) {
      out.push_back(*id);
      continue;
    }
    for (char const c : symbol.text) {
      std::int32_t const id = byte_ids_[static_cast<unsigned char>(c)];
      if (id < 0) {
        throw Error("the prompt holds " + quoted(symbol.text) +
                    ", for which this model has neither a piece nor the tokens of its bytes");
      }
      out.push_back(id);
    }
  }
}

std::string SentencePiece::bytes_of(std::int32_t id,
                                    bool starts,
                                    Vocabulary const& vocabulary) const
{
  std::string_view token = vocabulary.text(id);
  if (auto const byte = vocabulary.is_byte(id) ? byte_named(token) : std::nullopt) {
    return std::string(1, static_cast<char>(*byte));
  }
  if (starts && space_in_front_ && token.starts_with(space)) {
    token.remove_prefix(space.size());
  }
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    bool const is_space = token.substr(at).starts_with(space);
    out += is_space ? ' ' : token[at];
    at += is_space ? space.size() : 1;
  }
  return out;
}

}  // namespace llama
