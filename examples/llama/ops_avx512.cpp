// SPDX-License-Identifier: Apache-2.0

/// \file Which processors have AVX-512 with VNNI, and AMX. One row and float32 are bound by memory or rare, so these two
/// sets share all loops but one with AVX2.

#include "ops_avx512.hpp"

#if defined(__x86_64__)

#include <kvcache/attention/instruction_set.hpp>

#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "ops_avx2.hpp"

namespace llama {
namespace {

struct Leaf7 {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
};

Leaf7 leaf_7()
{
  Leaf7 out;
  (void)__get_cpuid_count(7, 0, &out.a, &out.b, &out.c, &out.d);
  return out;
}

bool machine_has_vnni()
{
  constexpr unsigned vnni = 1U << 11;
  return kvcache::supported(kvcache::InstructionSet::avx512) && (leaf_7().c & vnni) != 0;
}

/// Linux lends the registers of AMX to processes that ask for them.
bool machine_has_amx()
{
#if defined(__linux__)
  constexpr unsigned tile_int8 = 1U << 24 | 1U << 25;
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return machine_has_vnni() && (leaf_7().d & tile_int8) == tile_int8 &&
         syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

/// AVX2's table with other products of many rows.
constexpr Kernels with_products(char const* name, decltype(Kernels::rounded_times_many) products)
{
  return {name,
          avx2::decode,
          avx2::times,
          avx2::round,
          avx2::rounded_times_one,
          products,
          avx2::rms_norm,
          avx2::add,
          avx2::swiglu};
}

}  // namespace

Kernels const* avx512_kernels()
{
  static constexpr Kernels table = with_products("avx512", avx512::rounded_times_many);
  static bool const usable = machine_has_vnni();
  return usable ? &table : nullptr;
}

Kernels const* amx_kernels()
{
  static constexpr Kernels table = with_products("amx", amx::rounded_times_many);
  static bool const usable = machine_has_amx();
  return usable ? &table : nullptr;
}

}  // namespace llama

#else

namespace llama {
Kernels const* avx512_kernels()
{
  return nullptr;
}
Kernels const* amx_kernels()
{
  return nullptr;
}
}  // namespace llama

#endif
