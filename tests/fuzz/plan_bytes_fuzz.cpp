// SPDX-License-Identifier: Apache-2.0
// For libFuzzer; how to build it: see the header.

#include "fuzz/plan_bytes.hpp"
