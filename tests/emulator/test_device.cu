// SPDX-License-Identifier: MIT
// What the emulated device is and refuses, where a GPU's answer would depend on the machine.
#include "cuda/device.h"

#include "cuda/event.h"
#include "cuda/step.h"
#include "faults.h"

using namespace minfer;

namespace {

__global__ void nothing() {}

int attribute(cudaDeviceAttr which) {
  return device_attribute(which, 0);
}

}  // namespace

TEST_CASE("the device is what the settings say") {
  ScopedSettings settings;
  for (const int sms : {1, 8, 132}) {
    settings->sm_count = sms;
    CHECK(Device::current().sm_count == sms);
    CHECK(cooperative_grid_limit(nothing, 1024, 0) == sms);
    CHECK(cooperative_grid_limit(nothing, 512, 0) == 3 * sms);
    CHECK(cooperative_grid_limit(nothing, 33, 0) == 16 * sms);
    const bool is_h200 = sms == 132;  // it has an H200's shared memory then
    CHECK(cooperative_grid_limit(nothing, 32, 60 << 10) == (is_h200 ? 3 : 2) * sms);
    CHECK(cooperative_grid_limit(nothing, 32, (is_h200 ? 227 : 163) << 10) == sms);
  }
  CHECK(attribute(cudaDevAttrComputeCapabilityMajor) == 8);
  CHECK(attribute(cudaDevAttrComputeCapabilityMinor) == 7);
  CHECK(attribute(cudaDevAttrMaxThreadsPerMultiProcessor) == 1536);
  CHECK(attribute(cudaDevAttrWarpSize) == 32);
  CHECK(attribute(cudaDevAttrCooperativeLaunch) == 1);
  CHECK(Device::current().name == "minfer emulator");
}

TEST_CASE("a device that the program was not built for is refused before its memory is taken") {
  ScopedSettings settings;
  const std::string refusal =
      "minfer emulator: the GPU is of architecture 87, the program was built "
      "for " MINFER_CUDA_ARCHITECTURES "; configure with -DCMAKE_CUDA_ARCHITECTURES=87";
  const std::size_t free_before = DeviceMemory::current().free;
  settings->has_kernel_image = false;
  CHECK_THROWS_WITH(Device::current(), refusal);
  CHECK_THROWS_WITH(DeviceBuffer<char>(1 << 20), refusal);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(DeviceMemory::current().free == free_before);
  // As a launch would have been, later on.
  CHECK_THROWS_WITH(launch(nothing, dim3(1), dim3(1), 0, nullptr),
                    ContainsSubstring("kernel (anonymous namespace)::nothing") &&
                        ContainsSubstring("the program was built for"));
  settings->has_kernel_image = true;
  CHECK(Device::current().compute_minor == 7);
}

TEST_CASE("memory is counted, and ends where the settings say") {
  ScopedSettings settings;
  const DeviceMemory before = DeviceMemory::current();
  CHECK(before.total == settings->memory_bytes);
  {
    DeviceBuffer<char> buffer(1 << 20);
    CHECK(DeviceMemory::current().free == before.free - (1 << 20));
    settings->memory_bytes = 3 << 20;
    CHECK_THROWS_WITH(DeviceBuffer<char>((5 << 20) / 2, "weights"),
                      ContainsSubstring("weights: 2.5 MiB of device memory asked for, 2.0 MiB of "
                                        "3.0 MiB free"));
    DeviceBuffer<char> rest(2 << 20);
    CHECK(DeviceMemory::current().free == 0);
    settings->memory_bytes = before.total;
  }
  CHECK(DeviceMemory::current().free == before.free);
}

TEST_CASE("fresh memory is NaN") {
  const DeviceBuffer<float> buffer(100);
  std::vector<float> values(100);
  buffer.download(values.data(), 100);
  for (const float value : values) CHECK(value != value);
}

TEST_CASE("where GPU and CPU share memory, an allocation that fails is tried again") {
  ScopedSettings settings;
  settings->failing_allocations = 1;
  CHECK_THROWS_WITH(DeviceBuffer<char>(1 << 20), ContainsSubstring("1.0 MiB of device memory"));
  CHECK(cudaGetLastError() == cudaSuccess);
  settings->is_integrated = true;
  settings->failing_allocations = 1;
  CHECK(DeviceBuffer<char>(1 << 20).size() == 1 << 20);
  settings->failing_allocations = 2;
  CHECK_THROWS_AS(DeviceBuffer<char>(1 << 20), CudaError);
  CHECK(cudaGetLastError() == cudaSuccess);
  // Free memory says little there: the page cache counts as used.
  DeviceBuffer<char> most(settings->memory_bytes / 1024);
  settings->memory_bytes = most.size() + 1;
  CHECK_THROWS_AS(DeviceBuffer<char>(most.size() + 2), CudaError);
}

TEST_CASE("copies are checked against the memory that they touch") {
  DeviceBuffer<char> a(100), b(100);
  std::vector<char> host(200);
  const auto copy = [](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t error = cudaMemcpy(to, from, bytes, kind);
    CHECK(cudaGetLastError() == error);
    return error;
  };
  CHECK(copy(a.data() + 50, host.data(), 50, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(copy(a.data() + 50, host.data(), 51, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), a.data() + 99, 2, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(a.data(), b.data(), 10, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(a.data(), b.data(), 10, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(nullptr, b.data(), 10, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(copy(nullptr, nullptr, 0, cudaMemcpyDefault) == cudaSuccess);
  CHECK(cudaMemset(a.data() + 1, 0, 100) == cudaErrorInvalidValue);
  CHECK(cudaFree(a.data() + 1) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(a.data()) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  void* device = nullptr;
  CHECK(cudaHostGetDevicePointer(&device, host.data(), 0) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("kernels are told apart by name") {
  CHECK(kernel_name(reinterpret_cast<const void*>(nothing)) == "(anonymous namespace)::nothing()");
  CHECK_THAT(kernel_name(&attribute == nullptr ? nullptr : reinterpret_cast<const void*>(1)),
             ContainsSubstring("at 0x1"));
}

TEST_CASE("a head's size is a constant, where a kernel can read it by its parts") {
  std::uint32_t called = 0;
  const auto call = [&](auto head_dim) {
    static_assert(head_dim % 64 == 0);
    called = head_dim;
  };
  for (const std::uint32_t head_dim : {64u, 128u}) {
    with_head_dim<64>(head_dim, call);
    CHECK(called == head_dim);
  }
  CHECK_THROWS_WITH(with_head_dim<64>(32, call),
                    "attention heads of 32: expected a multiple of 64");
}

TEST_CASE("a stream of a capture can't be waited for, and no other can capture into it") {
  Stream stream;
  Event event;
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) ==
        cudaErrorStreamCaptureUnsupported);
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) != cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
  event.record(stream);
  CHECK(cudaEventSynchronize(event) == cudaErrorStreamCaptureUnsupported);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamWaitEvent(nullptr, event) == cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnmatched);
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, event, event) == cudaErrorInvalidResourceHandle);
  CUDA_CHECK(cudaEventSynchronize(event));
  cudaGetLastError();
}
