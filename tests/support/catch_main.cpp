// SPDX-License-Identifier: Apache-2.0
// The one translation unit that holds Catch2 version 2's own code; version 3 brings a library with main().

#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
