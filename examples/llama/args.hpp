// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace llama {

/// In which type K and V rows are stored.
enum class KvType : std::uint8_t { f32, f16, bf16 };

/// The command line of the program.
struct Args {
  std::string model;         // empty: the embedded recall model
  std::string tokenizer;     // of a llama2.c checkpoint; empty: the model is a GGUF
  std::string prompt;        // raw text
  std::string dump;          // empty: no dump
  std::string json;          // of --bench; empty: none
  int n = 64;                // tokens to generate
  float temperature = 0.0F;  // 0: greedy
  float top_p = 1.0F;
  std::uint64_t seed = 1;
  KvType kv = KvType::f16;
  int threads = 1;       // the default is what the machine has
  int chunk = 256;       // prompt tokens per step
  int page_tokens = 16;  // 1 to 256
  int pages = 0;         // 0: as many as the work needs
  bool chat = false;
  bool demo = false;
  bool bench = false;
  bool progress = true;
  bool help = false;
};

/// Reads the arguments after the program's name. **Errors** `UsageError` naming the argument, its
/// value and the values that are right.
[[nodiscard]] Args parse_args(std::span<char const* const> arguments);

/// What `--help` prints.
[[nodiscard]] std::string usage();

}  // namespace llama
