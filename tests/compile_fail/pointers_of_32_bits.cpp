// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: pointers of 64 bits are needed, and those of this build have 32
// flags: -m32

#include <kvcache/core/config.hpp>
