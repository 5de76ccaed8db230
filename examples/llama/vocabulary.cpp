// SPDX-License-Identifier: Apache-2.0
#include "vocabulary.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "printable.hpp"

namespace llama {

Vocabulary::Vocabulary(Gguf const& model)
{
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max() / 2;
  auto const tokens = model.texts("tokenizer.ggml.tokens");
  if (!tokens || tokens->empty() || tokens->size() > most) {
    throw Error(model.name() + ": tokenizer.ggml.tokens has " +
                std::to_string(tokens ? tokens->size() : 0) + " tokens; 1 to " +
                std::to_string(most) + " are right");
  }
  auto const kinds = model.integers("tokenizer.ggml.token_type");
  if (kinds && kinds->size() != tokens->size()) {
    throw Error(model.name() + ": tokenizer.ggml.token_type has " + std::to_string(kinds->size()) +
                " entries; there are " + std::to_string(tokens->size()) + " tokens");
  }
  texts_.reserve(tokens->size());
  kinds_.reserve(tokens->size());
  ids_.reserve(tokens->size());
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    std::int32_t const kind = kinds ? (*kinds)[i] : 1;
    if (kind < static_cast<std::int32_t>(Kind::normal) ||
        kind > static_cast<std::int32_t>(Kind::byte)) {
      throw Error(model.name() + ": tokenizer.ggml.token_type of token " + std::to_string(i) +
                  " is " + std::to_string(kind) + "; 1 to 6 is right");
    }
    auto const id = static_cast<std::int32_t>(i);
    if (!ids_.emplace((*tokens)[i], id).second) {
      throw Error(model.name() + ": tokenizer.ggml.tokens has " + quoted((*tokens)[i]) +
                  " twice; each token may appear once");
    }
    texts_.emplace_back((*tokens)[i]);
    kinds_.push_back(static_cast<Kind>(kind));
    if (is_special(id) && !texts_.back().empty()) {
      special_.push_back(id);
    }
  }
  std::ranges::stable_sort(
    special_, std::ranges::greater(), [&](std::int32_t id) { return text(id).size(); });

  auto const add_eos = [&](std::int32_t id) {
    if (!is_eos(id)) {
      eos_.push_back(id);
    }
  };
  for (char const* const key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    auto const id = model.integer(key);
    if (id && *id >= texts_.size()) {
      throw Error(model.name() + ": " + key + " is " + std::to_string(*id) + "; below " +
                  std::to_string(texts_.size()) + ", the number of tokens, is right");
    }
    if (id) {
      add_eos(static_cast<std::int32_t>(*id));
    }
  }
  // Files of chat models name one of these and mean all.
  for (char const* const end : {"<|im_end|>",
                                "<|endoftext|>",
                                "<|eot_id|>",
                                "<|end_of_text|>",
                                "<end_of_turn>",
                                "<|end|>"}) {
    auto const id = find(end);
    if (id && is_control(*id)) {
      add_eos(*id);
    }
  }
}

std::string const& Vocabulary::text(std::int32_t id) const
{
  if (id < 0 || id >= size()) {
    throw Error("token " + std::to_string(id) + " is out of range; 0 to " +
                std::to_string(size() - 1) + " is right");
  }
  return texts_[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Vocabulary::find(std::string_view text) const
{
  auto const at = ids_.find(text);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

bool Vocabulary::is_control(std::int32_t id) const
{
  return id >= 0 && id < size() && kinds_[static_cast<std::size_t>(id)] == Kind::control;
}

bool Vocabulary::is_normal(std::int32_t id) const
{
  return id >= 0 && id < size() && kinds_[static_cast<std::size_t>(id)] == Kind::normal;
}

bool Vocabulary::is_byte(std::int32_t id) const
{
  return id >= 0 && id < size() && kinds_[static_cast<std::size_t>(id)] == Kind::byte;
}

bool Vocabulary::is_special(std::int32_t id) const
{
  // Unknown tokens are matched as llama.cpp does it.
  return is_control(id) || (id >= 0 && id < size() &&
                            (kinds_[static_cast<std::size_t>(id)] == Kind::user ||
                             kinds_[static_cast<std::size_t>(id)] == Kind::unknown));
}

bool Vocabulary::is_eos(std::int32_t id) const
{
  return std::ranges::find(eos_, id) != eos_.end();
}

std::vector<Vocabulary::Part> Vocabulary::split_special(std::string_view text) const
{
  std::vector<Part> parts = {{.plain = text}};
  std::vector<Part> next;
  for (std::int32_t const id : special_) {
    std::string_view const wanted = texts_[static_cast<std::size_t>(id)];
    if (text.find(wanted) == std::string_view::npos) {
      continue;
    }
    next.clear();
    for (Part const& part : parts) {
      std::string_view rest = part.plain;
      for (std::size_t at = 0;
           part.special < 0 && (at = rest.find(wanted)) != std::string_view::npos;) {
        next.push_back({.plain = rest.substr(0, at)});
        next.push_back({.plain = wanted, .special = id});
        rest.remove_prefix(at + wanted.size());
      }
      next.push_back({.plain = rest, .special = part.special});
    }
    parts.swap(next);
  }
  std::erase_if(parts, [](Part const& part) { return part.special < 0 && part.plain.empty(); });
  return parts;
}

}  // namespace llama
