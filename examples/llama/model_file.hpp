// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gguf.hpp"

namespace llama {

/// The model at `path`: a GGUF, or a checkpoint of llama2.c with its `tokenizer` file; the embedded recall model where
/// `path` is empty. **Errors** `Error` naming the file and what would be right.
[[nodiscard]] Gguf open_model(std::string const& path, std::string const& tokenizer = "");

}  // namespace llama
