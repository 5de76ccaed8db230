// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>
#include <kvcache/device/cuda_error.hpp>
#include <kvcache/device/cuda_scope.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>
#include <vector>

/// \file Pinned buffers that go round: given back, one waits until the device has read it, then serves again.
///
/// Pinning and unpinning memory may wait for the device. So a buffer that is given back is kept, with an event behind what
/// may still read it, and all are freed at the end. **Cost** of a buffer that serves again: a walk over those kept.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
class CudaStaging {
 public:
  CudaStaging() = default;
  CudaStaging(CudaStaging const&) = delete;
  CudaStaging& operator=(CudaStaging const&) = delete;
  ~CudaStaging()
  {
    BesideCaptures const beside;
    for (Kept const& kept : kept_) {
      (void)cudaFreeHost(kept.memory);
    }
  }

  /// Null: there is no memory, or `status` says why.
  [[nodiscard]] std::byte* take(std::size_t bytes, CudaStatus& status) noexcept
  {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i].bytes >= bytes && kept_[i].after.get() != nullptr &&
          has_passed(kept_[i].after, status)) {
        std::byte* const memory = kept_[i].memory;
        std::swap(kept_[i], kept_.back());
        kept_.pop_back();
        return memory;
      }
    }
    // Room for all that may be given back, so that giving back cannot fail.
    if (!memory_sufficed_for([this] { kept_.reserve(buffers_ + 1); })) {
      return nullptr;
    }
    BesideCaptures const beside;
    void* memory = nullptr;
    cudaError_t const code = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    if (code == cudaErrorMemoryAllocation) {
      forget_last(code);
      return nullptr;
    }
    if (!status.check(code, "cudaHostAlloc")) {
      return nullptr;
    }
    ++buffers_;
    return static_cast<std::byte*>(memory);
  }

  /// The buffer serves again when `stream` has come to here.
  void give_back(std::byte* memory,
                 std::size_t bytes,
                 cudaStream_t stream,
                 CudaStatus& status) noexcept
  {
    CudaEvent after;
    if (status.failed() ||
        !status.check(cudaEventCreateWithFlags(after.out(), cudaEventDisableTiming),
                      "cudaEventCreateWithFlags") ||
        !status.check(cudaEventRecord(after.get(), stream), "cudaEventRecord")) {
      after = CudaEvent{};  // it never serves again
    }
    kept_.push_back({memory, bytes, std::move(after)});
  }

 private:
  struct Kept {
    std::byte* memory;
    std::size_t bytes;
    CudaEvent after;
  };
  std::vector<Kept> kept_;
  std::size_t buffers_ = 0;  // pinned, kept or in use
};

}  // namespace kvcache::inline v0_1::detail
