// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace llama {

/// The recall model (recall.gguf), part of the program: what runs without `--model`. 64-byte
/// aligned.
[[nodiscard]] std::span<std::byte const> embedded_model();

}  // namespace llama
