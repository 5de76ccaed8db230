// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>

/// \file What the CUDA runtime said, as an `Error`.

namespace kvcache::inline v0_1 {

/// The call, its code, and the runtime's sentence, such as
/// "cudaMemcpyAsync = 700 (device failed): an illegal memory access was encountered".
[[nodiscard]] inline Error cuda_error(cudaError_t code, char const* call) noexcept
{
  if (code == cudaSuccess) {
    return {};
  }
  bool const memory = code == cudaErrorMemoryAllocation;
  return {memory ? Why::no_memory : Why::device_failed,
          call,
          static_cast<std::int64_t>(code),
          cudaGetErrorString(code)};  // a literal of the runtime
}

namespace detail {

/// Takes back what a failed call of ours left for the thread's next `cudaGetLastError`, which belongs to the engine.
inline void forget_last(cudaError_t code) noexcept
{
  if (cudaPeekAtLastError() == code) {
    (void)cudaGetLastError();
  }
}

/// The first failure, kept.
class CudaStatus {
 public:
  /// Whether the call worked.
  bool check(cudaError_t code, char const* call) noexcept
  {
    if (code == cudaSuccess) [[likely]] {
      return true;
    }
    forget_last(code);
    if (!failed()) {
      first_ = cuda_error(code, call);
      first_.why = Why::device_failed;
    }
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return first_.why != Why::ok; }
  [[nodiscard]] Error first() const noexcept { return first_; }

 private:
  Error first_{};
};

}  // namespace detail
}  // namespace kvcache::inline v0_1
