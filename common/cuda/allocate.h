// SPDX-License-Identifier: MIT
//
// Asking the GPU for memory: checked before it is asked for, and asked for again on a Jetson.
#pragma once

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>

#include "cuda/check.h"
#include "cuda/device.h"

namespace minfer {

/// count * element bytes.
/// @throws std::length_error if that is no size
inline std::size_t checked_bytes(std::size_t count, std::size_t element, const char* what) {
  if (count > std::numeric_limits<std::ptrdiff_t>::max() / element) {
    throw std::length_error(std::string(what) + ": " + std::to_string(count) + " elements of " +
                            std::to_string(element) + " bytes are more than an address space");
  }
  return count * element;
}

/// "1.5 MiB".
inline std::string mebibytes(std::size_t bytes) {
  const std::size_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

/// Makes the system give up at least `bytes` of its page cache, by using as much memory for a
/// moment. On a Jetson, a GPU allocation does not wait for the page cache to shrink: after a model
/// file was read it fails although the memory is available.
inline void reclaim_page_cache(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  volatile char* bytes_of = static_cast<volatile char*>(memory);
  for (std::size_t i = 0; i < bytes; i += page) bytes_of[i] = 1;
  munmap(memory, bytes);
}

/// `bytes` of device memory, nullptr for none.
/// @param what names the memory in an error
/// @throws CudaError with what is asked for and what is free; or check_architecture()'s, since
/// memory that no kernel can use is not taken
inline void* allocate_device(std::size_t bytes, const char* what) {
  if (bytes == 0) return nullptr;
  int id = 0;
  CUDA_CHECK(cudaGetDevice(&id));
  check_architecture(id);
  // Where GPU and CPU share memory, the page cache counts as used, and can be had all the same.
  const bool is_integrated = device_attribute(cudaDevAttrIntegrated, id) != 0;
  const DeviceMemory memory = DeviceMemory::current();
  const auto too_little = [&] {
    return CudaError(cudaErrorMemoryAllocation,
                     std::string(what) + ": " + mebibytes(bytes) + " of device memory asked for, " +
                         mebibytes(memory.free) + " of " + mebibytes(memory.total) + " free" +
                         cuda_error_hint(cudaErrorMemoryAllocation));
  };
  if (bytes > (is_integrated ? memory.total : memory.free)) throw too_little();

  void* result = nullptr;
  cudaError_t error = cudaMalloc(&result, bytes);
  if (error == cudaErrorMemoryAllocation && is_integrated) {
    cudaGetLastError();
    reclaim_page_cache(bytes);
    error = cudaMalloc(&result, bytes);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw too_little();
  }
  CUDA_CHECK(error);
  return result;
}

}  // namespace minfer
