// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/device/cuda_error.hpp>

#include <cuda_runtime_api.h>

#include <utility>

/// \file What a call changes of the thread's CUDA state, and puts back; and handles that are destroyed.

namespace kvcache::inline v0_1::detail {

/// The thread's device is `ordinal` while this lives.
class OnCudaDevice {
 public:
  OnCudaDevice(int ordinal, CudaStatus& status) noexcept
  {
    if (status.check(cudaGetDevice(&before_), "cudaGetDevice") && before_ != ordinal) {
      changed_ = status.check(cudaSetDevice(ordinal), "cudaSetDevice");
    }
  }
  OnCudaDevice(OnCudaDevice const&) = delete;
  OnCudaDevice& operator=(OnCudaDevice const&) = delete;
  ~OnCudaDevice()
  {
    if (changed_) {
      (void)cudaSetDevice(before_);  // it was set before, so it can be
    }
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Calls that a capture on this or another thread would make fail, and itself with them, though they have nothing to do with
/// it, are allowed while this lives: taking memory, asking for an event.
class BesideCaptures {
 public:
  BesideCaptures() noexcept { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideCaptures(BesideCaptures const&) = delete;
  BesideCaptures& operator=(BesideCaptures const&) = delete;
  ~BesideCaptures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A handle, destroyed at the end. Events and streams in use go when their work is done; no one waits.
template <class T, cudaError_t (*Destroy)(T)>
class CudaHandle {
 public:
  CudaHandle() = default;
  CudaHandle(CudaHandle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept
  {
    std::swap(value_, other.value_);
    return *this;
  }
  CudaHandle(CudaHandle const&) = delete;
  CudaHandle& operator=(CudaHandle const&) = delete;
  ~CudaHandle()
  {
    if (value_ != nullptr) {
      (void)Destroy(value_);
    }
  }
  [[nodiscard]] T get() const noexcept { return value_; }
  /// Where a create call puts it. **Pre** empty.
  [[nodiscard]] T* out() noexcept { return &value_; }

 private:
  T value_ = nullptr;
};

using CudaEvent = CudaHandle<cudaEvent_t, &cudaEventDestroy>;
using CudaStream = CudaHandle<cudaStream_t, &cudaStreamDestroy>;
using CudaMemPool = CudaHandle<cudaMemPool_t, &cudaMemPoolDestroy>;

/// Whether all that was before the event's last record is done. Failures count as not done; `status` keeps them.
[[nodiscard]] inline bool has_passed(CudaEvent const& event, CudaStatus& status) noexcept
{
  BesideCaptures const beside;
  cudaError_t const code = cudaEventQuery(event.get());
  if (code == cudaErrorNotReady) {
    forget_last(code);
    return false;
  }
  return status.check(code, "cudaEventQuery");
}

}  // namespace kvcache::inline v0_1::detail
