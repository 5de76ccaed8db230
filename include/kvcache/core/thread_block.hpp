// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file What a kernel asks of the threads that run it: a block of GPU threads and the warps it is made of.
///
/// A kernel is a functor, `template <ThreadBlock B> void operator()(B& block) const`, so that one body runs on a GPU
/// (`core/cuda_block.hpp`) and, thread by thread, on a CPU that checks it. Grids and blocks have one dimension; a kernel
/// splits its index by itself.
///
/// **ThreadBlock** `b`, one object for each thread:
///
///   b.thread()  b.threads()        which thread of the block this is, and how many the block has: a multiple of 32
///   b.index()   b.blocks()         which block of the grid, and how many the grid has
///   b.sync()                       a barrier of all threads of the block; orders memory. None may have left the kernel.
///   b.sync(barrier, threads)       a named barrier, 1 to 15, of `threads` threads: whole warps, all with the same number
///   b.shared()                     the dynamic shared memory, at a multiple of 128 bytes; its content at first is anything
///   b.warp()                       the warp of this thread
///
/// **ThreadWarp** `w`. A mask has bit l set for each lane l that takes part; every lane named in it must make the same call
/// with the same mask, and a lane may not make one that leaves itself out.
///
///   w.lane()  w.index()            lane 0..31; which warp of the block
///   w.sync(mask)                   a barrier of those lanes; orders memory between them, what nothing below does
///   w.shuffle(x, from, mask)       x of lane `from`, which the mask names; T has 4 or 8 bytes and is trivially copyable
///   w.shuffle_xor(x, with, mask)   x of lane `lane ^ with`
///   w.shuffle_up(x, by, mask)      x of lane `lane - by`, or the lane's own x where there is none
///   w.shuffle_down(x, by, mask)    x of lane `lane + by`, or the lane's own x where there is none
///   w.ballot(p, mask)              bit l is set where lane l said true; w.any(p, mask), w.all(p, mask): some did, all did
///
/// The model of a CPU has more, for the host twins of instructions (`core/isa.hpp`), see its own header.

namespace kvcache::inline v0_1 {

inline constexpr std::int32_t warp_lanes = 32;
/// The mask that names every lane of a warp.
inline constexpr std::uint32_t all_lanes = 0xffffffffU;

/// See the file comment.
template <class W>
concept ThreadWarp = requires(W const warp) {
  { warp.lane() } -> std::same_as<std::int32_t>;
  { warp.index() } -> std::same_as<std::int32_t>;
} && requires(W& warp, std::uint32_t mask, std::int32_t n, float x, std::uint64_t y, bool p) {
  warp.sync();
  warp.sync(mask);
  { warp.shuffle(x, n, mask) } -> std::same_as<float>;
  { warp.shuffle(y, n, mask) } -> std::same_as<std::uint64_t>;
  { warp.shuffle_xor(x, n, mask) } -> std::same_as<float>;
  { warp.shuffle_up(x, n, mask) } -> std::same_as<float>;
  { warp.shuffle_down(x, n, mask) } -> std::same_as<float>;
  { warp.ballot(p, mask) } -> std::same_as<std::uint32_t>;
  { warp.any(p, mask) } -> std::same_as<bool>;
  { warp.all(p, mask) } -> std::same_as<bool>;
};

/// See the file comment.
template <class B>
concept ThreadBlock = requires(B const block) {
  { block.thread() } -> std::same_as<std::int32_t>;
  { block.threads() } -> std::same_as<std::int32_t>;
  { block.index() } -> std::same_as<std::int32_t>;
  { block.blocks() } -> std::same_as<std::int32_t>;
} && requires(B& block, std::int32_t n) {
  block.sync();
  block.sync(n, n);
  { block.shared() } -> std::same_as<std::byte*>;
  { block.warp() };
  requires ThreadWarp<std::remove_reference_t<decltype(block.warp())>>;
};

}  // namespace kvcache::inline v0_1
