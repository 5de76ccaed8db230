// SPDX-License-Identifier: Apache-2.0
// The host's half of a CUDA device on a runtime without a GPU: order between streams, memory, staging, captures, errors.

#include <kvcache/device/cuda.hpp>
#include <kvcache/device/host_device.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "cuda/fake_runtime.hpp"
#include "support/catch.hpp"
#include "support/hand_plan.hpp"
#include "support/streams_scenario.hpp"

namespace {

using namespace kvcache;
using kvcache_test::fake;
using kvcache_test::FakeRuntime;

/// Launches that the host runs when their stream comes to them.
class TestedDevice final : public CudaMemory {
 public:
  TestedDevice() : CudaMemory(0) {}
  void write_words(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(stream, [=, this] { host_.write_words(cell, {}); });
  }
  void move_rows(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(stream, [=, this] { host_.move_rows(cell, {}); });
  }
  void copy_pages(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(stream, [=, this] { host_.copy_pages(cell, {}); });
  }
  void count_up(LaunchCell cell, StreamRef stream) noexcept override
  {
    launch(stream, [=, this] { host_.count_up(cell, {}); });
  }

 private:
  template <class Work>
  void launch(StreamRef stream, Work const& work)
  {
    on(stream, "cudaLaunchKernel", [&](cudaStream_t s) {
      return kvcache_test::fake_on("cudaLaunchKernel", s, work);
    });
  }
  HostDevice host_;
};

std::array<void*, 2> two_streams()
{
  static std::array<int, 2> places{};
  return {&places[0], &places[1]};
}

using Layout = PagedHeads<__half>;
constexpr Geometry geometry{.layers = 2, .kv_heads = 3, .head_dim = 24, .page_tokens = 5};

Result<Pool<Layout>> make_pool(Device& device)
{
  return Pool<Layout>::create(
    geometry, kvcache_test::pool_sizes(geometry, 3000, 2, 8), {}, &device);
}

Plan plan_of(std::uint32_t slot, Index tokens)
{
  Plan plan;
  plan.slot = slot;
  kvcache_test::add_chunk(plan, 0, 0, tokens);
  return plan;
}

}  // namespace

TEST_CASE("CudaMemory: two streams whose kernels run late, and steps that are given up before",
          "[cuda]")
{
  bool const pools = GENERATE(true, false);
  kvcache_test::StreamsTally sum;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed, pools);
    fake() = FakeRuntime{};
    fake().has_pools = pools;
    {
      TestedDevice device;
      auto const one = kvcache_test::run_streams(seed, device, fake().world, two_streams());
      CHECK(one.wrong == 0);
      CHECK(device.status().why == Why::ok);
      sum.given_up += one.given_up;
    }
    CHECK(fake().broken == "");
    CHECK(fake().memory.empty());
    CHECK(fake().pinned.empty());
    CHECK(fake().handles.empty());
    CHECK(fake().device == 3);
    CHECK(fake().last == cudaSuccess);
  }
  CHECK(sum.given_up > 300);
}

TEST_CASE("CudaMemory: what came without a handle is before what comes later with one", "[cuda]")
{
  fake() = FakeRuntime{};
  TestedDevice device;
  auto pool = make_pool(device);
  REQUIRE(pool);
  StreamRef const stream{two_streams()[0], 0};
  REQUIRE(pool->apply(kvcache_test::in_order(plan_of(0, 3)), stream));
  fake().world.finish(stream.handle);
  CHECK(pool->view(0).num_tokens() == 3);
  CHECK(pool->view(0).segment.layer_offset[1] == pool->footprint().layer_stride(3000));
  CHECK(*pool->page(zero_page) == std::byte{0});
  REQUIRE(pool->apply(kvcache_test::in_order(plan_of(0, 2))));  // and itself without one
  REQUIRE(pool->apply(kvcache_test::in_order(plan_of(1, 4)), StreamRef{two_streams()[1], 1}));
  fake().world.finish(two_streams()[1]);
  CHECK(pool->view(0).num_tokens() == 2);
  CHECK(fake().broken == "");
}

TEST_CASE("CudaMemory: a buffer serves again when the device has read it, and not before", "[cuda]")
{
  fake() = FakeRuntime{};
  TestedDevice device;
  StreamRef const stream{two_streams()[0], 0};
  std::byte* const target = device.allocate(64);
  REQUIRE(target != nullptr);
  std::byte* const first = device.allocate_staging(64);
  std::memset(first, 1, 64);
  device.upload(target, first, 64, stream);
  device.join(stream);
  device.deallocate_staging(first, 64);
  std::byte* const second = device.allocate_staging(64);
  CHECK(second != first);
  std::memset(second, 2, 64);
  kvcache_test::Random random(1);
  fake().world.finish_all(random);
  CHECK(target[63] == std::byte{1});
  std::byte* const larger = device.allocate_staging(65);
  CHECK(larger != first);
  CHECK(device.allocate_staging(64) == first);
  CHECK(fake().pinned_ever == 3);
  device.deallocate_staging(first, 64);
  device.deallocate_staging(second, 64);
  device.deallocate_staging(larger, 65);
  device.deallocate(target, 64);
  CHECK(fake().broken == "");
}

