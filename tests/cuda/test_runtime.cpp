// SPDX-License-Identifier: MIT
// Streams, events, graphs, memory and errors of common/cuda, on a GPU and in the emulator.
#include <cstdint>
#include <numeric>

#include "catch.h"
#include "cuda/buffer.h"
#include "cuda/device.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/stream.h"
#include "runtime.h"

using namespace minfer;
using namespace minfer::features;

namespace {

int read(const DeviceBuffer<int>& buffer, cudaStream_t stream) {
  int value = 0;
  buffer.download(&value, 1, stream);
  return value;
}

DeviceBuffer<int> zero(cudaStream_t stream) {
  DeviceBuffer<int> buffer(1);
  buffer.zero(stream);
  return buffer;
}

}  // namespace

TEST_CASE("a buffer keeps what is uploaded, whole or in part") {
  Stream stream;
  DeviceBuffer<float> buffer(1000);
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  buffer.upload(values.data(), 1000, stream);
  scale_and_add(buffer.data(), 1000, 2.0f, 1.0f, stream);
  std::vector<float> back(10);
  buffer.download(back.data(), 10, stream, 990);
  for (int i = 0; i < 10; ++i) CHECK(back[i] == 2.0f * (991 + i) + 1.0f);
  CHECK_THROWS_WITH(buffer.download(back.data(), 11, stream, 990),
                    ContainsSubstring("of a device buffer of 1000"));
  CHECK_THROWS_AS(buffer.upload(values.data(), SIZE_MAX, stream, 2), std::out_of_range);
  DeviceBuffer<float> empty(0);
  empty.zero(stream);
  CHECK(empty.data() == nullptr);
}

TEST_CASE("page-locked memory, and memory that kernels write while the host reads") {
  Stream stream;
  PinnedBuffer<float> pinned(256);
  std::iota(pinned.begin(), pinned.end(), 0.0f);
  DeviceBuffer<float> buffer(256);
  buffer.upload(pinned.data(), 256, stream);
  scale_and_add(buffer.data(), 256, 1.0f, 0.5f, stream);
  buffer.download(pinned.data(), 256, stream);
  CHECK(pinned[255] == 255.5f);

  MappedBuffer<unsigned> ring(33);
  for (unsigned& word : ring) word = 0;
  fill_ring(ring.device_data() + 1, ring.device_data(), 32, stream);
  stream.synchronize();
  CHECK(ring[0] == 32);
  for (unsigned i = 1; i <= 32; ++i) CHECK(ring[i] == i);
}

TEST_CASE("a graph does nothing when it is captured, and all of it at each launch") {
  Stream stream;
  auto value = zero(stream);
  int amount = 3;
  const Graph graph = Graph::capture(stream, [&] {
    advance(value.data(), amount, stream);
    advance(value.data(), 10, stream);
  });
  amount = 1000;  // recorded by value
  CHECK(graph.nodes() == 2);
  CHECK(read(value, stream) == 0);
  for (int i = 0; i < 5; ++i) graph.launch(stream);
  CHECK(read(value, stream) == 65);
}

TEST_CASE("a graph holds copies and sets, and reads memory when it runs") {
  Stream stream;
  auto value = zero(stream);
  DeviceBuffer<int> copy(1);
  PinnedBuffer<int> source(1);
  source[0] = 5;
  const Graph graph = Graph::capture(stream, [&] {
    copy.zero(stream);
    value.upload(source.data(), 1, stream);
    advance(value.data(), 1, stream);
    CUDA_CHECK(
        cudaMemcpyAsync(copy.data(), value.data(), sizeof(int), cudaMemcpyDeviceToDevice, stream));
  });
  CHECK(graph.nodes() == 4);
  graph.launch(stream);
  CHECK(read(copy, stream) == 6);
  source[0] = 41;
  graph.launch(stream);
  CHECK(read(copy, stream) == 42);
}

