// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A CUDA runtime without a GPU, of the calls that `CudaMemory` makes and no others: one more, such as a call that waits,
/// and the test does not link. Streams run as late as they may (`StreamWorld`), memory is spoilt when its stream frees it, and
/// what a real runtime refuses is refused.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "support/stream_world.hpp"

namespace kvcache_test {

/// What the calls see and do; one for all tests of a program, `reset` by each.
struct FakeRuntime {
  StreamWorld world;
  int device = 3;  ///< the thread's
  bool has_pools = true;
  cudaError_t last = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::set<void*> capturing;
  std::map<void*, StreamWorld::Mark> events;
  std::map<void*, std::size_t> memory;  ///< of the device, not freed yet
  std::map<void*, std::size_t> pinned;
  std::set<void*> handles;  ///< made and not destroyed
  int pinned_ever = 0;
  int external_waits = 0;
  std::string failing;  ///< the call that fails, always
  cudaError_t failure = cudaErrorIllegalAddress;
  std::string broken;  ///< the first rule that was broken

  void rule(bool kept, char const* what)
  {
    if (!kept && broken.empty()) {
      broken = what;
    }
  }
  cudaError_t say(cudaError_t code)
  {
    last = code == cudaSuccess ? last : code;
    return code;
  }
  /// The start of each call: whether it fails, and what holds for most of them.
  bool fails(char const* call)
  {
    rule(device == 0 || std::strcmp(call, "cudaGetDevice") == 0 ||
           std::strcmp(call, "cudaSetDevice") == 0,
         "a call on another device than its own");
    if (failing == call) {
      last = failure;
    }
    return failing == call;
  }
  void* handle()
  {
    void* const made = std::malloc(1);
    handles.insert(made);
    return made;
  }
  void destroy(void* made)
  {
    rule(handles.erase(made) == 1, "a handle destroyed twice, or never made");
    std::free(made);
  }
  void unsafe(char const* what)
  {
    rule(capturing.empty() || mode == cudaStreamCaptureModeRelaxed, what);
  }
};

inline FakeRuntime& fake()
{
  static FakeRuntime runtime;
  return runtime;
}

/// Fails with the chosen code, or runs `work`.
template <class Work>
cudaError_t fake_call(char const* name, Work const& work)
{
  if (fake().fails(name)) {
    return fake().failure;
  }
  work();
  return cudaSuccess;
}

template <class Work>
cudaError_t fake_on(char const* name, void* stream, Work const& work)
{
  return fake_call(name, [&] {
    fake().rule(stream != nullptr, "the default stream");
    fake().world.ask(stream, work);
  });
}

}  // namespace kvcache_test

using kvcache_test::fake;
using kvcache_test::fake_call;
using kvcache_test::fake_on;

