// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file CUDA for a plain host compiler that has the toolkit's headers: element types, errors, memory and streams. The launches
/// need nvcc: `cuda.cuh`.

#include <kvcache/device/cuda_arena.hpp>
#include <kvcache/device/cuda_elements.hpp>
#include <kvcache/device/cuda_error.hpp>
#include <kvcache/device/cuda_memory.hpp>