TEST_CASE("a stream that waits for a captured event is captured too") {
  Stream main, side;
  Event fork(cudaEventDisableTiming), join(cudaEventDisableTiming);
  auto a = zero(main);
  auto b = zero(main);
  const Graph graph = Graph::capture(main, [&] {
    advance(a.data(), 1, main);
    fork.record(main);
    side.wait(fork);
    advance(b.data(), 2, side);
    join.record(side);
    main.wait(join);
    advance(a.data(), 4, main);
  });
  CHECK(graph.nodes() == 3);
  CHECK(read(b, main) == 0);
  graph.launch(main);
  CHECK(read(a, main) == 5);
  CHECK(read(b, main) == 2);
  advance(b.data(), 1, side);  // no longer captured
  CHECK(read(b, side) == 3);
}

TEST_CASE("an exception ends a capture") {
  Stream stream;
  auto value = zero(stream);
  CHECK_THROWS_WITH(Graph::capture(stream,
                                   [&] {
                                     advance(value.data(), 1, stream);
                                     throw std::runtime_error("stop");
                                   }),
                    "stop");
  advance(value.data(), 2, stream);
  CHECK(read(value, stream) == 2);
}

TEST_CASE("what can't be recorded is an error, and the stream is free after it") {
  Stream stream;
  auto value = zero(stream);
  CHECK_THROWS_AS(Graph::capture(stream, [&] { stream.synchronize(); }), CudaError);
  advance(value.data(), 2, stream);
  CHECK(read(value, stream) == 2);
}

TEST_CASE("events order streams and take times") {
  Stream first, second;
  auto value = zero(first);
  Event begin, end;
  begin.record(first);
  for (int i = 0; i < 100; ++i) advance(value.data(), 1, first);
  end.record(first);
  second.wait(end);
  CHECK(read(value, second) == 100);
  end.synchronize();
  CHECK(end.milliseconds_since(begin) >= 0.0f);
  CHECK(end.milliseconds_since(begin) < 10000.0f);
}

TEST_CASE("the device says what it is") {
  const Device device = Device::current();
  CHECK(!device.name.empty());
  CHECK(device.sm_count >= 1);
  CHECK(device.compute_major >= 8);
  CHECK(kernel_image_error() == cudaSuccess);
  CHECK(device.shared_bytes_per_block >= 48 << 10);
  CHECK(device.shared_bytes_per_sm >= device.shared_bytes_per_block);
  const DeviceMemory before = DeviceMemory::current();
  CHECK(before.free <= before.total);
  DeviceBuffer<char> buffer(64 << 20);
  CHECK(DeviceMemory::current().free + (32 << 20) <= before.free);
}

TEST_CASE("more memory than there is, is refused with both numbers") {
  const DeviceMemory memory = DeviceMemory::current();
  CHECK_THROWS_WITH(DeviceBuffer<char>(memory.total + (1 << 20), "KV cache"),
                    ContainsSubstring("KV cache: ") && ContainsSubstring(" MiB of device memory") &&
                        ContainsSubstring(" free") && ContainsSubstring("page cache"));
  CHECK_THROWS_AS(DeviceBuffer<double>(SIZE_MAX / 4), std::length_error);
}

TEST_CASE("launches that can't be are refused, and say which") {
  Stream stream;
  auto value = zero(stream);
  stream.synchronize();
  CHECK_THROWS_WITH(advance_by(value.data(), 1, 1025, 0, false),
                    ContainsSubstring("advance_kernel(int*, int)") &&
                        ContainsSubstring("block (1025,1,1)") &&
                        ContainsSubstring("cudaErrorInvalid"));  // drivers differ in the rest
  CHECK_THROWS_AS(advance_by(value.data(), 0, 32, 0, false), CudaError);
  CHECK_THROWS_WITH(advance_by(value.data(), 1, 32, 1 << 20, false),
                    ContainsSubstring("1048576 bytes of dynamic shared memory asked for"));
  const auto too_many = static_cast<unsigned>(Device::current().sm_count * 32 + 1);
  CHECK_THROWS_WITH(
      advance_by(value.data(), too_many, 64, 0, true),
      ContainsSubstring("advance_kernel") && ContainsSubstring("blocks must run at once"));
  CHECK(read(value, stream) == 0);
  advance_by(value.data(), 1, 32, 100 << 10, true);  // no error is left over
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(read(value, stream) == 1);
}

