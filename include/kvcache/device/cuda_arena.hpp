// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/device/cuda_error.hpp>
#include <kvcache/device/cuda_memory.hpp>
#include <kvcache/device/cuda_scope.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// \file Memory of a GPU that grows and never moves: addresses for the most that may be needed, memory behind the first part.
///
///   addresses   [ mapped ............. | reserved only ............................. ]
///   data() ----->                      mapped()                                       reserved()
///
/// For the pages of a pool, as the caller's memory: `Storage{arena.data(), arena.reserved()}`, page-first. The pool touches the
/// page of zeros when it is made and later no page that no plan names. **Pre** of a plan: its pages are mapped.
///
/// Method: the driver's virtual memory (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`), whose functions are asked of the
/// runtime, so that a program does not link the driver.

namespace kvcache::inline v0_1 {

namespace detail {

/// The driver's functions, as far as the arena calls them.
struct CudaDriver {
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) access = nullptr;

  /// Whether this driver has all of them.
  [[nodiscard]] bool load() noexcept
  {
    return find(attribute, "cuDeviceGetAttribute") &&
           find(granularity, "cuMemGetAllocationGranularity") &&
           find(reserve, "cuMemAddressReserve") && find(free, "cuMemAddressFree") &&
           find(create, "cuMemCreate") && find(release, "cuMemRelease") && find(map, "cuMemMap") &&
           find(unmap, "cuMemUnmap") && find(access, "cuMemSetAccess");
  }

 private:
  template <class Function>
  [[nodiscard]] static bool find(Function& function, char const* name) noexcept
  {
    void* at = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    constexpr unsigned since = 10020;  // the toolkit that brought the youngest of them
    cudaError_t const code =
      cudaGetDriverEntryPointByVersion(name, &at, since, cudaEnableDefault, &found);
#else
    cudaError_t const code = cudaGetDriverEntryPoint(name, &at, cudaEnableDefault, &found);
#endif
    if (code != cudaSuccess) {
      forget_last(code);
    }
    function = reinterpret_cast<Function>(at);
    return code == cudaSuccess && found == cudaDriverEntryPointSuccess && at != nullptr;
  }
};

}  // namespace detail

