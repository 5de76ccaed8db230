// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include "printable.hpp"

namespace llama {

namespace {

constexpr std::string_view turn_start = "<|im_start|>";
constexpr std::string_view turn_end = "<|im_end|>";
constexpr std::string_view text_start = "<s>";

std::variant<Bpe, Words> make_splitter(Gguf const& model, Vocabulary const& vocabulary)
{
  auto const name = model.text("tokenizer.ggml.model");
  if (name == "gpt2") {
    return Bpe(model, vocabulary);
  }
  if (name == "words") {
    return Words();
  }
  throw Error(model.name() + ": tokenizer.ggml.model is " + (name ? quoted(*name) : "absent") +
              "; this program knows 'gpt2' and 'words'");
}

/// The system turn that the model's chat template puts first when the user gives none; empty
/// without one.
std::string default_system_turn(Gguf const& model)
{
  std::string const opening = std::string(turn_start) + "system\n";
  std::string_view const text = model.text("tokenizer.chat_template").value_or("");
  std::size_t const from = text.find(opening);
  std::size_t const to = from == std::string_view::npos ? from : text.find(turn_end, from);
  if (to == std::string_view::npos) {
    return "";
  }
  std::string_view const turn = text.substr(from, to - from);
  bool const literal =
    turn.find_first_of("'\"{}+") == std::string_view::npos;  // and not built by the template
  return literal ? std::string(turn) + std::string(turn_end) + "\n" : "";
}

}  // namespace

Tokenizer::Tokenizer(Gguf const& model)
    : vocabulary_(model),
      splitter_(make_splitter(model, vocabulary_)),
      system_turn_(default_system_turn(model))
{
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const
{
  std::vector<std::int32_t> out;
  for (Vocabulary::Part const& part : vocabulary_.split_special(text)) {
    if (part.special >= 0) {
      out.push_back(part.special);
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
  if (!id_of(turn_start) || !id_of(turn_end)) {
    throw Error(
      "--chat: this model's vocabulary has no '<|im_start|>' and '<|im_end|>'; without --chat the "
      "prompt is taken as it is");
  }
  std::string out = system_turn_;
  out += std::string(turn_start) + "user\n" + std::string(user) + std::string(turn_end) + "\n";
  return out + std::string(turn_start) + "assistant\n";
}

}  // namespace llama
