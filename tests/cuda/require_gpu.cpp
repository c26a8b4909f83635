// SPDX-License-Identifier: MIT
// Linked into a test program, ends it as skipped where there is no GPU. The emulator always is one.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace {

[[maybe_unused]] const bool kHasGpu = [] {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return true;
  std::printf("skipped: no GPU (%s)\n", cudaGetErrorName(error));
  std::exit(77);
}();

}  // namespace
