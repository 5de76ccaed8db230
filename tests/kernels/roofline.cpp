// SPDX-License-Identifier: Apache-2.0
// roofline USED: what the shipped kernels can do at best, from arithmetic and from what ptxas said of them (the file that
// tests/kernels/run.sh leaves): no GPU is asked.
//
//   occupancy    blocks beside each other on a multiprocessor of sm_90: 65,536 registers, given to warps in 256, 227 KiB of
//                shared memory, a KiB of it a block's own, 2,048 threads, 32 blocks
//   bytes        read and written for a row of K and V of one KV head (or a page's 4 KiB), bfloat16
//   FLOPs        useful ones, for a group of 4 query heads in decode, for 64 query rows in prefill

#include <kvcache/attention/device.hpp>
#include <kvcache/device/plan_kernels.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/view/append_kernel.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace {

/// Registers of a thread by kernel, the most that any of sm_90, sm_90a takes.
std::map<std::string, int> registers_of(char const* path)
{
  std::map<std::string, int> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::string target;
    int registers = 0;
    if (fields >> name >> target >> registers && target.rfind("sm_90", 0) == 0) {
      out[name] = std::max(out[name], registers);
    }
  }
  return out;
}

int blocks_beside(int registers, int threads, int shared)
{
  int const warps = threads / 32;
  int const by_registers = 65536 / ((registers * 32 + 255) / 256 * 256 * warps);
  int const by_shared = 227 * 1024 / (shared + 1024);
  return std::min({by_registers, by_shared, 2048 / threads, 32});
}

struct Line {
  char const* what;
  std::string kernel;
  int threads;
  int shared;
  double bytes;
  double flops;
};

template <int Dim>
std::string attend_name()
{
  std::string const dim = std::to_string(Dim);
  return "AttendKernel<PagedHeads<bfloat16," + dim + ",16,(RowOrder)0>," + dim +
         ",bfloat16,bfloat16,NoBias>";
}

template <int Dim>
Line attend(char const* what, double rows)
{
  using Kernel = kvcache::AttendKernel<kvcache::PagedHeads<kvcache::bfloat16, Dim, 16>,
                                       Dim,
                                       kvcache::bfloat16,
                                       kvcache::bfloat16>;
  return {what,
          attend_name<Dim>(),
          Kernel::max_threads,
          static_cast<int>(Kernel::shared_bytes),
          2.0 * Dim * 2,
          2.0 * 2 * Dim * rows};
}

}  // namespace

int main(int argc, char** argv)
{
  if (argc != 2) {
    std::fprintf(stderr, "usage: roofline build/nvcc/kernels/used.txt\n");
    return 2;
  }
  std::map<std::string, int> const registers = registers_of(argv[1]);
  Line const lines[] = {
    attend<64>("decode, head size 64, group 4", 4),
    attend<128>("decode, head size 128, group 4", 4),
    attend<256>("decode, head size 256, group 4", 4),
    attend<128>("prefill, head size 128, 64 rows", 64),
    {"append with RoPE, a row of 128",
     "AppendKernel<PagedHeads<bfloat16,128,16,(RowOrder)0>,bfloat16>",
     256,
     512,
     2 * 2.0 * 128 * 2,
     6.0 * 64},
    {"page copy, 4 KiB",
     "CopyPagesKernel",
     kvcache::CopyPagesKernel::max_threads,
     0,
     2 * 4096.0,
     0},
  };
  std::printf(
    "| kernel, sm_90 | registers | shared, bytes | blocks an SM | warps of 64 | bytes | FLOPs | "
    "FLOPs a byte |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (Line const& line : lines) {
    auto const found = registers.find(line.kernel);
    if (found == registers.end()) {
      std::fprintf(stderr, "roofline: %s says nothing of %s\n", argv[1], line.kernel.c_str());
      return 1;
    }
    int const blocks = blocks_beside(found->second, line.threads, line.shared);
    std::printf("| %s | %d | %d | %d | %d | %.0f | %.0f | %.1f |\n",
                line.what,
                found->second,
                line.shared,
                blocks,
                blocks * line.threads / 32,
                line.bytes,
                line.flops,
                line.flops / line.bytes);
  }
  return 0;
}
