// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Seconds on a GPU: CUDA events around replays of a captured graph, as an engine launches its steps.
///
/// What is timed must not find its bytes in the L2 cache, 50 MB on an H200: `prepare` of a bar builds at least 1 GiB of
/// them, in 32 layers or more, and the graph goes over all layers.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kvcache_bench {

/// Throws the name of what failed, and CUDA's sentence.
inline void check(cudaError_t status, char const* what)
{
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

/// What a call of the library returned. Throws its sentence where it failed.
template <class R>
auto checked(R result, char const* what = "kvcache")
{
  if (!result) {
    throw std::runtime_error(std::string(what) + ": " + result.error().message().text);
  }
  return std::move(*result);
}

/// Holds a stream for some 100 us, so that what is timed behind it has been handed to the GPU before it begins.
static __global__ void hold()
{
  long long const begin = clock64();
  while (clock64() - begin < 200000) {
  }
}

/// A stream that waits for no other.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  Stream(Stream const&) = delete;
  Stream& operator=(Stream const&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Device memory of `T`, freed at the end.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : size_(n)
  {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)), "device memory");
  }
  DeviceArray(std::vector<T> const& from) : DeviceArray(from.size())
  {
    check(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  DeviceArray(DeviceArray const&) = delete;
  DeviceArray& operator=(DeviceArray const&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::vector<T> copy() const
  {
    std::vector<T> out(size_);
    check(cudaMemcpy(out.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return out;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

/// What `launch(stream)` launches, captured once.
class Replay {
 public:
  template <class Launch>
  Replay(Stream const& stream, Launch&& launch) : stream_(stream)
  {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
    launch(stream.get());
    check(cudaStreamEndCapture(stream.get(), &graph), "capture");
    cudaError_t const made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "graph");
    check(cudaEventCreate(&start_), "event");
    check(cudaEventCreate(&stop_), "event");
    for (int i = 0; i < 3; ++i) {  // warm: clocks, code, page tables
      check(cudaGraphLaunch(graph_, stream_.get()), "graph");
    }
    stream_.wait();
  }
  Replay(Replay const&) = delete;
  Replay& operator=(Replay const&) = delete;
  ~Replay()
  {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaGraphExecDestroy(graph_);
  }

  /// The median of `replays`, each between two events.
  [[nodiscard]] double seconds(int replays = 21) const
  {
    std::vector<float> ms(static_cast<std::size_t>(replays));
    for (float& each : ms) {
      hold<<<1, 1, 0, stream_.get()>>>();
      check(cudaEventRecord(start_, stream_.get()), "event");
      check(cudaGraphLaunch(graph_, stream_.get()), "graph");
      check(cudaEventRecord(stop_, stream_.get()), "event");
      check(cudaEventSynchronize(stop_), "event");
      check(cudaEventElapsedTime(&each, start_, stop_), "event");
    }
    std::nth_element(ms.begin(), ms.begin() + replays / 2, ms.end());
    return 1e-3 * static_cast<double>(ms[ms.size() / 2]);
  }

 private:
  Stream const& stream_;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

/// C of the goals: what a copy inside the device moves, bytes read and written, measured over 2 GiB.
class CopyRate {
 public:
  CopyRate() : from_(bytes), to_(bytes)
  {
    check(cudaMemset(from_.data(), 1, bytes), "memset");
    check(cudaMemset(to_.data(), 2, bytes), "memset");
    check(cudaDeviceSynchronize(), "memset");
    replay_ = std::make_unique<Replay>(stream_, [this](cudaStream_t stream) {
      check(cudaMemcpyAsync(to_.data(), from_.data(), bytes, cudaMemcpyDeviceToDevice, stream),
            "copy");
    });
  }
  /// Seconds that a copy takes which reads and writes so many bytes together.
  [[nodiscard]] double seconds_for(double moved) const
  {
    return replay_->seconds() * moved / (2.0 * static_cast<double>(bytes));
  }

 private:
  static constexpr std::size_t bytes = std::size_t{1} << 30;
  Stream stream_;
  DeviceArray<unsigned char> from_;
  DeviceArray<unsigned char> to_;
  std::unique_ptr<Replay> replay_;
};

}  // namespace kvcache_bench
