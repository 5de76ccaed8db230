// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include "fixture.hpp"

namespace llama_test {

/// Where SmolLM2 lies, if it does.
[[nodiscard]] inline std::filesystem::path smollm2_path()
{
  char const* const named = std::getenv("KVCACHE_SMOLLM2");
  return named != nullptr
           ? std::filesystem::path(named)
           : std::filesystem::path(KVCACHE_SOURCE_DIR) / "models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// Whether the model is here; says what is not run where it is not.
[[nodiscard]] inline bool smollm2_present(char const* what)
{
  if (std::filesystem::exists(smollm2_path())) {
    return true;
  }
  std::cout << "not run: " << what << " (needs " << smollm2_path()
            << ", which examples/llama/fetch_smollm2.sh gets)\n";
  return false;
}

[[nodiscard]] inline Runner smollm2_runner()
{
  return Runner(llama::Gguf::open(smollm2_path().string()),
                std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace llama_test
