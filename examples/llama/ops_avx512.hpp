// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The loops by name in which AVX-512 and AMX differ from AVX2; `avx512_kernels` and `amx_kernels` make tables.

#include "ops_kernels.hpp"

namespace llama {

namespace avx512 {
void rounded_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y);
}

namespace amx {
void rounded_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y);
}

}  // namespace llama