TEST_CASE("CudaMemory: a plan may be captured where its memory was taken before", "[cuda]")
{
  fake() = FakeRuntime{};
  TestedDevice device;
  auto pool = make_pool(device);
  REQUIRE(pool);
  StreamRef const stream{two_streams()[0], 0};
  fake().capturing = {stream.handle};
  auto const refused = pool->apply(kvcache_test::in_order(plan_of(0, 3)), stream);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().why == Why::busy);
  fake().capturing.clear();
  REQUIRE(pool->reserve(stream));
  fake().capturing = {stream.handle};
  REQUIRE(pool->apply(kvcache_test::in_order(plan_of(0, 3)), stream));
  CHECK(fake().external_waits > 0);  // the pool's own work had not run
  pool->abandon(0, stream);          // nothing of a capture is waited for
  fake().world.finish(stream.handle);
  CHECK(pool->view(0).num_tokens() == 3);
  fake().capturing = {two_streams()[1]};
  REQUIRE(pool->reserve(stream, 1 << 20));  // beside another thread's capture
  fake().capturing.clear();
  CHECK(fake().broken == "");
}

TEST_CASE("CudaMemory: a call that fails is kept with its code, and comes back from the pool",
          "[cuda]")
{
  for (char const* const call : {"cudaGetDevice",
                                 "cudaSetDevice",
                                 "cudaDeviceGetAttribute",
                                 "cudaStreamCreateWithFlags",
                                 "cudaEventCreateWithFlags",
                                 "cudaMemPoolCreate",
                                 "cudaMemcpyAsync",
                                 "cudaMemsetAsync",
                                 "cudaEventRecord"}) {
    CAPTURE(call);
    fake() = FakeRuntime{};
    fake().failing = call;
    TestedDevice device;
    auto const pool = make_pool(device);
    REQUIRE_FALSE(pool);
    CHECK(pool.error().why == Why::device_failed);
    CHECK(std::string(pool.error().field) == call);
    CHECK(pool.error().value == cudaErrorIllegalAddress);
    CHECK(std::string(pool.error().right) == "the runtime's sentence");
    CHECK(device.status().why == Why::device_failed);
    fake().failing.clear();
  }
  for (char const* const call :
       {"cudaLaunchKernel", "cudaEventQuery", "cudaStreamWaitEvent", "cudaStreamIsCapturing"}) {
    CAPTURE(call);
    fake() = FakeRuntime{};
    TestedDevice device;
    auto pool = make_pool(device);
    REQUIRE(pool);
    fake().failing = call;
    auto const lost = pool->apply(kvcache_test::in_order(plan_of(0, 1)), {two_streams()[0], 0});
    REQUIRE_FALSE(lost);
    CHECK(std::string(lost.error().field) == call);
    fake().failing.clear();
    auto const later = pool->apply(kvcache_test::in_order(plan_of(1, 1)), {two_streams()[0], 0});
    REQUIRE_FALSE(later);  // for good
    CHECK(std::string(later.error().field) == call);
    CHECK(fake().last == cudaSuccess);  // nothing is left for the engine's own checks
  }
}

TEST_CASE("CudaMemory: no memory left is no failure of the device", "[cuda]")
{
  for (char const* const call : {"cudaMalloc", "cudaHostAlloc"}) {
    CAPTURE(call);
    fake() = FakeRuntime{};
    TestedDevice device;
    auto pool = make_pool(device);
    REQUIRE(pool);
    fake().failing = call;
    fake().failure = cudaErrorMemoryAllocation;
    auto const refused = pool->apply(kvcache_test::in_order(plan_of(0, 1)), {two_streams()[0], 0});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().why == Why::no_memory);
    CHECK(fake().last == cudaSuccess);
    fake().failing.clear();
    REQUIRE(pool->apply(kvcache_test::in_order(plan_of(0, 1)), {two_streams()[0], 0}));
  }
  CHECK(cuda_error(cudaErrorMemoryAllocation, "cudaMalloc").why == Why::no_memory);
  CHECK(std::string(cuda_error(cudaErrorIllegalAddress, "cudaFree").message().text) ==
        "cudaFree = 700 (device failed): the runtime's sentence");
  CHECK(cuda_error(cudaSuccess, "cudaFree").why == Why::ok);
}

TEST_CASE("ElementTraits: the toolkit's types hold what ours hold", "[cuda]")
{
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    auto const word = static_cast<std::uint16_t>(bits);
    float const h = ElementTraits<kvcache::half>::to_float({word});
    float const b = ElementTraits<kvcache::bfloat16>::to_float({word});
    if (h == h) {
      REQUIRE(ElementTraits<__half>::to_float(__builtin_bit_cast(__half, word)) == h);
      REQUIRE(__builtin_bit_cast(std::uint16_t, ElementTraits<__half>::from_float(h)) == word);
    }
    if (b == b) {
      REQUIRE(ElementTraits<__nv_bfloat16>::to_float(__builtin_bit_cast(__nv_bfloat16, word)) == b);
      REQUIRE(__builtin_bit_cast(std::uint16_t, ElementTraits<__nv_bfloat16>::from_float(b)) ==
              word);
    }
  }
  auto const round_trip = []<class T>(float x, T) {
    return ElementTraits<T>::to_float(ElementTraits<T>::from_float(x));
  };
  CHECK(round_trip(448.0F, __nv_fp8_e4m3{}) == 448.0F);
  CHECK(round_trip(1e9F, __nv_fp8_e4m3{}) == 448.0F);
  CHECK(round_trip(-17.0F, __nv_fp8_e4m3{}) == -16.0F);  // ties to even
  CHECK(round_trip(1e9F, __nv_fp8_e5m2{}) == 57344.0F);
}
