// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include <utility>

#include "printable.hpp"

namespace llama {

namespace {

constexpr std::string_view turn_start = "<|im_start|>";
constexpr std::string_view turn_end = "<|im_end|>";
constexpr std::string_view text_start = "<s>";

std::variant<Bpe, SentencePiece, Words> make_splitter(Gguf const& model,
                                                      Vocabulary const& vocabulary)
{
  auto const name = model.text("tokenizer.ggml.model");
  if (name == "gpt2") {
    return Bpe(model, vocabulary);
  }
  if (name == "llama") {
    return SentencePiece(model, vocabulary);
  }
  if (name == "words") {
    return Words();
  }
  throw Error(model.name() + ": tokenizer.ggml.model is " + (name ? quoted(*name) : "absent") +
              "; this program knows 'gpt2', 'llama' and 'words'");
}

/// What a ChatML template tells the model when the user's turns say nothing; empty without it.
std::string default_system(std::string_view chat_template)
{
  std::string const opening = std::string(turn_start) + "system\n";
  std::size_t const at = chat_template.find(opening);
  std::size_t const from = at == std::string_view::npos ? at : at + opening.size();
  std::size_t const to = at == std::string_view::npos ? at : chat_template.find(turn_end, from);
  if (to == std::string_view::npos) {
    return "";
  }
  std::string_view const text = chat_template.substr(from, to - from);
  bool const literal =
    text.find_first_of("'\"{}+") == std::string_view::npos;  // and not built by the template
  return std::string(literal ? text : "");
}

}  // namespace

Tokenizer::Tokenizer(Gguf const& model)
    : vocabulary_(model), splitter_(make_splitter(model, vocabulary_))
{
  std::string_view const chat_template = model.text("tokenizer.chat_template").value_or("");
  family_ = chat_family(chat_template);
  system_ = default_system(chat_template);
  if (family_ == ChatFamily::none && id_of(turn_start) && id_of(turn_end)) {
    family_ = ChatFamily::chatml;
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const
{
  std::vector<std::int32_t> out;
  bool starts = true;
  for (Vocabulary::Part const& part : vocabulary_.split_special(text)) {
    bool const first = std::exchange(starts, part.special >= 0);
    if (part.special >= 0) {
      out.push_back(part.special);
    } else if (auto const* const pieces = std::get_if<SentencePiece>(&splitter_)) {
      pieces->encode(part.plain, first, vocabulary_, out);
    } else if (auto const* const bpe = std::get_if<Bpe>(&splitter_)) {
      bpe->encode(part.plain, out);
    } else {
      std::get<Words>(splitter_).encode(part.plain, vocabulary_, out);
    }
  }
  return out;
}

std::string Tokenizer::decode(std::int32_t id, std::int32_t previous) const
{
  std::string const& token = vocabulary_.text(id);
  if (auto const* const words = std::get_if<Words>(&splitter_)) {
    return words->joined(token, previous < 0 ? "" : vocabulary_.text(previous));
  }
  auto const* const pieces = std::get_if<SentencePiece>(&splitter_);
  if (pieces != nullptr && !vocabulary_.is_special(id)) {
    bool const starts = previous < 0 || vocabulary_.is_special(previous);
    return pieces->bytes_of(id, starts, vocabulary_);
  }
  return vocabulary_.is_special(id) ? token : std::get<Bpe>(splitter_).bytes_of(token);
}

std::string Tokenizer::decode(std::span<std::int32_t const> ids) const
{
  std::string out;
  std::int32_t previous = -1;
  for (std::int32_t const id : ids) {
    out += decode(id, previous);
    previous = id;
  }
  return out;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view text) const
{
  return vocabulary_.find(text);
}

std::string Tokenizer::chat_turn(std::string_view user) const
{
  if (std::holds_alternative<Words>(splitter_) && id_of(text_start)) {
    return std::string(text_start) + " " + std::string(user);
  }
  if (family_ == ChatFamily::none) {
    throw Error(
      "--chat: this model's file has no chat template of a family known here, and its vocabulary "
      "has "
      "no '<|im_start|>' and '<|im_end|>'; without --chat the prompt is taken as it is");
  }
  return llama::chat_turn(family_, system_, user);
}

}  // namespace llama
