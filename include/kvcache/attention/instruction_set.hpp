// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/// \file Which vector instructions the host attention may use, asked of the processor at run time.
///
/// The question goes to cpuid itself, because one of our compilers knows no name for F16C, and to xgetbv,
/// because a processor may offer registers that the operating system does not save.

namespace kvcache::inline v0_1 {

/// A way to run the host attention. All give the same result but for the order of sums in a dot product.
enum class InstructionSet : std::uint8_t {
  best,      ///< whatever is fastest here
  portable,  ///< plain C++, any processor
  avx2,      ///< AVX2, FMA and F16C: eight floats
  avx512,    ///< AVX-512 F, BW, DQ and VL: sixteen floats
};

[[nodiscard]] constexpr char const* name(InstructionSet set) noexcept
{
  switch (set) {
    case InstructionSet::best:
      return "best";
    case InstructionSet::portable:
      return "portable";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
  }
  return "unknown";
}

/// The widest set that this processor and its operating system offer. **Cost** some hundred cycles, or
/// some ten microseconds in a virtual machine: ask once, not per layer.
[[nodiscard]] inline InstructionSet best_instruction_set() noexcept
{
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) {
    return InstructionSet::portable;
  }
  constexpr unsigned fma_osxsave_avx_f16c = 1U << 12 | 1U << 27 | 1U << 28 | 1U << 29;
  if ((c & fma_osxsave_avx_f16c) != fma_osxsave_avx_f16c) {
    return InstructionSet::portable;
  }
  unsigned saved = 0;  // NOLINT(misc-const-correctness): asm writes it
  asm volatile("xgetbv" : "=a"(saved) : "c"(0) : "edx");
  constexpr unsigned xmm_ymm = 0x06;
  constexpr unsigned xmm_ymm_zmm = 0xe6;
  if ((saved & xmm_ymm) != xmm_ymm || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) {
    return InstructionSet::portable;
  }
  constexpr unsigned avx2 = 1U << 5;
  constexpr unsigned f_dq_bw_vl = 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;
  if ((b & avx2) == 0) {
    return InstructionSet::portable;
  }
  return (b & f_dq_bw_vl) == f_dq_bw_vl && (saved & xmm_ymm_zmm) == xmm_ymm_zmm
           ? InstructionSet::avx512
           : InstructionSet::avx2;
#else
  return InstructionSet::portable;
#endif
}

/// Whether `set` can run here. **Cost** as `best_instruction_set`.
[[nodiscard]] inline bool supported(InstructionSet set) noexcept
{
  return set <= InstructionSet::portable || set <= best_instruction_set();
}

}  // namespace kvcache::inline v0_1