TEST_CASE("a failed call says where, which and why") {
  try {
    CUDA_CHECK(cudaSetDevice(1 << 20));
    FAIL("there can't be so many");
  } catch (const CudaError& error) {
    CHECK(error.code() == cudaErrorInvalidDevice);
    CHECK_THAT(error.what(), ContainsSubstring("test_runtime.cpp:") &&
                                 ContainsSubstring("cudaSetDevice(1 << 20)") &&
                                 ContainsSubstring("cudaErrorInvalidDevice"));
  }
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK_THAT(cuda_error_hint(cudaErrorNoKernelImageForDevice),
             ContainsSubstring("the program was built for"));
  CHECK_THAT(cuda_error_hint(cudaErrorUnsupportedPtxVersion),
             ContainsSubstring("the driver supports CUDA up to "));
  CHECK_THAT(cuda_error_hint(cudaErrorNoDevice), ContainsSubstring("no NVIDIA GPU"));
  CHECK(cuda_version_text(12060) == "12.6");
}

TEST_CASE("a driver or a GPU that is too old is named with what was expected") {
  CHECK(driver_hint(0, 13000) == ": no NVIDIA driver is installed");
  CHECK_THAT(driver_hint(12060, 13000), ContainsSubstring("supports CUDA up to 12.6") &&
                                            ContainsSubstring("was built with 13.0"));
  const std::string built_for = "the program was built for " MINFER_CUDA_ARCHITECTURES;
  CHECK(architecture_hint(75) ==
        ": the GPU is of architecture 75, " + built_for + "; minfer needs 80 or newer");
  CHECK(architecture_hint(90) == ": the GPU is of architecture 90, " + built_for +
                                     "; configure with -DCMAKE_CUDA_ARCHITECTURES=90");
  CHECK(architecture_hint(121) == ": the GPU is of architecture 121, " + built_for +
                                      "; configure with -DCMAKE_CUDA_ARCHITECTURES=121");
}

TEST_CASE("an event in a graph is recorded at each launch") {
  Stream stream;
  const DeviceBuffer<int> count = zero(stream);
  Event inside, before;
  const Graph graph = Graph::capture(stream, [&] {
    advance(count.data(), 1, stream);
    inside.record_in_graph(stream);
  });
  for (int launch = 0; launch < 2; ++launch) {
    before.record(stream);
    graph.launch(stream);
    stream.synchronize();
    CHECK(inside.milliseconds_since(before) >= 0);
  }
}

TEST_CASE("a kernel's name is short") {
  CHECK(short_name("minfer::rmsnorm(float*, float const*, unsigned int)") == "rmsnorm");
  CHECK(short_name("void minfer::gemv<minfer::BlockQ4_0>(float*, minfer::BlockQ4_0 const*)") ==
        "gemv<Q4_0>");
  CHECK(short_name("void minfer::embed<float>(float*, float const*)") == "embed<float>");
  CHECK(short_name("void minfer::attention<128u>(float*, float*)") == "attention");
  CHECK(short_name("void minfer::(anonymous namespace)::read<4, 8>(int)") == "read");
  CHECK(short_name("(unknown)") == "(unknown)");
}

TEST_CASE("a step is timed kernel by kernel") {
  Stream stream;
  constexpr int kValues = 1 << 18;
  constexpr std::uint32_t kPasses = 3;
  DeviceBuffer<float> data(kValues);
  data.zero(stream);
  const DeviceBuffer<int> count = zero(stream);
  const StepCost cost =
      time_three_launches(data.data(), kValues, count.data(), kPasses, 100, stream);
  CHECK(read(count, stream) == 2 * (kPasses + 1));  // one run more, to warm up
  REQUIRE(cost.kernels.size() == 2);
  CHECK(cost.empty_us.size() == kPasses);
  CHECK(cost.kernels[0].kernel == "features::advance_kernel");
  CHECK(cost.kernels[0].launches == 2);
  CHECK(cost.kernels[0].bytes == 2 * (8 + 3 * 100));  // as the launches say, at 100 positions
  CHECK(cost.kernels[1].kernel == "features::scale_and_add_kernel");
  CHECK(cost.kernels[1].launches == 1);
  CHECK(cost.kernels[1].bytes == 8 * kValues);
  for (std::uint32_t pass = 0; pass < kPasses; ++pass) {
    CHECK(cost.empty_us[pass] > 0);
    CHECK(cost.kernels[0].us[pass] > 0);
    CHECK(cost.kernels[1].us[pass] > 0);
  }
}
