// SPDX-License-Identifier: MIT
//
// What can be asked of the device and of kernels, and the checks of a launch.
#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "cuda/emulator/device_limits.h"
#include "cuda/emulator/fault.h"
#include "cuda/emulator/settings.h"
#include "cuda/emulator/stream.h"

namespace minfer::emulator {
namespace {

/// CUDA's way to write 13.0.
constexpr int kCudaVersion = 13000;

thread_local cudaError_t last_error = cudaSuccess;

/// Dynamic shared memory that kernels have opted in to, by kernel.
class OptIns {
 public:
  void set(const void* kernel, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_[kernel] = bytes;
  }
  std::size_t limit(const void* kernel) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = bytes_.find(kernel);
    return found == bytes_.end() ? kStaticSharedBytes : std::max(found->second, kStaticSharedBytes);
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, std::size_t> bytes_;
};

OptIns& opt_ins() {
  static OptIns instance;
  return instance;
}

int blocks_per_sm(std::uint64_t block_threads, std::size_t shared_bytes) {
  const std::uint64_t warps = (block_threads + kWarpSize - 1) / kWarpSize;
  const std::uint64_t by_threads = kThreadsPerSm / std::max<std::uint64_t>(1, warps * kWarpSize);
  const std::uint64_t by_shared =
      shared_bytes_per_sm(settings().sm_count) / (shared_bytes + kReservedSharedBytes);
  return static_cast<int>(std::min({by_threads, by_shared, std::uint64_t{kBlocksPerSm}}));
}

cudaError_t check_launch(const void* kernel, const GridShape& shape) {
  if (!settings().has_kernel_image) return cudaErrorNoKernelImageForDevice;
  const dim3 grid = shape.grid;
  const dim3 block = shape.block;
  const bool grid_fits = grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= kGridExtentX &&
                         grid.y <= kGridExtentYZ && grid.z <= kGridExtentYZ;
  const bool block_fits = shape.threads_per_block() >= 1 && block.x <= kThreadsPerBlock &&
                          block.y <= kThreadsPerBlock && block.z <= kBlockExtentZ &&
                          shape.threads_per_block() <= kThreadsPerBlock;
  if (!grid_fits || !block_fits) return cudaErrorInvalidConfiguration;
  if (shape.shared_bytes > opt_ins().limit(kernel)) return cudaErrorInvalidValue;
  const auto resident =
      static_cast<std::uint64_t>(blocks_per_sm(shape.threads_per_block(), shape.shared_bytes)) *
      static_cast<std::uint64_t>(settings().sm_count);
  if (shape.cooperative && shape.blocks() > resident) return cudaErrorCooperativeLaunchTooLarge;
  return cudaSuccess;
}

}  // namespace

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t launch_kernel(std::shared_ptr<const KernelCall> call, const GridShape& shape,
                          cudaStream_t stream) {
  const cudaError_t error = check_launch(call->function(), shape);
  if (error != cudaSuccess) return remember(error);
  return issue(stream, [call = std::move(call), shape] { run_grid(*call, shape); });
}

}  // namespace minfer::emulator

using namespace minfer::emulator;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidSymbol:
      return "cudaErrorInvalidSymbol";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorDeviceUninitialized:
      return "cudaErrorDeviceUninitialized";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorUnsupportedPtxVersion:
      return "cudaErrorUnsupportedPtxVersion";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge:
      return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureUnmatched:
      return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return remember(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "minfer emulator");
  properties->totalGlobalMem = settings().memory_bytes;
  properties->sharedMemPerBlock = kStaticSharedBytes;
  properties->sharedMemPerBlockOptin = opt_in_shared_bytes(settings().sm_count);
  properties->multiProcessorCount = settings().sm_count;
  properties->major = kComputeCapabilityMajor;
  properties->minor = kComputeCapabilityMinor;
  properties->integrated = settings().is_integrated;
  properties->warpSize = static_cast<int>(kWarpSize);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = kThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(kStaticSharedBytes);
      break;
    case cudaDevAttrWarpSize:
      *value = kWarpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = settings().sm_count;
      break;
    case cudaDevAttrIntegrated:
      *value = settings().is_integrated;
      break;
    case cudaDevAttrCanMapHostMemory:
      *value = 1;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kThreadsPerSm;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kComputeCapabilityMajor;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kComputeCapabilityMinor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(shared_bytes_per_sm(settings().sm_count));
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(opt_in_shared_bytes(settings().sm_count));
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = kBlocksPerSm;
      break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth:
    case cudaDevAttrL2CacheSize:
      *value = 0;
      break;  // it has no clocks, and the host's caches
    default:
      return remember(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return remember(is_capturing() ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > opt_in_shared_bytes(settings().sm_count)) {
    return remember(cudaErrorInvalidValue);
  }
  opt_ins().set(kernel, static_cast<std::size_t>(value));
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (!settings().has_kernel_image) return remember(cudaErrorNoKernelImageForDevice);
  *attributes = {};
  attributes->maxThreadsPerBlock = kThreadsPerBlock;
  attributes->ptxVersion = kComputeCapabilityMajor * 10 + kComputeCapabilityMinor;
  attributes->binaryVersion = attributes->ptxVersion;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(opt_ins().limit(kernel));
  return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  static std::mutex mutex;
  static std::set<std::string> names;  // the caller keeps the pointer
  const std::lock_guard<std::mutex> lock(mutex);
  *name = names.insert(function_name(kernel)).first->c_str();
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int block_threads,
                                                          std::size_t shared_bytes) {
  if (block_threads < 1 || block_threads > static_cast<int>(kThreadsPerBlock)) {
    return remember(cudaErrorInvalidValue);
  }
  const bool fits = shared_bytes <= opt_ins().limit(kernel);
  *blocks = fits ? blocks_per_sm(static_cast<std::uint64_t>(block_threads), shared_bytes) : 0;
  return cudaSuccess;
}
