// SPDX-License-Identifier: MIT
// What does not compile for the emulator, and says why: MISTAKE is a statement.
#include <cuda_runtime.h>

__global__ void mistaken(float* x) {
  *x = 1.0f;
  MISTAKE;
}
