// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "args.hpp"

namespace llama {

/// Runs `--bench`: prints tokens a second at three lengths of context beside the speed at which the same threads
/// merely read the weights, and writes `--json FILE`. Returns the exit code. **Errors** `Error`.
[[nodiscard]] int bench(Args const& args);

}  // namespace llama
