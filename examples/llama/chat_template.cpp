// SPDX-License-Identifier: Apache-2.0
#include "chat_template.hpp"

namespace llama {
namespace {

/// `open` role `middle` text `close`, as most families write a turn.
struct Marks {
  std::string_view start;  // of the whole text
  std::string_view open;
  std::string_view middle;
  std::string_view close;
  std::string_view assistant = "assistant";
};

std::string marked(Marks const& marks, std::string_view system, std::string_view user)
{
  auto const head = [&](std::string_view role) {
    return std::string(marks.open) + std::string(role) + std::string(marks.middle);
  };
  auto const turn = [&](std::string_view role, std::string_view text) {
    return head(role) + std::string(text) + std::string(marks.close);
  };
  return std::string(marks.start) + (system.empty() ? "" : turn("system", system)) +
         turn("user", user) + head(marks.assistant);
}

std::string_view trimmed(std::string_view text)
{
  constexpr std::string_view spaces = " \t\n\r";
  std::size_t const first = text.find_first_not_of(spaces);
  return first == std::string_view::npos
           ? ""
           : text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

/// The system's text and an empty line, where there is any.
std::string before(std::string_view system)
{
  return system.empty() ? "" : std::string(system) + "\n\n";
}

}  // namespace

ChatFamily chat_family(std::string_view chat_template)
{
  auto const writes = [&](std::string_view mark) {
    return chat_template.find(mark) != std::string_view::npos;
  };
  if (writes("<|im_start|>")) {
    return ChatFamily::chatml;
  }
  if (writes("[INST]")) {
    return writes("<<SYS>>") ? ChatFamily::llama2 : ChatFamily::mistral;
  }
  if (writes("<|start_header_id|>") && writes("<|end_header_id|>")) {
    return ChatFamily::llama3;
  }
  if (writes("<start_of_turn>")) {
    return ChatFamily::gemma;
  }
  if (writes("<|user|>")) {
    return writes("<|end|>") ? ChatFamily::phi3 : ChatFamily::zephyr;
  }
  return ChatFamily::none;
}

std::string chat_turn(ChatFamily family, std::string_view system, std::string_view user)
{
  switch (family) {
    case ChatFamily::none:
      return std::string(user);
    case ChatFamily::chatml:
      return marked({"", "<|im_start|>", "\n", "<|im_end|>\n"}, system, user);
    case ChatFamily::llama2: {
      std::string const told =
        system.empty() ? "" : "<<SYS>>\n" + std::string(system) + "\n<</SYS>>\n\n";
      return "<s>[INST] " + told + std::string(trimmed(user)) + " [/INST]";
    }
    case ChatFamily::mistral:
      return "<s>[INST] " + before(system) + std::string(trimmed(user)) + " [/INST]";
    case ChatFamily::llama3:
      return marked(
        {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"},
        trimmed(system),
        trimmed(user));
    case ChatFamily::gemma:  // knows no system: its text goes in front of the user's
      return marked({"<bos>", "<start_of_turn>", "\n", "<end_of_turn>\n", "model"},
                    "",
                    before(trimmed(system)) + std::string(trimmed(user)));
    case ChatFamily::zephyr:
      return marked({"", "<|", "|>\n", "</s>\n"}, system, user);
    case ChatFamily::phi3:
      return marked({"", "<|", "|>\n", "<|end|>\n"}, system, user);
  }
  return std::string(user);
}

}  // namespace llama
