// SPDX-License-Identifier: MIT
//
// Timing kernels one by one, as they run in a decode step: their data out of the L2 cache, launched
// from a graph, so that it is the kernel that is timed and not the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda/buffer.h"
#include "cuda/device.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/launch.h"
#include "cuda/stream.h"

namespace minfer {

/// So many copies of some data that walking through them finds none in the L2 cache: together four
/// times its size. The bytes are all alike, and numbers in any format that the kernels read.
class ColdData {
 public:
  explicit ColdData(std::size_t bytes)
      : stride_((bytes + kAlignment - 1) / kAlignment * kAlignment),
        copies_(4 * Device::current().l2_bytes / stride_ + 1),
        memory_(copies_ * stride_, "benchmark data") {
    constexpr int kByte = 0x2b;  // as fp16 0.056, as fp32 6e-13
    CUDA_CHECK(cudaMemset(memory_.data(), kByte, memory_.bytes()));
  }

  std::size_t copies() const { return copies_; }
  /// The copy for the i-th launch.
  template <class T>
  T* as(std::size_t i) const {
    return reinterpret_cast<T*>(memory_.data() + i % copies_ * stride_);
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  std::size_t stride_;
  std::size_t copies_;
  DeviceBuffer<std::byte> memory_;
};

/// Times kernels and prints a line of JSON for each: {"kernel": NAME, "bytes": OF ONE work(),
/// "microseconds": [OF ONE work(), IN EACH PASS]}.
class KernelBench {
 public:
  /// @param n_positions  of the context, for kernels whose traffic depends on it
  explicit KernelBench(std::uint64_t n_positions) : n_positions_(n_positions) {}

  cudaStream_t stream() const { return stream_; }

  /// Times `work(i)`, which launches the kernel for the i-th time, with the i-th copy of its data.
  /// @param least_launches in a pass; all copies of the data should have their turn
  template <class Work>
  void run(const std::string& kernel, std::size_t least_launches, Work&& work) {
    const std::size_t launches = least_launches < kLeast ? kLeast : least_launches;
    std::uint64_t bytes = 0;
    const Graph pass = Graph::capture(stream_, [&] {
      const TrafficSum traffic;
      for (std::size_t i = 0; i < launches; ++i) work(i);
      bytes = traffic.at(n_positions_) / launches;
    });
    pass.launch(stream_);  // the first one is slower: it warms up
    std::string line;
    for (int i = 0; i < kPasses; ++i) {
      begin_.record(stream_);
      pass.launch(stream_);
      end_.record(stream_);
      end_.synchronize();
      const double microseconds = end_.milliseconds_since(begin_) * 1e3 / double(launches);
      char number[32];
      std::snprintf(number, sizeof number, "%s%.4f", i == 0 ? "" : ", ", microseconds);
      line += number;
    }
    std::printf("{\"kernel\": \"%s\", \"bytes\": %llu, \"microseconds\": [%s]}\n", kernel.c_str(),
                static_cast<unsigned long long>(bytes), line.c_str());
    std::fflush(stdout);
  }

 private:
  static constexpr std::size_t kLeast = 32;  ///< launches in a pass
  static constexpr int kPasses = 10;
  std::uint64_t n_positions_;
  Stream stream_;
  Event begin_, end_;
};

}  // namespace minfer
