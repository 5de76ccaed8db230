// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file How a chat model wants a turn to be written. Files carry a Jinja program for it; what programs of one family
/// have in common is known by the marks they write, so this reads the marks and runs no program.

#include <cstdint>
#include <string>
#include <string_view>

namespace llama {

enum class ChatFamily : std::uint8_t {
  none,     ///< the template is empty or writes marks that are not known here
  chatml,   ///< <|im_start|>user\n ... <|im_end|>\n          SmolLM2, Qwen, Hermes
  llama2,   ///< <s>[INST] <<SYS>>\n ... <</SYS>>\n\n ... [/INST]
  mistral,  ///< <s>[INST] ... [/INST], the system's text in front of the user's
  llama3,   ///< <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n ... <|eot_id|>
  gemma,    ///< <bos><start_of_turn>user\n ... <end_of_turn>\n
  zephyr,   ///< <|user|>\n ... </s>\n                       TinyLlama
  phi3,     ///< <|user|>\n ... <|end|>\n
};

/// The family whose marks the Jinja program `chat_template` writes.
[[nodiscard]] ChatFamily chat_family(std::string_view chat_template);

/// One turn of a user, up to where the answer starts. `system`: what the model is told first; may be empty.
[[nodiscard]] std::string chat_turn(ChatFamily family,
                                    std::string_view system,
                                    std::string_view user);

}  // namespace llama
