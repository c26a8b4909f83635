// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "cuda/check.h"

namespace minfer {

/// A CUDA stream that does not wait for the default stream.
class Stream {
 public:
  Stream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }

  cudaStream_t get() const { return stream_; }
  operator cudaStream_t() const { return stream_; }

  /// Copies n values to the device, before what the stream does next.
  /// @pre host's memory stays as it is until the stream gets there, if it is page-locked
  template <class T>
  void upload(T* device, const T* host, std::size_t n) const {
    CUDA_CHECK(cudaMemcpyAsync(device, host, n * sizeof(T), cudaMemcpyHostToDevice, stream_));
  }

  /// Fetches n values when all work of the stream is done.
  template <class T>
  void download(T* host, const T* device, std::size_t n) const {
    CUDA_CHECK(cudaMemcpyAsync(host, device, n * sizeof(T), cudaMemcpyDeviceToHost, stream_));
    synchronize();
  }

  /// Waits until all work of the stream is done.
  /// @throws CudaError of the work, if it failed
  void synchronize() const { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

  /// Whether all work of the stream is done.
  /// @throws CudaError of the work, if it failed
  bool is_idle() const {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaErrorNotReady) return false;
    CUDA_CHECK(state);
    return true;
  }

  /// Lets later work of this stream wait for `event`.
  void wait(cudaEvent_t event) const { CUDA_CHECK(cudaStreamWaitEvent(stream_, event, 0)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace minfer
