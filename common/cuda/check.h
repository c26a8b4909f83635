// SPDX-License-Identifier: MIT
//
// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <stdexcept>
#include <string>

/// The GPU architectures that this program's kernels were compiled for, as CMake was given them.
#if !defined(MINFER_CUDA_ARCHITECTURES)
#define MINFER_CUDA_ARCHITECTURES "unknown"
#endif

namespace minfer {

/// A call to the CUDA runtime that failed. The text is one line: where, which call, CUDA's name of
/// the error, and what can be done about it where that is known.
class CudaError : public std::runtime_error {
 public:
  CudaError(cudaError_t code, const std::string& what) : std::runtime_error(what), code_(code) {}
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

/// "13.0" for CUDA's 13000.
inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The oldest architecture that kernels are written for.
inline constexpr int kOldestArchitecture = 80;

/// Why a program with this CUDA runtime can't use this driver; 0: there is none.
inline std::string driver_hint(int driver, int runtime) {
  if (driver == 0) return ": no NVIDIA driver is installed";
  return ": the driver supports CUDA up to " + cuda_version_text(driver) +
         ", the program was built with " + cuda_version_text(runtime) +
         "; update the driver, or build with an older toolkit";
}

/// Why a GPU of this architecture, 87 for sm_87, can't run the program, and what would.
inline std::string architecture_hint(int architecture) {
  const std::string found = std::to_string(architecture);
  return ": the GPU is of architecture " + found +
         ", the program was built for " MINFER_CUDA_ARCHITECTURES "; " +
         (architecture < kOldestArchitecture
              ? "minfer needs " + std::to_string(kOldestArchitecture) + " or newer"
              : "configure with -DCMAKE_CUDA_ARCHITECTURES=" + found);
}

/// What a user can do about `error`, as the end of a sentence; empty where nothing is known.
inline std::string cuda_error_hint(cudaError_t error) {
  int driver = 0;
  int runtime = 0;
  int major = 0;
  int minor = 0;
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ": the GPU's memory is used up (NvMap error 12 on a Jetson, where GPU and CPU share "
             "it: "
             "close other programs, or free the page cache with 'sync; echo 1 | sudo tee "
             "/proc/sys/vm/drop_caches')";
    case cudaErrorNoDevice:
      return ": there is no NVIDIA GPU that CUDA can use; the emulated program runs without one";
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:  // of code that the driver has yet to compile for the GPU
      cudaDriverGetVersion(&driver);
      cudaRuntimeGetVersion(&runtime);
      return driver_hint(driver, runtime);
    case cudaErrorNoKernelImageForDevice:
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
      return architecture_hint(10 * major + minor);
    default:
      return "";
  }
}

/// Throws unless `error` is cudaSuccess.
/// @throws CudaError
inline void check_cuda(cudaError_t error, const std::string& call, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // a failed call is reported once
  const char* slash = std::strrchr(file, '/');
  throw CudaError(error, std::string(slash == nullptr ? file : slash + 1) + ":" +
                             std::to_string(line) + ": " + call + ": " + cudaGetErrorName(error) +
                             cuda_error_hint(error));
}

}  // namespace minfer

/// Calls the CUDA runtime, and throws a CudaError that names the call and its place if it fails. A
/// macro, because only a macro sees the call's text.
#define CUDA_CHECK(call) ::minfer::check_cuda((call), #call, __FILE__, __LINE__)
