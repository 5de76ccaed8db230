// SPDX-License-Identifier: Apache-2.0
// An arena that grows, on a driver without a GPU: addresses are the host's, and what is not mapped may not be touched.

#include <kvcache/device/cuda_arena.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "cuda/fake_runtime.hpp"
#include "support/catch.hpp"

namespace {

using namespace kvcache;

/// What the driver did.
struct Driver {
  std::string missing;  // a function that it does not have
  std::string failing;
  CUresult failure = CUDA_ERROR_OUT_OF_MEMORY;
  int able = 1;
  std::map<CUdeviceptr, std::size_t> addresses;
  std::map<CUdeviceptr, std::size_t> maps;
  std::map<CUmemGenericAllocationHandle, std::size_t> memories;
  CUmemGenericAllocationHandle next = 1;
};
Driver& driver()
{
  static Driver one;
  return one;
}
constexpr std::size_t slab = std::size_t{2} << 20;

CUresult attribute(int* value, CUdevice_attribute, CUdevice)
{
  *value = driver().able;
  return CUDA_SUCCESS;
}
CUresult granularity(std::size_t* bytes,
                     CUmemAllocationProp const*,
                     CUmemAllocationGranularity_flags)
{
  *bytes = slab;
  return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long)
{
  if (driver().failing == "reserve") {
    return driver().failure;
  }
  CHECK(bytes % slab == 0);
  *at = reinterpret_cast<CUdeviceptr>(
    ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  driver().addresses[*at] = bytes;
  return CUDA_SUCCESS;
}
CUresult free_addresses(CUdeviceptr at, std::size_t bytes)
{
  CHECK(driver().addresses.at(at) == bytes);
  driver().addresses.erase(at);
  ::munmap(reinterpret_cast<void*>(at), bytes);
  return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* memory,
                std::size_t bytes,
                CUmemAllocationProp const* what,
                unsigned long long)
{
  CHECK(what->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  if (driver().failing == "create") {
    return driver().failure;
  }
  *memory = driver().next++;
  driver().memories[*memory] = bytes;
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle memory)
{
  CHECK(driver().memories.erase(memory) == 1);
  return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr at,
             std::size_t bytes,
             std::size_t,
             CUmemGenericAllocationHandle memory,
             unsigned long long)
{
  if (driver().failing == "map") {
    return driver().failure;
  }
  CHECK(driver().memories.at(memory) == bytes);
  driver().maps[at] = bytes;
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr at, std::size_t bytes)
{
  CHECK(driver().maps.at(at) == bytes);  // each as it was mapped
  driver().maps.erase(at);
  return CUDA_SUCCESS;
}
CUresult allow(CUdeviceptr at, std::size_t bytes, CUmemAccessDesc const* how, std::size_t n)
{
  if (driver().failing == "access") {
    return driver().failure;
  }
  CHECK(n == 1);
  CHECK(how->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ::mprotect(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}

class AnyDevice final : public CudaMemory {
 public:
  AnyDevice() : CudaMemory(0) {}
  void write_words(LaunchCell, StreamRef) noexcept override {}
  void move_rows(LaunchCell, StreamRef) noexcept override {}
  void copy_pages(LaunchCell, StreamRef) noexcept override {}
  void count_up(LaunchCell, StreamRef) noexcept override {}
};

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(char const* symbol,
                                                        void** at,
                                                        unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found)
{
  std::map<std::string, void*> const functions = {
    {"cuDeviceGetAttribute", reinterpret_cast<void*>(&attribute)},
    {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&granularity)},
    {"cuMemAddressReserve", reinterpret_cast<void*>(&reserve)},
    {"cuMemAddressFree", reinterpret_cast<void*>(&free_addresses)},
    {"cuMemCreate", reinterpret_cast<void*>(&create)},
    {"cuMemRelease", reinterpret_cast<void*>(&release)},
    {"cuMemMap", reinterpret_cast<void*>(&map)},
    {"cuMemUnmap", reinterpret_cast<void*>(&unmap)},
    {"cuMemSetAccess", reinterpret_cast<void*>(&allow)}};
  bool const has = driver().missing != symbol;
  *at = has ? functions.at(symbol) : nullptr;
  *found = has ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

TEST_CASE("CudaArena: grows in place, and gives all of it back", "[cuda][arena]")
{
  driver() = {};
  kvcache_test::fake() = {};
  {
    AnyDevice device;
    auto made = CudaArena::reserve(device, 5 * slab - 7);
    REQUIRE(made);
    CudaArena arena(std::move(*made));
    CHECK(arena.reserved() == 5 * slab);
    CHECK(arena.mapped() == 0);
    std::byte* const first = arena.data();
    REQUIRE(arena.grow(1));
    CHECK(arena.mapped() == slab);
    first[slab - 1] = std::byte{9};
    REQUIRE(arena.grow(slab));  // is there
    CHECK(driver().maps.size() == 1);
    REQUIRE(arena.grow(3 * slab + 1));
    CHECK(arena.mapped() == 4 * slab);
    CHECK(arena.data() == first);
    CHECK(first[slab - 1] == std::byte{9});
    first[4 * slab - 1] = std::byte{8};
    auto const refused = arena.grow(5 * slab + 1);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().why == Why::too_large);
    CHECK(refused.error().limit == static_cast<std::int64_t>(5 * slab));
    for (char const* const step : {"create", "map", "access"}) {
      driver().failing = step;
      auto const failed = arena.grow(5 * slab);
      REQUIRE_FALSE(failed);
      CHECK(failed.error().why == Why::no_memory);
      CHECK(arena.mapped() == 4 * slab);
      CHECK(driver().maps.size() == 2);
      CHECK(driver().memories.empty());
    }
    driver().failing.clear();
    REQUIRE(arena.grow(5 * slab));
  }
  CHECK(driver().maps.empty());
  CHECK(driver().memories.empty());
  CHECK(driver().addresses.empty());
}

TEST_CASE("CudaArena: a driver or device without virtual memory is refused", "[cuda][arena]")
{
  kvcache_test::fake() = {};
  AnyDevice device;
  driver() = {};
  driver().able = 0;
  CHECK(CudaArena::reserve(device, 1).error().why == Why::bad_config);
  driver() = {};
  driver().missing = "cuMemMap";
  CHECK(CudaArena::reserve(device, 1).error().why == Why::bad_config);
  driver() = {};
  driver().failing = "reserve";
  driver().failure = CUDA_ERROR_INVALID_VALUE;
  auto const failed = CudaArena::reserve(device, 1);
  CHECK(failed.error().why == Why::device_failed);
  CHECK(std::string(failed.error().field) == "cuMemAddressReserve");
  CHECK(failed.error().value == CUDA_ERROR_INVALID_VALUE);
}
