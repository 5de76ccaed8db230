// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The AVX2 loops by name; `avx2_kernels` makes a table of them.

#include "ops_kernels.hpp"

namespace llama::avx2 {

void decode(WeightType type, std::byte const* row, std::size_t cols, float* out);
void times(FloatRows w, std::size_t rows, std::size_t cols, FloatRows x, std::size_t n, OutRows y);
void round(float const* x, std::size_t cols, RoundedRow out);
void rounded_times_one(EncodedRows w, RoundedView x, float* y);
void rounded_times_many(EncodedRows w, RoundedView x, std::size_t n, OutRows y);
void rms_norm(float const* x, float const* gain, std::size_t width, float epsilon, float* out);
void add(float* x, float const* y, std::size_t width);
void swiglu(float* gate, float const* up, std::size_t width);

}  // namespace llama::avx2
