// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The instructions of a GPU that C++ has no word for, each with a twin that does the same on a host.
///
/// This folder holds the only PTX of the library. A function that one lane can do alone takes values; one that a warp does
/// together takes the warp first. Under nvcc's device pass a function is its instruction. Everywhere else it is its twin,
/// which follows the maps of the PTX ISA bit for bit and asks the warp for what lanes exchange:
///
///     what ThreadWarp has (thread_block.hpp), and
///     void exchange(uint32 mask, T const& mine, T* all)      all[l] = what lane l of the mask gave; T of at most 64 bytes
///     void async_copy(void* shared, void const* global, int32 bytes, int32 real_bytes), async_commit(), async_wait(int32 left)
///
/// So a kernel written over these functions runs on a CPU without a change. What differs is said at each function: the order
/// in which tensor cores add, and subnormal floats in atomics. A target that lacks an instruction gets the twin's bit
/// arithmetic, which the tests of a host therefore prove too.
///
/// **Pre** of every function that takes a warp: all of its 32 lanes call it together.
/// Source: NVIDIA, "Parallel Thread Execution ISA", version 9.0.

#include <kvcache/core/isa/async_copy.hpp>
#include <kvcache/core/isa/atomic.hpp>
#include <kvcache/core/isa/barrier.hpp>
#include <kvcache/core/isa/bits.hpp>
#include <kvcache/core/isa/half2.hpp>
#include <kvcache/core/isa/ldmatrix.hpp>
#include <kvcache/core/isa/mma.hpp>
#include <kvcache/core/isa/once.hpp>
#include <kvcache/core/isa/reduce.hpp>
#include <kvcache/core/isa/small_float.hpp>
#include <kvcache/core/isa/target.hpp>
