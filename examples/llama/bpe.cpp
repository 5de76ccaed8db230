// SPDX-License-Identifier: Apache-2.0
#include "bpe.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "printable.hpp"
#include "utf8.hpp"

namespace llama {

namespace {

/// GPT-2's printable letter for each byte: the byte itself where it prints, else the next one from
/// U+0100.
constexpr std::array<std::uint16_t, 256> make_byte_letters()
{
  std::array<std::uint16_t, 256> letters{};
  std::uint16_t next = 256;
  for (std::uint16_t b = 0; b < 256; ++b) {
    bool const prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    letters[b] = prints ? b : next++;
  }
  return letters;
}
constexpr std::array<std::uint16_t, 256> byte_letters = make_byte_letters();

constexpr std::uint64_t key_of(std::int32_t left, std::int32_t right)
{
  return static_cast<std::uint64_t>(left) << 32U | static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Bpe(Gguf const& model, Vocabulary const& vocabulary)
{
  auto const pre = model.text("tokenizer.ggml.pre");
  if (pre != "smollm" && pre != "gpt-2") {
    throw Error(model.name() + ": tokenizer.ggml.pre is " + (pre ? quoted(*pre) : "absent") +
                "; this program knows 'smollm' and 'gpt-2'");
  }
  digits_alone_ = pre == "smollm";
  for (std::size_t b = 0; b < byte_ids_.size(); ++b) {
    std::string letter;
    append_utf8(letter, byte_letters[b]);
    byte_ids_[b] = vocabulary.find(letter).value_or(-1);
  }
  auto const merges = model.texts("tokenizer.ggml.merges");
  if (!merges ||
      merges->size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(model.name() +
                ": the metadata has no usable tokenizer.ggml.merges; a 'gpt2' tokenizer has an "
                "array of strings there");
  }
  merges_.reserve(merges->size());
  for (std::size_t i = 0; i < merges->size(); ++i) {
    std::string_view const pair = (*merges)[i];
    std::size_t const space = pair.find(' ', 1);  // a part is never empty
    std::string_view const left = pair.substr(0, space);
    std::string_view const right = space == std::string_view::npos ? "" : pair.substr(space + 1);
    auto const left_id = vocabulary.find(left);
    auto const right_id = vocabulary.find(right);
    auto const joined = vocabulary.find(std::string(left) + std::string(right));
    if (!left_id || !right_id || !joined || right.empty()) {
      throw Error(model.name() + ": entry " + std::to_string(i) + " of tokenizer.ggml.merges is " +
                  quoted(pair) +
                  "; two tokens with a space between, whose join is a token too, are right");
    }
    merges_.try_emplace(key_of(*left_id, *right_id), Merge{static_cast<std::int32_t>(i), *joined});
  }
}

Bpe::Merge const* Bpe::merge(std::int32_t left, std::int32_t right) const
{
  auto const at = merges_.find(key_of(left, right));
  return at == merges_.end() ? nullptr : &at->second;
}

/// The working memory of one call, kept from word to word.
struct Bpe::Scratch {
  static constexpr std::uint32_t nil = ~std::uint32_t{0};
  struct Symbol {
    std::int32_t id;  // -1: merged into its left neighbour
    std::uint32_t previous;
    std::uint32_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::uint32_t left;  // symbols, and the tokens they were when this was found
    std::uint32_t right;
    std::int32_t left_id;
    std::int32_t right_id;
    std::int32_t joined;
  };

  /// Heap order: the best rank on top, the leftmost among equals.
  static bool worse(Candidate const& a, Candidate const& b)
  {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  void consider(Bpe const& bpe, std::uint32_t left, std::uint32_t right)
  {
    if (left == nil || right == nil) {
      return;
    }
    Merge const* const found = bpe.merge(symbols[left].id, symbols[right].id);
    if (found != nullptr) {
      heap.push_back({found->rank, left, right, symbols[left].id, symbols[right].id, found->id});
      std::ranges::push_heap(heap, worse);
    }
  }

  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

void Bpe::encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const
{
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (std::size_t i = 0; i < word.size(); ++i) {
    auto const byte = static_cast<unsigned char>(word[i]);
    if (byte_ids_[byte] < 0) {
      throw Error("the prompt holds byte " + std::to_string(byte) + " in " + quoted(word) +
                  "; this model's vocabulary has no token for that byte");
    }
    auto const at = static_cast<std::uint32_t>(i);
    symbols.push_back({byte_ids_[byte],
                       i == 0 ? Scratch::nil : at - 1,
                       i + 1 == word.size() ? Scratch::nil : at + 1});
  }
  for (std::uint32_t i = 1; i < symbols.size(); ++i) {
    scratch.consider(*this, i - 1, i);
  }
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, Scratch::worse);
    Scratch::Candidate const best = heap.back();
    heap.pop_back();
    if (symbols[best.left].id != best.left_id || symbols[best.right].id != best.right_id) {
      continue;  // one of the two has merged since
    }
    auto& left = symbols[best.left];
    auto& right = symbols[best.right];
    left.id = best.joined;
    left.next = right.next;
    right.id = -1;
    if (left.next != Scratch::nil) {
      symbols[left.next].previous = best.left;
    }
    scratch.consider(*this, left.previous, best.left);
    scratch.consider(*this, best.left, left.next);
  }
  for (std::uint32_t i = 0; i != Scratch::nil; i = symbols[i].next) {
    out.push_back(symbols[i].id);
  }
}

void Bpe::encode(std::string_view text, std::vector<std::int32_t>& out) const
{
  Scratch scratch;
  for (std::string_view const word : pre_tokenize(text, digits_alone_)) {
    encode_word(word, scratch, out);
  }
}

std::string Bpe::bytes_of(std::string_view token) const
{
  std::string out;
  while (!token.empty()) {
    CodePoint const point = decode_utf8(token);
    auto const byte = std::ranges::find(byte_letters, point.code);
    if (point.valid && byte != byte_letters.end()) {
      out += static_cast<char>(byte - byte_letters.begin());
    } else {
      out += token.substr(0, point.bytes);  // an added token is written as it is
    }
    token.remove_prefix(point.bytes);
  }
  return out;
}

}  // namespace llama