extern "C" {

inline cudaError_t cudaGetDevice(int* device)
{
  return fake_call("cudaGetDevice", [&] { *device = fake().device; });
}
inline cudaError_t cudaSetDevice(int device)
{
  return fake_call("cudaSetDevice", [&] { fake().device = device; });
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int)
{
  return fake_call("cudaDeviceGetAttribute", [&] {
    *value = which == cudaDevAttrMemoryPoolsSupported ? (fake().has_pools ? 1 : 0) : 4;
  });
}
inline cudaError_t cudaPeekAtLastError()
{
  return fake().last;
}
inline cudaError_t cudaGetLastError()
{
  return std::exchange(fake().last, cudaSuccess);
}
inline char const* cudaGetErrorString(cudaError_t)
{
  return "the runtime's sentence";
}
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode)
{
  std::swap(*mode, fake().mode);
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags)
{
  return fake_call("cudaStreamCreateWithFlags", [&] {
    fake().rule(flags == cudaStreamNonBlocking, "a stream that the default stream waits for");
    *stream = static_cast<cudaStream_t>(fake().handle());
  });
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  fake().destroy(stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status)
{
  return fake_call("cudaStreamIsCapturing", [&] {
    *status = fake().capturing.count(stream) != 0 ? cudaStreamCaptureStatusActive
                                                  : cudaStreamCaptureStatusNone;
  });
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags)
{
  return fake_call("cudaEventCreateWithFlags", [&] {
    fake().rule(flags == cudaEventDisableTiming, "an event that takes times");
    *event = static_cast<cudaEvent_t>(fake().handle());
    fake().events[*event] = {};
  });
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  fake().events.erase(event);
  fake().destroy(event);
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  return fake_call("cudaEventRecord", [&] {
    fake().rule(stream != nullptr, "the default stream");
    fake().rule(fake().capturing.count(stream) == 0, "an event recorded inside a capture");
    fake().events.at(event) = fake().world.record(stream);
  });
}
inline cudaError_t cudaEventQuery(cudaEvent_t event)
{
  if (fake().fails("cudaEventQuery")) {
    return fake().failure;
  }
  fake().unsafe("an event asked for in a way that ends a capture");
  auto const mark = fake().events.at(event);
  return mark.stream == nullptr || fake().world.passed(mark) ? cudaSuccess
                                                             : fake().say(cudaErrorNotReady);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  return fake_call("cudaEventSynchronize", [&] {
    fake().unsafe("an event waited for in a way that ends a capture");
    fake().world.finish(fake().events.at(event));
  });
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
  return fake_call("cudaStreamWaitEvent", [&] {
    fake().rule(stream != nullptr, "the default stream");
    bool const external = flags == cudaEventWaitExternal;
    fake().rule(external == (fake().capturing.count(stream) != 0),
                "a captured stream waits for what is outside, or the other way round");
    fake().external_waits += external ? 1 : 0;
    fake().world.wait(stream, fake().events.at(event));
  });
}

inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, cudaMemPoolProps const* properties)
{
  return fake_call("cudaMemPoolCreate", [&] {
    fake().rule(properties->allocType == cudaMemAllocationTypePinned &&
                  properties->location.type == cudaMemLocationTypeDevice &&
                  properties->location.id == 0,
                "a pool of something else than the device's memory");
    *pool = static_cast<cudaMemPool_t>(fake().handle());
  });
}
inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
  fake().destroy(pool);
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** memory, std::size_t bytes)
{
  return fake_call("cudaMalloc", [&] {
    fake().unsafe("memory taken in a way that ends a capture");
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(*memory, 0xcd, bytes);
    fake().memory[*memory] = bytes;
  });
}
inline cudaError_t cudaFree(void* memory)
{
  kvcache_test::Random random(1);
  fake().world.finish_all(random);  // as a real one does
  fake().rule(fake().memory.erase(memory) == 1, "memory freed twice, or never given");
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMallocFromPoolAsync(void** memory,
                                           std::size_t bytes,
                                           cudaMemPool_t,
                                           cudaStream_t stream)
{
  return fake_on("cudaMallocFromPoolAsync", stream, [] {}) != cudaSuccess
           ? fake().failure
           : fake_call("cudaMalloc", [&] {
               *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
               fake().memory[*memory] = bytes;
               void* const at = *memory;
               fake().world.ask(stream, [at, bytes] { std::memset(at, 0xcd, bytes); });
             });
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream)
{
  std::size_t const bytes = fake().memory.at(memory);
  auto const code = fake_on("cudaFreeAsync", stream, [memory, bytes] {
    std::memset(memory, 0xcd, bytes);
    std::free(memory);
  });
  fake().memory.erase(memory);
  fake().world.finish(stream);  // as soon as may be: the worst for who still uses it
  return code;
}
inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned)
{
  return fake_call("cudaHostAlloc", [&] {
    fake().unsafe("memory pinned in a way that ends a capture");
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    fake().pinned[*memory] = bytes;
    fake().pinned_ever += 1;
  });
}
inline cudaError_t cudaFreeHost(void* memory)
{
  fake().rule(fake().pinned.erase(memory) == 1, "pinned memory freed twice, or never given");
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(
  void* target, void const* source, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
  fake().rule(kind == cudaMemcpyHostToDevice, "a copy that is no upload");
  return fake_on("cudaMemcpyAsync", stream, [=] { std::memcpy(target, source, bytes); });
}
inline cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream)
{
  return fake_on("cudaMemsetAsync", stream, [=] { std::memset(target, value, bytes); });
}

}  // extern "C"
