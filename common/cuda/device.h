// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "cuda/check.h"

namespace minfer {

/// What the current GPU is and has.
struct Device {
  std::string name;
  int compute_major = 0;  ///< 8 of sm_87
  int compute_minor = 0;
  int sm_count = 0;
  int max_threads_per_sm = 0;
  std::size_t shared_bytes_per_block = 0;  ///< dynamic, when opted in to (launch() does)
  std::size_t shared_bytes_per_sm = 0;
  std::size_t l2_bytes = 0;
  bool is_integrated = false;  ///< shares its memory with the CPU (Jetson)

  /// Asks the CUDA runtime.
  /// @throws CudaError if there is no GPU, the driver is too old, or the GPU is older than sm_80
  static Device current();
};

/// Device memory in bytes.
struct DeviceMemory {
  std::size_t free = 0;
  std::size_t total = 0;

  static DeviceMemory current() {
    DeviceMemory result;
    CUDA_CHECK(cudaMemGetInfo(&result.free, &result.total));
    return result;
  }
};

/// One attribute of `device`. (Attributes and not cudaDeviceProp: CUDA 13 has dropped fields of
/// that. Only the name has to come from there.)
inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

inline Device Device::current() {
  int id = 0;
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  CUDA_CHECK(cudaGetDevice(&id));
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, id));

  const auto attribute = [id](cudaDeviceAttr a) { return device_attribute(a, id); };
  const auto bytes = [&](cudaDeviceAttr a) { return static_cast<std::size_t>(attribute(a)); };
  Device result;
  result.name = properties.name;
  result.compute_major = attribute(cudaDevAttrComputeCapabilityMajor);
  result.compute_minor = attribute(cudaDevAttrComputeCapabilityMinor);
  result.sm_count = attribute(cudaDevAttrMultiProcessorCount);
  result.max_threads_per_sm = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  result.shared_bytes_per_block = bytes(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  result.shared_bytes_per_sm = bytes(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  result.l2_bytes = bytes(cudaDevAttrL2CacheSize);
  result.is_integrated = attribute(cudaDevAttrIntegrated) != 0;
  const int architecture = 10 * result.compute_major + result.compute_minor;
  if (architecture < kOldestArchitecture) {
    throw CudaError(cudaErrorNoKernelImageForDevice, result.name + architecture_hint(architecture));
  }
  return result;
}

}  // namespace minfer
