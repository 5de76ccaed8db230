// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The version, for a preprocessor test. CMake refuses to configure when its own differs.

#define KVCACHE_VERSION_MAJOR 0
#define KVCACHE_VERSION_MINOR 1
#define KVCACHE_VERSION_PATCH 0
