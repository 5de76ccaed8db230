// SPDX-License-Identifier: Apache-2.0
#include "llama/chat_template.hpp"

#include <string>

#include "llama/tokenizer.hpp"
#include "support/catch.hpp"
#include "support/gguf_builder.hpp"

using kvcache_test::Contains;
using llama::chat_turn;
using llama::ChatFamily;

namespace {

/// A model whose vocabulary has the words of one turn, with a chat template.
llama::Tokenizer with_template(std::string const& text)
{
  kvcache_test::GgufBuilder b;
  b.text("tokenizer.ggml.model", "words").texts("tokenizer.ggml.tokens", {"hi", "."});
  if (!text.empty()) {
    b.text("tokenizer.chat_template", text);
  }
  auto const bytes = b.bytes();
  return llama::Tokenizer(llama::Gguf::from_bytes(bytes, "test.gguf"));
}

}  // namespace

TEST_CASE("chat_family: a program is known by the marks it writes", "[llama][chat_template]")
{
  CHECK(llama::chat_family("{{'<|im_start|>' + message['role'] + '\\n'}}") == ChatFamily::chatml);
  CHECK(llama::chat_family("{{ bos_token + '[INST] ' + '<<SYS>>\\n' }}") == ChatFamily::llama2);
  CHECK(llama::chat_family("{{ '[INST] ' + message['content'] + '[/INST]' }}") ==
        ChatFamily::mistral);
  CHECK(llama::chat_family("'<|start_header_id|>' + role + '<|end_header_id|>\\n\\n'") ==
        ChatFamily::llama3);
  CHECK(llama::chat_family("'<start_of_turn>' + role + '\\n'") == ChatFamily::gemma);
  CHECK(llama::chat_family("{{ '<|user|>\\n' + message['content'] + eos_token }}") ==
        ChatFamily::zephyr);
  CHECK(llama::chat_family("{{ '<|user|>\\n' + message['content'] + '<|end|>\\n' }}") ==
        ChatFamily::phi3);
  CHECK(llama::chat_family("{{ message['content'] }}") == ChatFamily::none);
  CHECK(llama::chat_family("") == ChatFamily::none);
}

TEST_CASE("chat_turn: a turn without a system's text", "[llama][chat_template]")
{
  CHECK(chat_turn(ChatFamily::none, "", "hi") == "hi");
  CHECK(chat_turn(ChatFamily::chatml, "", "hi") ==
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  CHECK(chat_turn(ChatFamily::llama2, "", " hi\n") == "<s>[INST] hi [/INST]");
  CHECK(chat_turn(ChatFamily::mistral, "", "hi") == "<s>[INST] hi [/INST]");
  CHECK(chat_turn(ChatFamily::llama3, "", " hi ") ==
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(chat_turn(ChatFamily::gemma, "", "hi") ==
        "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n");
  CHECK(chat_turn(ChatFamily::zephyr, "", "hi") == "<|user|>\nhi</s>\n<|assistant|>\n");
  CHECK(chat_turn(ChatFamily::phi3, "", "hi") == "<|user|>\nhi<|end|>\n<|assistant|>\n");
}

TEST_CASE("chat_turn: a turn behind a system's text", "[llama][chat_template]")
{
  CHECK(chat_turn(ChatFamily::chatml, "be brief", "hi") ==
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(chat_turn(ChatFamily::llama2, "be brief", "hi") ==
        "<s>[INST] <<SYS>>\nbe brief\n<</SYS>>\n\nhi [/INST]");
  CHECK(chat_turn(ChatFamily::mistral, "be brief", "hi") == "<s>[INST] be brief\n\nhi [/INST]");
  CHECK(chat_turn(ChatFamily::llama3, "be brief", "hi") ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nbe brief<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(chat_turn(ChatFamily::gemma, "be brief", "hi") ==
        "<bos><start_of_turn>user\nbe brief\n\nhi<end_of_turn>\n<start_of_turn>model\n");
  CHECK(chat_turn(ChatFamily::zephyr, "be brief", "hi") ==
        "<|system|>\nbe brief</s>\n<|user|>\nhi</s>\n<|assistant|>\n");
  CHECK(chat_turn(ChatFamily::phi3, "be brief", "hi") ==
        "<|system|>\nbe brief<|end|>\n<|user|>\nhi<|end|>\n<|assistant|>\n");
}

TEST_CASE("Tokenizer: --chat takes the family of the file's template", "[llama][chat_template]")
{
  CHECK(with_template("[INST] {{ x }}").chat_turn("hi") == "<s>[INST] hi [/INST]");
  CHECK(with_template("<|im_start|>system\nbe kind<|im_end|>").chat_turn("hi") ==
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(with_template("<|im_start|>system\n' + system + '<|im_end|>").chat_turn("hi") ==
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");  // built by the program
  CHECK_THROWS_WITH(with_template("").chat_turn("hi"), Contains("no chat template of a family"));
}
