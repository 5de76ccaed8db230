// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A cache on a GPU, for nvcc: the facade and the CUDA device. Start reading at `device/cuda_device.cuh`.

#include <kvcache/device/cuda.hpp>
#include <kvcache/device/cuda_device.cuh>
#include <kvcache/kvcache.hpp>
