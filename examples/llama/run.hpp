// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "args.hpp"

namespace llama {

/// Continues `args.prompt` and writes the text to stdout as it comes. Returns the exit code: 0, or that of Ctrl-C.
/// **Errors** `Error`: bad files, words without a token, a prompt that the model or the pool cannot hold.
[[nodiscard]] int run(Args const& args);

}  // namespace llama
