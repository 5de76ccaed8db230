// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/device/cuda_error.hpp>
#include <kvcache/device/cuda_scope.hpp>
#include <kvcache/device/cuda_staging.hpp>
#include <kvcache/device/device.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// \file The memory and streams of a GPU: all of a CUDA device but its launches, for a plain host compiler.
///
///   with a handle      on that stream
///   without one        on a stream of the device's own. Then an event is recorded, and until it has passed, every call with
///                      a handle makes its stream wait for the event first. So what came without a handle is before all that
///                      comes later, and the default stream is never used.
///
/// Memory is taken and given back in the order of the own stream, from a pool of the device's own, where the driver has such
/// pools; elsewhere by `cudaMalloc` and `cudaFree`, which may wait for the device, as `cudaHostAlloc` may when a plan needs a
/// larger staging buffer than any before. `wait` waits where it must. Nothing else here does.
///
/// After a call that failed nothing more is asked of the runtime, and `status` says which it was.
///
/// A captured stream: what moves bytes is captured. The wait for the event becomes a node of the graph that looks at the event
/// when the graph runs. Memory is taken beside the capture; a `Pool` takes none then.

namespace kvcache::inline v0_1 {

/// See the file comment. **Threads** one at a time, on any thread; the thread's device is put back.
class CudaMemory : public Device {
 public:
  /// `ordinal` as for `cudaSetDevice`. **Errors** see `status`.
  explicit CudaMemory(int ordinal) noexcept : ordinal_(ordinal)
  {
    detail::OnCudaDevice const here(ordinal_, status_);
    bool const works =
      !status_.failed() &&
      status_.check(cudaStreamCreateWithFlags(own_.out(), cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags") &&
      status_.check(cudaEventCreateWithFlags(ready_.out(), cudaEventDisableTiming),
                    "cudaEventCreateWithFlags") &&
      status_.check(cudaEventCreateWithFlags(joined_.out(), cudaEventDisableTiming),
                    "cudaEventCreateWithFlags");
    if (works && attribute(cudaDevAttrMemoryPoolsSupported) != 0) {
      cudaMemPoolProps properties{};
      properties.allocType = cudaMemAllocationTypePinned;
      properties.location.type = cudaMemLocationTypeDevice;
      properties.location.id = ordinal_;
      status_.check(cudaMemPoolCreate(pool_.out(), &properties), "cudaMemPoolCreate");
    }
  }

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] Error status() const noexcept override { return status_.first(); }

  [[nodiscard]] bool captures(StreamRef stream) noexcept override
  {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (stream.handle != nullptr && !status_.failed()) {
      detail::OnCudaDevice const here(ordinal_, status_);
      status_.check(cudaStreamIsCapturing(as_cuda(stream), &capture), "cudaStreamIsCapturing");
    }
    return capture != cudaStreamCaptureStatusNone;
  }
  /// What a graph captures was not asked for yet: then nothing is joined.
  void join(StreamRef stream) noexcept override
  {
    if (status_.failed() || stream.handle == nullptr || captures(stream)) {
      return;
    }
    detail::OnCudaDevice const here(ordinal_, status_);
    status_.check(cudaEventRecord(joined_.get(), as_cuda(stream)), "cudaEventRecord");
    status_.check(cudaStreamWaitEvent(own_.get(), joined_.get(), cudaEventWaitDefault),
                  "cudaStreamWaitEvent");
    announce();
  }

  void mark(std::uint32_t number, StreamRef stream) noexcept override
  {
    if (status_.failed() || captures(stream)) {
      return;
    }
    detail::OnCudaDevice const here(ordinal_, status_);
    detail::CudaEvent& mark = marks_[number];
    bool const made = mark.get() != nullptr ||
                      status_.check(cudaEventCreateWithFlags(mark.out(), cudaEventDisableTiming),
                                    "cudaEventCreateWithFlags");
    if (made) {
      status_.check(
        cudaEventRecord(mark.get(), stream.handle != nullptr ? as_cuda(stream) : own_.get()),
        "cudaEventRecord");
    }
  }
  void wait(std::uint32_t number) noexcept override
  {
    if (status_.failed() || marks_[number].get() == nullptr) {
      return;
    }
    detail::OnCudaDevice const here(ordinal_, status_);
    if (!detail::has_passed(marks_[number], status_) && !status_.failed()) {
      detail::BesideCaptures const beside;
      status_.check(cudaEventSynchronize(marks_[number].get()), "cudaEventSynchronize");
    }
  }

  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    if (status_.failed()) {
      return nullptr;
    }
    detail::OnCudaDevice const here(ordinal_, status_);
    detail::BesideCaptures const beside;
    void* memory = nullptr;
    bool const ordered = pool_.get() != nullptr;
    cudaError_t const code = ordered
                               ? cudaMallocFromPoolAsync(&memory, bytes, pool_.get(), own_.get())
                               : cudaMalloc(&memory, bytes);
    if (code == cudaErrorMemoryAllocation) {
      detail::forget_last(code);
      return nullptr;
    }
    if (!status_.check(code, ordered ? "cudaMallocFromPoolAsync" : "cudaMalloc")) {
      return nullptr;
    }
    announce();
    return static_cast<std::byte*>(memory);
  }
  /// After a failure too: of what was taken nothing may stay taken.
  void deallocate(std::byte* memory, std::size_t) noexcept override
  {
    detail::OnCudaDevice const here(ordinal_, status_);
    detail::BesideCaptures const beside;
    if (pool_.get() != nullptr) {
      status_.check(cudaFreeAsync(memory, own_.get()), "cudaFreeAsync");
    } else {
      status_.check(cudaFree(memory), "cudaFree");
    }
  }
  [[nodiscard]] std::byte* allocate_staging(std::size_t bytes) noexcept override
  {
    if (status_.failed()) {
      return nullptr;
    }
    detail::OnCudaDevice const here(ordinal_, status_);
    return staging_.take(bytes, status_);
  }
  void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept override
  {
    detail::OnCudaDevice const here(ordinal_, status_);
    staging_.give_back(memory, bytes, own_.get(), status_);
  }

  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              StreamRef stream) noexcept override
  {
    on(stream, "cudaMemcpyAsync", [=](cudaStream_t s) {
      return cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, s);
    });
  }
  void fill(std::byte* target,
            std::byte value,
            std::size_t bytes,
            StreamRef stream) noexcept override
  {
    on(stream, "cudaMemsetAsync", [=](cudaStream_t s) {
      return cudaMemsetAsync(target, static_cast<int>(value), bytes, s);
    });
  }

 protected:
  /// Makes `call(stream)` on the stream that `stream` means, behind what it must follow.
  template <class Call>
  void on(StreamRef stream, char const* name, Call const& call) noexcept
  {
    if (status_.failed()) {
      return;
    }
    detail::OnCudaDevice const here(ordinal_, status_);
    if (stream.handle == nullptr) {
      status_.check(call(own_.get()), name);
      announce();
      return;
    }
    if (follow(stream)) {
      status_.check(call(as_cuda(stream)), name);
    }
  }
  [[nodiscard]] int attribute(cudaDeviceAttr which) noexcept
  {
    int value = 0;
    status_.check(cudaDeviceGetAttribute(&value, which, ordinal_), "cudaDeviceGetAttribute");
    return value;
  }

 private:
  [[nodiscard]] static cudaStream_t as_cuda(StreamRef stream) noexcept
  {
    return static_cast<cudaStream_t>(stream.handle);
  }
  /// Later calls on other streams wait for the own stream as it is now.
  void announce() noexcept
  {
    status_.check(cudaEventRecord(ready_.get(), own_.get()), "cudaEventRecord");
    announced_ = true;
  }
  /// False: it could not, see `status`.
  [[nodiscard]] bool follow(StreamRef stream) noexcept
  {
    if (!announced_) [[likely]] {
      return true;
    }
    if (detail::has_passed(ready_, status_)) {
      announced_ = false;
      return true;
    }
    unsigned const how = captures(stream) ? cudaEventWaitExternal : cudaEventWaitDefault;
    return !status_.failed() &&
           status_.check(cudaStreamWaitEvent(as_cuda(stream), ready_.get(), how),
                         "cudaStreamWaitEvent");
  }

  int ordinal_;
  detail::CudaStatus status_;
  detail::CudaMemPool pool_;
  detail::CudaStream own_;
  detail::CudaEvent ready_;             // of the own stream
  detail::CudaEvent joined_;            // of the stream that was joined last
  detail::CudaEvent marks_[num_marks];  // made when they are noted first
  detail::CudaStaging staging_;
  bool announced_ = false;  // the own stream may not have passed `ready_`
};

}  // namespace kvcache::inline v0_1
