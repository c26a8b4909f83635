// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

#include "cuda/device.h"

namespace minfer {
namespace {

/// Is never launched: it is compiled for the architectures that all kernels are, and asked about.
__global__ void probe() {}

}  // namespace

cudaError_t kernel_image_error() {
  cudaFuncAttributes attributes;
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe));
  if (error != cudaSuccess) cudaGetLastError();  // a failed call is reported once
  // What older runtimes call it.
  return error == cudaErrorInvalidDeviceFunction ? cudaErrorNoKernelImageForDevice : error;
}

}  // namespace minfer