/// See the file comment. Move-only. **Pre** of its end: no work that uses the memory is waiting.
class CudaArena {
 public:
  /// Addresses for `bytes`, rounded up; nothing is mapped. `device` is where the memory will be.
  /// **Errors** `bad_config`: driver or device has no virtual memory; `no_memory`; `device_failed` with the call and its code.
  [[nodiscard]] static Result<CudaArena> reserve(CudaMemory const& device, std::size_t bytes)
  {
    CudaArena arena;
    int able = 0;
    if (!arena.driver_.load() ||
        arena.driver_.attribute(&able,
                                CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                device.ordinal()) != CUDA_SUCCESS ||
        able == 0) {
      return Error{Why::bad_config,
                   "device",
                   device.ordinal(),
                   "has no virtual memory management: attach memory of a fixed size instead"};
    }
    arena.ordinal_ = device.ordinal();
    CUmemAllocationProp const what = arena.properties();
    CUresult code =
      arena.driver_.granularity(&arena.granularity_, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (code != CUDA_SUCCESS) {
      return failure(code, "cuMemGetAllocationGranularity", bytes);
    }
    std::size_t const all = arena.rounded(bytes);
    code = arena.driver_.reserve(&arena.base_, all, 0, 0, 0);
    if (code != CUDA_SUCCESS) {
      return failure(code, "cuMemAddressReserve", all);
    }
    arena.reserved_ = all;
    return Result<CudaArena>(std::move(arena));
  }

  CudaArena(CudaArena&& other) noexcept
      : driver_(other.driver_),
        ordinal_(other.ordinal_),
        granularity_(other.granularity_),
        base_(std::exchange(other.base_, 0)),
        reserved_(std::exchange(other.reserved_, 0)),
        mapped_(std::exchange(other.mapped_, 0)),
        parts_(std::move(other.parts_))
  {
  }
  CudaArena(CudaArena const&) = delete;
  CudaArena& operator=(CudaArena const&) = delete;
  CudaArena& operator=(CudaArena&&) = delete;
  ~CudaArena()
  {
    CUdeviceptr at = base_;
    for (std::size_t const part : parts_) {
      (void)driver_.unmap(at, part);
      at += part;
    }
    if (reserved_ != 0) {
      (void)driver_.free(base_, reserved_);
    }
  }

  [[nodiscard]] std::byte* data() const noexcept
  {
    return reinterpret_cast<std::byte*>(base_);  // NOLINT: the driver's addresses are numbers
  }
  [[nodiscard]] std::size_t reserved() const noexcept { return reserved_; }
  [[nodiscard]] std::size_t mapped() const noexcept { return mapped_; }

  /// Maps memory until the first `bytes` may be used. Waits for no stream. **Errors** `too_large`: more than reserved;
  /// `no_memory`; `device_failed`; nothing changed.
  [[nodiscard]] Result<Done> grow(std::size_t bytes)
  {
    if (bytes > reserved_) {
      return Error{Why::too_large,
                   "arena bytes",
                   static_cast<std::int64_t>(bytes),
                   "must be at most what was reserved, which is",
                   static_cast<std::int64_t>(reserved_)};
    }
    if (bytes <= mapped_) {
      return Done{};
    }
    std::size_t const part = rounded(bytes) - mapped_;
    if (!detail::memory_sufficed_for([this] { parts_.reserve(parts_.size() + 1); })) {
      return failure(CUDA_ERROR_OUT_OF_MEMORY, "arena bytes", part);
    }
    detail::BesideCaptures const beside;
    CUmemAllocationProp const what = properties();
    CUmemGenericAllocationHandle memory = 0;
    CUresult code = driver_.create(&memory, part, &what, 0);
    if (code != CUDA_SUCCESS) {
      return failure(code, "cuMemCreate", part);
    }
    CUdeviceptr const at = base_ + mapped_;
    code = driver_.map(at, part, 0, memory, 0);
    (void)driver_.release(memory);  // the mapping keeps it
    if (code != CUDA_SUCCESS) {
      return failure(code, "cuMemMap", part);
    }
    CUmemAccessDesc access{};
    access.location = what.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    code = driver_.access(at, part, &access, 1);
    if (code != CUDA_SUCCESS) {
      (void)driver_.unmap(at, part);
      return failure(code, "cuMemSetAccess", part);
    }
    parts_.push_back(part);
    mapped_ += part;
    return Done{};
  }

 private:
  CudaArena() = default;

  [[nodiscard]] CUmemAllocationProp properties() const noexcept
  {
    CUmemAllocationProp out{};
    out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    out.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    out.location.id = ordinal_;
    return out;
  }
  [[nodiscard]] std::size_t rounded(std::size_t bytes) const noexcept
  {
    return (bytes + granularity_ - 1) / granularity_ * granularity_;
  }
  [[nodiscard]] static Error failure(CUresult code, char const* call, std::size_t bytes) noexcept
  {
    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
      return {Why::no_memory,
              call,
              static_cast<std::int64_t>(bytes),
              "the device has no memory for so many bytes"};
    }
    return {Why::device_failed,
            call,
            static_cast<std::int64_t>(code),
            "is the driver's code, see CUresult in cuda.h"};
  }

  detail::CudaDriver driver_;
  int ordinal_ = 0;
  std::size_t granularity_ = 0;
  CUdeviceptr base_ = 0;
  std::size_t reserved_ = 0;
  std::size_t mapped_ = 0;
  std::vector<std::size_t> parts_;  // each as it was mapped
};

}  // namespace kvcache::inline v0_1
