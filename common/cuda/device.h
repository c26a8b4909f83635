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
  /// @throws CudaError if there is no GPU, the driver is too old, or the GPU is older than sm_80 or
  /// none that the program was built for
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

/// What a launch of this program's kernels on the current GPU would fail with for want of code that
/// the GPU runs: cudaErrorNoKernelImageForDevice where they were compiled for other architectures.
/// (In kernel_image.cu: only nvcc compiles a kernel to ask about.)
cudaError_t kernel_image_error();

/// "NVIDIA H200".
inline std::string device_name(int device) {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

/// Refuses a GPU that can't run this program's kernels, before one is launched.
/// @param device the current one
/// @throws CudaError with the GPU's architecture and those that the program was built for
inline void check_architecture(int device) {
  const int architecture = 10 * device_attribute(cudaDevAttrComputeCapabilityMajor, device) +
                           device_attribute(cudaDevAttrComputeCapabilityMinor, device);
  const cudaError_t error =
      architecture < kOldestArchitecture ? cudaErrorNoKernelImageForDevice : kernel_image_error();
  if (error == cudaErrorNoKernelImageForDevice) {
    throw CudaError(error, device_name(device) + architecture_hint(architecture));
  }
  check_cuda(error, "loading a kernel", __FILE__, __LINE__);
}

inline Device Device::current() {
  int id = 0;
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  CUDA_CHECK(cudaGetDevice(&id));
  check_architecture(id);

  const auto attribute = [id](cudaDeviceAttr a) { return device_attribute(a, id); };
  const auto bytes = [&](cudaDeviceAttr a) { return static_cast<std::size_t>(attribute(a)); };
  Device result;
  result.name = device_name(id);
  result.compute_major = attribute(cudaDevAttrComputeCapabilityMajor);
  result.compute_minor = attribute(cudaDevAttrComputeCapabilityMinor);
  result.sm_count = attribute(cudaDevAttrMultiProcessorCount);
  result.max_threads_per_sm = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  result.shared_bytes_per_block = bytes(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  result.shared_bytes_per_sm = bytes(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  result.l2_bytes = bytes(cudaDevAttrL2CacheSize);
  result.is_integrated = attribute(cudaDevAttrIntegrated) != 0;
  return result;
}

}  // namespace minfer
