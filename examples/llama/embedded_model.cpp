// SPDX-License-Identifier: Apache-2.0
#include "embedded_model.hpp"

// The build passes the path of the file; the assembler copies it, whatever its size, in no time.
asm(
  ".pushsection .rodata.llama_recall, \"a\"\n"
  ".balign 64\n"
  ".globl llama_recall_begin\n"
  ".hidden llama_recall_begin\n"
  "llama_recall_begin:\n"
  ".incbin \"" LLAMA_RECALL_GGUF
  "\"\n"
  ".globl llama_recall_end\n"
  ".hidden llama_recall_end\n"
  "llama_recall_end:\n"
  ".byte 0\n"
  ".popsection\n");

extern "C" {
[[gnu::visibility("hidden")]] extern std::byte const llama_recall_begin[];
[[gnu::visibility("hidden")]] extern std::byte const llama_recall_end[];
}

namespace llama {

std::span<std::byte const> embedded_model()
{
  return {llama_recall_begin, llama_recall_end};
}

}  // namespace llama
