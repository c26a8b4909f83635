// SPDX-License-Identifier: MIT
//
// Memory of the GPU, and page-locked memory of the host, as owning objects.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "cuda/allocate.h"
#include "cuda/check.h"

namespace minfer {

/// `count` elements of T on the GPU. Fresh memory has no defined content.
template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "the GPU gets bytes");

 public:
  DeviceBuffer() = default;

  /// @param what names the memory in an error
  /// @throws CudaError if the GPU does not have so much memory free; both numbers are in the text
  explicit DeviceBuffer(std::size_t count, const char* what = "device buffer")
      : memory_(static_cast<T*>(allocate_device(checked_bytes(count, sizeof(T), what), what))),
        size_(count) {}

  T* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

  /// Copies `count` elements from the host to the elements from `first` on. With a stream, the
  /// host's memory must live until the stream gets there.
  void upload(const T* from, std::size_t count, cudaStream_t stream = nullptr,
              std::size_t first = 0) {
    check_range(first, count);
    if (count == 0) return;
    CUDA_CHECK(
        cudaMemcpyAsync(data() + first, from, count * sizeof(T), cudaMemcpyHostToDevice, stream));
  }

  /// Copies `count` elements from `first` on to the host, and waits for it.
  void download(T* to, std::size_t count, cudaStream_t stream = nullptr,
                std::size_t first = 0) const {
    check_range(first, count);
    if (count == 0) return;
    CUDA_CHECK(
        cudaMemcpyAsync(to, data() + first, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
  }

  /// Sets every byte to 0.
  void zero(cudaStream_t stream = nullptr) {
    if (size_ > 0) CUDA_CHECK(cudaMemsetAsync(data(), 0, bytes(), stream));
  }

 private:
  struct Free {
    void operator()(T* memory) const { cudaFree(memory); }
  };

  void check_range(std::size_t first, std::size_t count) const {
    if (first <= size_ && count <= size_ - first) return;
    throw std::out_of_range("copy of elements " + std::to_string(first) + " to " +
                            std::to_string(first) + "+" + std::to_string(count) +
                            " of a device buffer of " + std::to_string(size_));
  }

  std::unique_ptr<T, Free> memory_;
  std::size_t size_ = 0;
};

/// `count` elements of page-locked host memory: copies from and to it are fast, and asynchronous.
template <class T>
class PinnedBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "the GPU gets bytes");

 public:
  PinnedBuffer() = default;

  /// @throws CudaError if the host does not have so much memory
  explicit PinnedBuffer(std::size_t count, unsigned flags = cudaHostAllocDefault) : size_(count) {
    void* memory = nullptr;
    CUDA_CHECK(cudaHostAlloc(&memory, checked_bytes(count, sizeof(T), "pinned buffer"), flags));
    memory_.reset(static_cast<T*>(memory));
  }

  T* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](std::size_t i) const { return data()[i]; }
  T* begin() const { return data(); }
  T* end() const { return data() + size_; }

 private:
  struct Free {
    void operator()(T* memory) const { cudaFreeHost(memory); }
  };

  std::unique_ptr<T, Free> memory_;
  std::size_t size_ = 0;
};

/// Page-locked host memory that kernels access as well, while they run.
template <class T>
class MappedBuffer : public PinnedBuffer<T> {
 public:
  MappedBuffer() = default;

  /// @throws CudaError if the host does not have so much memory
  explicit MappedBuffer(std::size_t count) : PinnedBuffer<T>(count, cudaHostAllocMapped) {
    void* device = nullptr;
    if (count > 0) CUDA_CHECK(cudaHostGetDevicePointer(&device, this->data(), 0));
    device_data_ = static_cast<T*>(device);
  }

  /// The address that kernels know this memory by.
  T* device_data() const { return device_data_; }

 private:
  T* device_data_ = nullptr;
};

}  // namespace minfer
