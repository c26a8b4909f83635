// SPDX-License-Identifier: MIT
//
// Four floats at a time, as they are loaded at once.
#pragma once

#include <cuda_runtime.h>

#include <minfer/math.h>

namespace minfer {

/// Values that lie together, by four. @pre aligned to 16 bytes
__device__ inline const float4* by_four(const float* values) {
  return reinterpret_cast<const float4*>(values);
}

/// sum + a . b, from x to w.
__device__ inline float dot(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/// sum + weight * v.
__device__ inline float4 axpy(float weight, const float4& v, const float4& sum) {
  return {fmaf(weight, v.x, sum.x), fmaf(weight, v.y, sum.y), fmaf(weight, v.z, sum.z),
          fmaf(weight, v.w, sum.w)};
}

}  // namespace minfer
